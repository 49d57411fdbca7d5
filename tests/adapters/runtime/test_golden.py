"""One case, one log, and what the minimal runtime makes of it: a diff here is a change of the wire, and somebody reads
it.

`canonical.json` is the log, `runtime.http` the events of each of its runs, and the run as it can be read later;
`pytest --accept` writes it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.adapters._server.encoding import encode
from babelgate.adapters._server.sse import frame_of
from babelgate.adapters.runtime.codec import encode_event, encode_run
from babelgate.canonical import Fold, Record
from babelgate.canonical.event import RunCreated
from tests.said import event_of

GOLDEN: Final = Path(__file__).parents[2] / "golden"
CASES: Final = sorted(path.parent.name for path in GOLDEN.glob("*/canonical.json"))
HEAD: Final = "# Minimal runtime: the events of each run, and the run as GET /v1/runs/{run_id} has it\n"


def log_of(case: str) -> list[Record]:
    rows: list[dict[str, Any]] = json.loads((GOLDEN / case / "canonical.json").read_text())
    return [Record(event=event_of(row.pop("event")), **row) for row in rows]


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
    if accept:
        path.write_text(text)
    assert path.exists(), f"{path} is missing: pytest --accept writes it, and you read it"
    assert path.read_text() == text


@pytest.mark.parametrize("case", CASES)
def test_no_event_shows_what_adapters_keep_for_themselves_or_the_headers_of_a_caller(case: str) -> None:
    for record in log_of(case):
        shown = json.dumps(encode_event(record, record.run_id or ""))
        assert '"extra"' not in shown
        assert '"headers"' not in shown
