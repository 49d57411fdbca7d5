"""Golden files of the Messages API: a difference is a change of the wire format, and must be reviewed.

For each case, `canonical.json` is the log. `anthropic.http` has the stream and the whole message of each of its runs,
and `anthropic.read.json` what the client reads from the streams. `pytest --accept` writes both.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from babelgate.adapters.anthropic.read import AnswerReader
from babelgate.adapters.anthropic.write.frames import FrameWriter
from babelgate.adapters.anthropic.write.message import AnswerWriter
from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.kit.json import parse_json
from babelgate.canonical import FaultError, Record
from babelgate.canonical.event import RunCreated
from babelgate.canonical.json import to_json
from tests.golden_json import value_to_json
from tests.goldens import CASES, GOLDEN, compare, log_of

HEAD: Final = "# Anthropic: the stream of POST /v1/messages for each run, and then its whole message\n"


def written(log: list[Record]) -> Iterator[str]:
    frames = FrameWriter()
    for created in [record.event for record in log if isinstance(record.event, RunCreated)]:
        writer = AnswerWriter("22222222-2222-4222-8222-222222222222", created.run_id, "echo", "http://gateway")
        events = [event for record in log for event in writer.write(record)]
        ended = frames.fault(writer.fault) if writer.fault is not None else frames.events(writer.end())
        for frame in (*frames.events([writer.begin(), *events]), *ended):
            assert isinstance(frame, bytes)
            yield frame.decode()
        yield f"{json.dumps(writer.body(), ensure_ascii=False)}\n\n"


def read(frames: bytes) -> Iterator[Any]:
    reader = AnswerReader()
    for each in Frames().all([frames]):
        if each.event == "message_start":
            reader = AnswerReader()
            yield "run"
        try:
            for event in reader.read(parse_json(each.data)):
                yield {"kind": event.kind, **value_to_json(event)}
        except FaultError as error:
            yield {"fault": to_json(error.fault)}


@pytest.mark.parametrize("case", CASES)
def test_written_frames_match_the_golden(case: str, accept: bool) -> None:
    compare(GOLDEN / case / "anthropic.http", HEAD + "".join(written(log_of(case))), accept)


@pytest.mark.parametrize("case", CASES)
def test_read_events_match_the_golden(case: str, accept: bool) -> None:
    lines = (GOLDEN / case / "anthropic.http").read_text().removeprefix(HEAD).splitlines(keepends=True)
    frames = "".join(line for line in lines if not line.startswith("{")).encode()
    events = ",\n".join("  " + json.dumps(event, ensure_ascii=False) for event in read(frames))
    compare(GOLDEN / case / "anthropic.read.json", f"[\n{events}\n]\n", accept)
