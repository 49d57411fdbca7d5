"""One case, one log, and what the minimal runtime makes of it: a diff here is a change of the wire, and somebody reads
it.

`canonical.json` is the log, `runtime.http` the events of each of its runs, and the run as it can be read later;
`pytest --accept` writes it.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.sse import frame_of
from babelgate.adapters.runtime.codec import encode_event, encode_run
from babelgate.canonical import Fold, Record
from babelgate.canonical.event import RunCreated
from tests.goldens import CASES, GOLDEN, compare, log_of

HEAD: Final = "# Minimal runtime: the events of each run, and the run as GET /v1/runs/{run_id} has it\n"


def written(log: list[Record]) -> Iterator[str]:
    for created in [record.event for record in log if isinstance(record.event, RunCreated)]:
        of_run = [record for record in log if record.run_id == created.run_id]
        for record in of_run:
            event = encode_event(record, created.run_id)
            frame = frame_of(encode(event), id=str(record.seq), event=event["event_type"])
            assert isinstance(frame, bytes)
            yield frame.decode()
        fold = Fold("11111111-1111-4111-8111-111111111111", records=of_run)
        given = {message.message_id for message in created.messages}
        messages = [message for message in fold.messages(run_id=created.run_id) if message.message_id not in given]
        asked = [each for each in fold.interrupts.values() if each.is_open]
        run = encode_run(fold.runs[created.run_id], created, messages, fold.artifacts.values(), asked, "http://gateway")
        yield json.dumps(run, ensure_ascii=False) + "\n\n"


@pytest.mark.parametrize("case", CASES)
def test_the_events_of_a_log_are_what_they_were(case: str, accept: bool) -> None:
    path, text = GOLDEN / case / "runtime.http", HEAD + "".join(written(log_of(case)))
    compare(path, text, accept)


@pytest.mark.parametrize("case", CASES)
def test_no_event_shows_what_adapters_keep_for_themselves_or_the_headers_of_a_caller(case: str) -> None:
    for record in log_of(case):
        shown = json.dumps(encode_event(record, record.run_id or ""))
        assert '"extra"' not in shown
        assert '"headers"' not in shown
