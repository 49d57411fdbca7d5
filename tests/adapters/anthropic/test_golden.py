"""Golden files of the Messages API: a difference is a change of the wire format, and must be reviewed.

For each case, `canonical.json` is the log. `anthropic.http` has the stream and the whole message of each of its runs.
`pytest --accept` writes it.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from babelgate.adapters.anthropic.write.frames import FrameWriter
from babelgate.adapters.anthropic.write.message import AnswerWriter
from babelgate.canonical import Record
from babelgate.canonical.event import RunCreated
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


@pytest.mark.parametrize("case", CASES)
def test_written_frames_match_the_golden(case: str, accept: bool) -> None:
    compare(GOLDEN / case / "anthropic.http", HEAD + "".join(written(log_of(case))), accept)
