"""Golden files of MCP's results: a difference is a change of the wire format.

For each case, `canonical.json` is the log. `mcp.json` has the progress and the result of a call of each of its runs,
then of one call for all of them; `pytest --accept` writes it.
"""

import json
from typing import Any

import pytest

from babelgate.adapters.mcp.write.result import ResultWriter
from babelgate.canonical import Record, Task, TaskState
from babelgate.canonical.event import RunCreated
from tests.goldens import CASES, GOLDEN, compare, log_of


def call_of(log: list[Record], since: int, run_id: str | None, *, whole: bool = False) -> dict[str, Any]:
    task_id = next(record.task_id for record in log if record.task_id) or ""
    thread_id = "11111111-1111-4111-8111-111111111111"
    task = Task(
        task_id=task_id,
        thread_id=thread_id,
        agent="echo",
        state=TaskState.WORKING,
        created_at=0,
        changed_at=0,
        first_seq=1,
        last_seq=1,
    )
    writer = ResultWriter(task, since, run_id, whole=whole)
    progress: list[str] = []
    for record in log:
        progress += [each.text for each in writer.write(record)]
        if writer.has_ended and not whole:
            break
    return {"progress": progress, "result": writer.result()}


def written(log: list[Record]) -> str:
    starts = [(record.seq, record.event.run_id) for record in log if isinstance(record.event, RunCreated)]
    calls = [call_of(log, seq - 1, run_id) for seq, run_id in starts]
    return json.dumps([*calls, call_of(log, 0, None, whole=True)], indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_the_results_of_a_log_match_the_golden_file(case: str, accept: bool) -> None:
    path, text = GOLDEN / case / "mcp.json", written(log_of(case))
    compare(path, text, accept)
