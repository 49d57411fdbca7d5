"""Goldens of OpenAI's APIs: one log for each case, and what the writers produce from it.

A diff here is a change of the wire format, and a person must read it. `canonical.json` is the log. `openai-chat.http`
holds the stream of each run, and the completion that can be read later; `openai-responses.http` holds the same of
responses. `pytest --accept` writes them.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from babelgate.adapters.openai.read.chat import ChatReader
from babelgate.adapters.openai.read.responses import ResponseReader
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.write.chunks import ChunkWriter
from babelgate.adapters.openai.write.completion import CompletionWriter
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import FaultError, Record
from babelgate.canonical.event import PartAdded, PartDelta, RunCreated, RunEnded
from tests.goldens import CASES, GOLDEN, compare, log_of


def runs_of(log: list[Record]) -> list[str]:
    return [record.event.run_id for record in log if isinstance(record.event, RunCreated)]


def writer_of(log: list[Record], run_id: str) -> CompletionWriter:
    return CompletionWriter(next(record.task_id for record in log if record.task_id) or "", run_id)


def streamed(log: list[Record], run_id: str) -> bytes:
    writer = writer_of(log, run_id)
    chunks = ChunkWriter(f"chatcmpl-{run_id}", 1_700_000_000, "echo", counts=True)
    frames = [chunks.begin()]
    for record in log:
        frames += chunks.pieces(writer.write(record), writer.about)
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


def responded_of(log: list[Record], run_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    writer = ResponseWriter(next(record.task_id for record in log if record.task_id) or "", "echo", run_id)
    events = [event for record in log for event in writer.write(record)]
    return [*events, *(writer.end() if writer.has_ended else ())], writer.response()


def responded(log: list[Record]) -> Iterator[str]:
    for run_id in runs_of(log):
        events, whole = responded_of(log, run_id)
        for event in events:
            yield f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
        yield json.dumps(whole, ensure_ascii=False) + "\n\n"


FILES = {
    "openai-chat.http": (
        "# OpenAI: the stream of each run, and its completion as GET /v1/chat/completions/{id} has it\n",
        written,
    ),
    "openai-responses.http": (
        "# OpenAI: the events of each run as a response, and the response as GET /v1/responses/{id} has it\n",
        responded,
    ),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("case", CASES)
def test_output_of_both_apis_equals_the_golden(case: str, name: str, accept: bool) -> None:
    head, write = FILES[name]
    path, text = GOLDEN / case / name, head + "".join(write(log_of(case)))
    compare(path, text, accept)


@pytest.mark.parametrize("case", CASES)
def test_events_of_a_response_add_up_to_the_response(case: str) -> None:
    log = log_of(case)
    for run_id in runs_of(log):
        events, whole = responded_of(log, run_id)
        if whole["status"] not in ("completed", "cancelled"):
            continue
        live, later = ResponseReader(), ResponseReader()
        text = "".join(text_of(live.read(event)) for event in events)
        assert text == text_of(later.read(events[-1]))
        assert live.stopped and later.stopped


@pytest.mark.parametrize("case", CASES)
def test_stream_and_stored_completion_are_read_as_the_same(case: str) -> None:
    log = log_of(case)
    for run_id in runs_of(log):
        live, later = ChatReader(run_id), ChatReader(run_id)
        frames = streamed(log, run_id).decode().strip().removesuffix("data: [DONE]").strip().split("\n\n")
        text = ""
        try:
            for frame in frames:
                text += text_of(live.read(json.loads(frame.removeprefix("data: "))))
        except FaultError:
            assert writer_failed(log, run_id)
            continue
        whole = text_of(later.read(stored(log, run_id)))
        assert text == whole
        ends = [next(event for event in each.end(done=True) if isinstance(event, RunEnded)) for each in (live, later)]
        assert ends[0] == ends[1]


def text_of(events: list[Any]) -> str:
    added = "".join(getattr(event.part, "text", "") for event in events if isinstance(event, PartAdded))
    return added + "".join(event.text for event in events if isinstance(event, PartDelta))


def writer_failed(log: list[Record], run_id: str) -> bool:
    writer = writer_of(log, run_id)
    for record in log:
        writer.write(record)
    return writer.fault is not None
