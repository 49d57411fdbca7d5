"""One case, one log, and what chat completions make of it: a diff here is a change of the wire, and somebody reads it.

`canonical.json` is the log, `openai-chat.http` the stream of each of its runs, and the completion that can be read
later; `pytest --accept` writes it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.openai.read.chat import ChatReader
from adapters.openai.wire import replies as w
from adapters.openai.write.chunks import ChunkWriter
from adapters.openai.write.completion import CompletionWriter
from canonical import FaultError, Record
from canonical.event import PartAdded, PartDelta, RunCreated, RunEnded
from tests.said import event_of

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/canonical.json"))
HEAD = "# OpenAI: the stream of each run, and its completion as GET /v1/chat/completions/{id} has it\n"


def log_of(case: str) -> list[Record]:
    rows: list[dict[str, Any]] = json.loads((GOLDEN / case / "canonical.json").read_text())
    return [Record(event=event_of(row.pop("event")), **row) for row in rows]


def runs_of(log: list[Record]) -> list[str]:
    return [record.event.run_id for record in log if isinstance(record.event, RunCreated)]


def writer_of(log: list[Record], run_id: str) -> CompletionWriter:
    return CompletionWriter(next(record.task_id for record in log if record.task_id) or "", run_id)


def streamed(log: list[Record], run_id: str) -> bytes:
    writer = writer_of(log, run_id)
    chunks = ChunkWriter(f"chatcmpl-{run_id}", 1_700_000_000, "echo", counts=True)
    frames = [chunks.begin()]
    for record in log:
        frames += chunks.deltas(writer.write(record))
    return b"".join([*frames, *chunks.end(writer, writer.fault)])


def stored(log: list[Record], run_id: str) -> dict[str, Any]:
    writer = writer_of(log, run_id)
    for record in log:
        writer.write(record)
    return w.completion(f"chatcmpl-{run_id}", 1_700_000_000, "echo", writer.message(), writer.finish, writer.usage)


def written(log: list[Record]) -> Iterator[str]:
    for run_id in runs_of(log):
        yield streamed(log, run_id).decode()
        yield json.dumps(stored(log, run_id), ensure_ascii=False) + "\n\n"


@pytest.mark.parametrize("case", CASES)
def test_the_completions_of_a_log_are_what_they_were(case: str, accept: bool) -> None:
    path, text = GOLDEN / case / "openai-chat.http", HEAD + "".join(written(log_of(case)))
    if accept:
        path.write_text(text)
    assert path.exists(), f"{path} is missing: pytest --accept writes it, and you read it"
    assert path.read_text() == text


@pytest.mark.parametrize("case", CASES)
def test_a_stream_and_the_stored_completion_say_the_same_to_a_client_of_the_gateway(case: str) -> None:
    log = log_of(case)
    for run_id in runs_of(log):
        live, later = ChatReader(run_id), ChatReader(run_id)
        frames = streamed(log, run_id).decode().strip().removesuffix("data: [DONE]").strip().split("\n\n")
        text = ""
        try:
            for frame in frames:
                text += said(live.read(json.loads(frame.removeprefix("data: "))))
        except FaultError:
            assert writer_failed(log, run_id)
            continue
        whole = said(later.read(stored(log, run_id)))
        assert text == whole
        ends = [next(event for event in each.end(done=True) if isinstance(event, RunEnded)) for each in (live, later)]
        assert ends[0] == ends[1]


def said(events: list[Any]) -> str:
    added = "".join(getattr(event.part, "text", "") for event in events if isinstance(event, PartAdded))
    return added + "".join(event.text for event in events if isinstance(event, PartDelta))


def writer_failed(log: list[Record], run_id: str) -> bool:
    writer = writer_of(log, run_id)
    for record in log:
        writer.write(record)
    return writer.fault is not None


def test_there_are_cases() -> None:
    assert len(CASES) >= 10
