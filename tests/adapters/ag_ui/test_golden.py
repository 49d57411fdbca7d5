"""Golden files of AG-UI: a difference is a change of the wire format, and must be reviewed.

For each case, `canonical.json` is the log. `ag-ui-1.0.http` has the events of each of its runs, and
`ag-ui-1.0.read.json` what the client reads from them. `pytest --accept` writes both.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from babelgate.adapters.ag_ui.read.run_events import EventReader
from babelgate.adapters.ag_ui.write.run_events import RunEventWriter
from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.kit.json import parse_json
from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.sse import frame_of
from babelgate.canonical import FaultError, Record
from babelgate.canonical.event import RunCreated
from babelgate.canonical.json import to_json
from tests.golden_json import value_to_json
from tests.goldens import CASES, GOLDEN, compare, log_of

HEAD: Final = "# AG-UI: the frames of POST /ag-ui/{agent} for each run\n"
THREAD: Final = "11111111-1111-4111-8111-111111111111"


def written(log: list[Record]) -> Iterator[str]:
    for created in [record.event for record in log if isinstance(record.event, RunCreated)]:
        writer = RunEventWriter(created.run_id, THREAD, base_url="http://gateway", agent="echo")
        for record in log:
            for number, event in enumerate(writer.write(record)):
                frame = frame_of(encode(event), id=f"{record.seq}-{number}")
                assert isinstance(frame, bytes)
                yield frame.decode()


def read(frames: bytes) -> Iterator[Any]:
    reader = EventReader("run")
    for each in Frames().all([frames]):
        if reader.has_ended:
            reader = EventReader("run")
            yield "resumed"
        try:
            for event in reader.read(parse_json(each.data)):
                yield {"kind": event.kind, **value_to_json(event)}
        except FaultError as error:
            yield {"fault": to_json(error.fault)}


@pytest.mark.parametrize("case", CASES)
def test_written_frames_match_the_golden(case: str, accept: bool) -> None:
    compare(GOLDEN / case / "ag-ui-1.0.http", HEAD + "".join(written(log_of(case))), accept)


@pytest.mark.parametrize("case", CASES)
def test_read_events_match_the_golden(case: str, accept: bool) -> None:
    frames = (GOLDEN / case / "ag-ui-1.0.http").read_text().removeprefix(HEAD).encode()
    lines = ",\n".join("  " + json.dumps(event, ensure_ascii=False) for event in read(frames))
    compare(GOLDEN / case / "ag-ui-1.0.read.json", f"[\n{lines}\n]\n", accept)
