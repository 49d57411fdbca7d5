"""Tool results and changes of state that a server repeats are read once, although their JSON may differ in form."""

from typing import Any

import pytest

from babelgate.adapters.a2a.frameworks.framework import ToolUse
from babelgate.adapters.a2a.read.activity import Activity
from babelgate.adapters.a2a.read.run_state import Habits, RunState
from babelgate.canonical.event import Custom, ToolEnded
from babelgate.canonical.value import Json
from tests.adapters.a2a.replies import RUN

REPEATED: Any = pytest.mark.parametrize(
    ("first", "second", "is_repeated"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (1, 1.0, True),
        ({"rows": [{"n": 3}]}, {"rows": [{"n": 3.0}]}, True),
        (0, -0.0, True),
        (2**53, float(2**53), True),
        (2**53 + 1, float(2**53), False),
        (1, 1.5, False),
        (1, True, False),
        (1, "1", False),
        ([1, 2], [2, 1], False),
    ],
)


def activity() -> tuple[RunState, Activity]:
    run = RunState(RUN, Habits())
    return run, Activity(run)


@REPEATED
def test_a_repeated_result_of_a_tool_is_read_once(first: Json, second: Json, is_repeated: bool) -> None:
    run, reader = activity()
    for value in (first, second):
        reader.use([ToolUse("c1", "count", ended=True, value=value)])
    expected = [first] if is_repeated else [first, second]
    assert [event.output for event in run.events if isinstance(event, ToolEnded)] == expected


@REPEATED
def test_a_recorded_result_of_a_tool_is_not_read_again(first: Json, second: Json, is_repeated: bool) -> None:
    run, reader = activity()
    reader.recall(ToolEnded(call_id="c1", name="count", output=first), is_own=False)
    reader.use([ToolUse("c1", "count", ended=True, value=second)])
    assert len(run.events) == (0 if is_repeated else 2)


@REPEATED
def test_a_repeated_change_of_state_is_read_once(first: Json, second: Json, is_repeated: bool) -> None:
    run, reader = activity()
    for value in (first, second):
        reader.add_states([("count", value)], "m1", is_shown=False)
    expected = [first] if is_repeated else [first, second]
    assert [event.value for event in run.events if isinstance(event, Custom)] == expected
