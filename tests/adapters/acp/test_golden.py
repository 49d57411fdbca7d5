"""Golden files of ACP, one set for each log. A diff is a change of the wire format, and must be reviewed.

`canonical.json` is the log, `acp-1.0.3.http` its events on the wire, and `acp-1.0.3.read.json` the events that the
reader returns for those. `pytest --accept` writes the last two.
"""

import json
from typing import Any

import pytest

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import EncodingContext
from babelgate.adapters.acp.read.run_events import EventReader, decode_event
from babelgate.adapters.acp.write.run_events import EventWriter
from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.kit.json import parse_json
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import FaultError, Record
from babelgate.canonical.json import to_json
from tests.golden_json import value_to_json
from tests.goldens import CASES, GOLDEN, compare, log_of

HEAD = "# ACP: the frames of POST /runs with mode stream, and of each resume (GET /runs/{run_id}/events has them all)\n"


def written(log: list[Record]) -> bytes:
    task = next(record.task_id for record in log if record.task_id)
    session = "11111111-1111-4111-8111-111111111111"
    writer = EventWriter(
        EncodingContext(run_id=task, session_id=session, agent="echo", base_url="http://127.0.0.1:8000")
    )
    return b"".join(frame(w.dump(event)) for record in log for event in writer.write(record))


def read(frames: bytes) -> list[Any]:
    found: list[Any] = []
    reader = EventReader("echo")
    for each in Frames().all([frames]):
        if reader.stopped:
            reader = EventReader("echo")
            found.append("resumed")
        try:
            for event in reader.read(decode_event(parse_json(each.data))):
                found.append({"kind": event.kind, **value_to_json(event)})
        except FaultError as error:
            found.append({"fault": to_json(error.fault)})
    return found


@pytest.mark.parametrize("case", CASES)
def test_written_frames_match_the_golden(case: str, accept: bool) -> None:
    compare(GOLDEN / case / "acp-1.0.3.http", HEAD + written(log_of(case)).decode(), accept)


@pytest.mark.parametrize("case", CASES)
def test_read_events_match_the_golden(case: str, accept: bool) -> None:
    frames = (GOLDEN / case / "acp-1.0.3.http").read_text().removeprefix(HEAD).encode()
    lines = ",\n".join("  " + json.dumps(event, ensure_ascii=False) for event in read(frames))
    compare(GOLDEN / case / "acp-1.0.3.read.json", f"[\n{lines}\n]\n", accept)
