"""Golden files of AIEF, one for each log. A diff is a change of the wire format, and must be reviewed.

`canonical.json` is the log. `aief-v1.json` is the task with its steps, and with the files whose contents are in the
log. `pytest --accept` writes the latter.
"""

import json

import pytest

from babelgate.adapters.aief.codec import contents
from babelgate.adapters.aief.write.task import TaskView
from babelgate.canonical import Record
from tests.goldens import CASES, GOLDEN, compare, log_of

THREAD = "11111111-1111-4111-8111-111111111111"


def written(log: list[Record]) -> str:
    view = TaskView(THREAD, "echo", log)
    assert view.is_visible
    task = view.task_with_steps().model_dump(mode="json")
    files = {each["artifact_id"]: pieces(view, each["artifact_id"]) for each in task["artifacts"]}
    return json.dumps({"task": task, "files": files}, indent=2, ensure_ascii=False) + "\n"


def pieces(view: TaskView, artifact_id: str) -> list[str]:
    artifact = view.artifact(artifact_id)
    assert artifact is not None
    return [f"blob {piece}" if isinstance(piece, str) else piece.decode() for piece in contents(artifact)]


@pytest.mark.parametrize("case", CASES)
def test_the_task_of_a_log_matches_the_golden(case: str, accept: bool) -> None:
    path, text = GOLDEN / case / "aief-v1.json", written(log_of(case))
    compare(path, text, accept)
