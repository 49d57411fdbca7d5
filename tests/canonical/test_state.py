"""Tables of the transitions of tasks and runs."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import pytest

from babelgate.canonical import RunStatus, TaskState
from babelgate.canonical.state import (
    ENDED,
    RUN_TRANSITIONS,
    TASK_TRANSITIONS,
    TERMINAL,
    WAITING,
    can_become,
    can_run_become,
)

State = TypeVar("State", bound=StrEnum)


def reachable(table: Mapping[State, frozenset[State]], start: State) -> set[State]:
    found, new = {start}, [start]
    while new:
        new = [then for then in table[new.pop()] if then not in found] + new
        found.update(new)
    return found


def test_the_tables_name_exactly_the_states():
    assert set(TASK_TRANSITIONS) == set(TaskState)
    assert set(RUN_TRANSITIONS) == set(RunStatus)
    assert {then for thens in TASK_TRANSITIONS.values() for then in thens} <= set(TaskState)
    assert {then for thens in RUN_TRANSITIONS.values() for then in thens} <= set(RunStatus)


@pytest.mark.parametrize("state", TaskState)
def test_only_terminal_task_states_are_final(state: TaskState):
    assert (not TASK_TRANSITIONS[state]) == (state in TERMINAL)


@pytest.mark.parametrize("status", RunStatus)
def test_only_ended_run_statuses_are_final(status: RunStatus):
    assert (not RUN_TRANSITIONS[status]) == (status in ENDED)


@pytest.mark.parametrize("state", sorted(set(TaskState) - TERMINAL))
def test_every_open_task_can_reach_every_end(state: TaskState):
    assert reachable(TASK_TRANSITIONS, state) >= TERMINAL


def test_every_state_is_reachable_from_the_first_one():
    assert reachable(TASK_TRANSITIONS, TaskState.SUBMITTED) == set(TaskState)
    assert reachable(RUN_TRANSITIONS, RunStatus.PENDING) == set(RunStatus)


@pytest.mark.parametrize("state", sorted(TaskState))
def test_only_a_working_task_can_wait(state: TaskState):
    assert any(can_become(state, waiting) for waiting in WAITING) == (state is TaskState.WORKING)


def test_a_cancelling_task_cannot_work_again():
    assert not can_become(TaskState.CANCELLING, TaskState.WORKING)
    assert not any(can_become(TaskState.CANCELLING, waiting) for waiting in WAITING)


def test_only_a_running_run_may_restart():
    assert [state for state in TaskState if can_become(state, state)] == []
    assert [status for status in RunStatus if can_run_become(status, status)] == [RunStatus.RUNNING]
