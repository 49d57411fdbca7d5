"""Golden files of the Agent Client Protocol: a difference is a change of the wire format, and must be reviewed.

For each case, `canonical.json` is the log. `agent-client.jsonl` has the updates and the end of the turn of each of its
runs, with and without forms, and then the updates of a loaded session. `pytest --accept` writes it.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.errors import encode_error
from babelgate.adapters.agent_client.write.session import session_updates
from babelgate.adapters.agent_client.write.turn import TurnWriter
from babelgate.canonical import Record, Task, TaskState
from babelgate.canonical.event import RunCreated
from tests.goldens import CASES, GOLDEN, compare, log_of

THREAD = "11111111-1111-4111-8111-111111111111"
FORMS = w.Elicitations(form={}, url={})


def url_of(blob: str) -> str:
    return f"http://gateway/agent-client/echo/files/{blob}"


def turn(log: list[Record], run_id: str, elicitation: w.Elicitations | None) -> Iterator[Any]:
    """Yield the updates of a turn, and its result or error."""
    task_id = next(record.task_id for record in log if record.task_id) or ""
    task = Task(
        task_id=task_id,
        thread_id=THREAD,
        agent="echo",
        state=TaskState.WORKING,
        created_at=0,
        changed_at=0,
        first_seq=1,
        last_seq=1,
    )
    writer = TurnWriter(task, run_id, url_of, elicitation)
    for record in log:
        yield from writer.write(record)
    if writer.is_paused and not writer.has_ended:
        writer.pause()
    if writer.fault is not None:
        yield {"error": {**encode_error(writer.fault), "own": writer.own_members()}}
    elif writer.result is not None:
        yield {"result": writer.result}


def written(log: list[Record]) -> Iterator[Any]:
    for created in [record.event for record in log if isinstance(record.event, RunCreated)]:
        for elicitation in (None, FORMS):
            yield {"turn": created.run_id, "forms": elicitation is not None}
            yield from turn(log, created.run_id, elicitation)
    yield {"load": THREAD}
    yield from session_updates(log, frozenset(), url_of)


@pytest.mark.parametrize("case", CASES)
def test_the_updates_of_a_log_match_the_golden_file(case: str, accept: bool) -> None:
    lines = [json.dumps(each, ensure_ascii=False) for each in written(log_of(case))]
    compare(GOLDEN / case / "agent-client.jsonl", "\n".join(lines) + "\n", accept)
