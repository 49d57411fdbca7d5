"""Exports for tests: lines that a test writes or changes, and matching digests."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from babelgate.canonical.event import Event, TaskCreated, ThreadChanged, encode_event
from babelgate.gateway.storage.database import HEAD
from babelgate.gateway.storage.transfer.form import VERSION, ExportHeader, ExportWriter, RecordLine, ThreadLine

Line = dict[str, Any]


def header(version: int = VERSION) -> ExportHeader:
    return ExportHeader(version=version, release="1.0", revision=HEAD, made_at=0)


def record(seq: int, event: Event, task_id: str | None = None, run_id: str | None = None) -> RecordLine:
    encoded = msgspec.Raw(encode_event(event))
    return RecordLine(seq=seq, at=seq, task_id=task_id, run_id=run_id, attempt=0, event=encoded)


def write_threads(path: Path, threads: Iterable[tuple[str, Iterable[RecordLine]]]) -> None:
    """Write an export of threads of the owner `alice`."""
    with path.open("wb") as file:
        writer = ExportWriter(file, header())
        for thread_id, records in threads:
            writer.write(ThreadLine(owner="alice", thread_id=thread_id))
            for each in records:
                writer.write(each)
            writer.end_section()
        writer.end()


def short_log(task_id: str) -> Iterator[RecordLine]:
    yield record(1, ThreadChanged())
    yield record(2, TaskCreated(task_id=task_id, agent="echo"), task_id)


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Write lines with new digests and counts, so that a reader cannot refuse them for these."""
    content = bytearray()
    count, sections, digest = 0, 0, hashlib.sha256()
    for number, line in enumerate(lines):
        if line["kind"] == "section_end":
            line = {"kind": "section_end", "lines": count, "sha256": digest.hexdigest()}
            count, sections, digest = -1, sections + 1, hashlib.sha256()
        elif line["kind"] == "end":
            line = {"kind": "end", "sections": sections}
        data = json.dumps(line).encode() + b"\n"
        content += data
        if number and line["kind"] != "section_end":
            digest.update(data)
        count += number > 0
    path.write_bytes(content)
