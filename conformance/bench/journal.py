"""Journal of a benchmark: one JSON object per line, first the header, then each finished attempt.

A benchmark that was stopped or killed resumes from its journal.
"""

import json
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from babelgate.conformance.bench.result import FORMAT, Attempt, Header, Report


class JournalError(Exception):
    """Error for an unreadable or invalid journal or result file, with a one-line message: the file, and what is wrong
    with it."""


class BenchJournal:
    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file

    def add(self, record: Header | Attempt) -> None:
        """Append a record and wait until it is on disk, because an attempt may have cost money."""
        self._file.write(record.model_dump_json().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    @classmethod
    @contextmanager
    def create(cls, path: Path, header: Header) -> "Generator[BenchJournal]":
        with path.open("xb") as file:
            journal = cls(path, file)
            journal.add(header)
            yield journal

    @classmethod
    @contextmanager
    def resume(cls, path: Path) -> "Generator[BenchJournal]":
        """Open an existing journal to append to it. An incomplete last line, left by a crash, is removed."""
        with path.open("r+b") as file:
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            file.seek(whole)
            yield cls(path, file)


def read_journal(path: Path) -> tuple[Header, list[Attempt]]:
    """Return the header of a journal and the latest record of each attempt. An incomplete last line is ignored. Raises
    JournalError if the file cannot be read or is no journal."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise JournalError(f"{path}: it cannot be read: {error.strerror}") from None
    try:
        header = Header.model_validate(_object(path, 1, lines[0] if lines else b""))
        attempts = [Attempt.model_validate(_object(path, at, line)) for at, line in enumerate(lines[1:], 2)]
    except ValidationError as error:
        raise JournalError(f"{path}: it is no journal of a bench: {_first(error)}") from None
    _check_format(path, header.format)
    latest = {(each.agent, each.task, each.repetition): each for each in attempts}
    return header, list(latest.values())


def read_report(path: Path) -> Report:
    """Return the report in a result file, or in `result.json` of a folder. Raises JournalError if the file cannot be
    read or is no result of a bench."""
    file = path / "result.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise JournalError(f"{file}: it cannot be read: {error.strerror}") from None
    except ValueError:
        raise JournalError(f"{file}: it is no result of a bench: it is not JSON") from None
    if isinstance(content, dict):
        _check_format(file, content.get("format"))  # type: ignore[arg-type]
    try:
        return Report.model_validate(content)
    except ValidationError as error:
        raise JournalError(f"{file}: it is no result of a bench: {_first(error)}") from None


def _object(path: Path, line: int, raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        raise JournalError(f"{path}:{line}: it is no journal of a bench: this is not JSON") from None


def _check_format(path: Path, number: object) -> None:
    if isinstance(number, int) and number > FORMAT:
        raise JournalError(f"{path}: a newer version has written it (format {number}; this one reads {FORMAT})")


def _first(error: ValidationError) -> str:
    each = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, each['loc']))}: {each['msg'].lower()}"


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Write a file atomically: readers see either the old or the new content."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text if isinstance(text, str) else "".join(text), encoding="utf-8")
    temporary.replace(path)
