"""Golden files of the minimal runtime: a difference is a change of the wire format.

For each case, `canonical.json` is the log. `runtime.http` has the events of each of its runs, and the run as it can be
read later; `pytest --accept` writes it.
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
        records = [record for record in log if record.run_id == created.run_id]
        for record in records:
            event = encode_event(record, created.run_id)
            frame = frame_of(encode(event), id=str(record.seq), event=event["event_type"])
            assert isinstance(frame, bytes)
            yield frame.decode()
        fold = Fold("11111111-1111-4111-8111-111111111111", records=records)
        input_ids = {message.message_id for message in created.messages}
        messages = [message for message in fold.messages(run_id=created.run_id) if message.message_id not in input_ids]
        interrupts = [each for each in fold.interrupts.values() if each.is_open]
        run = encode_run(
            fold.runs[created.run_id], created, messages, fold.artifacts.values(), interrupts, "http://gateway"
        )
        yield json.dumps(run, ensure_ascii=False) + "\n\n"


@pytest.mark.parametrize("case", CASES)
def test_the_events_of_a_log_match_the_golden_file(case: str, accept: bool) -> None:
    path, text = GOLDEN / case / "runtime.http", HEAD + "".join(written(log_of(case)))
    compare(path, text, accept)


@pytest.mark.parametrize("case", CASES)
def test_events_hide_adapter_data_and_caller_headers(case: str) -> None:
    for record in log_of(case):
        text = json.dumps(encode_event(record, record.run_id or ""))
        assert '"extra"' not in text
        assert '"headers"' not in text
