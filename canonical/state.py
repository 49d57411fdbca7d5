"""State machines of tasks and runs: the allowed transitions. This module is the only place that defines them; `make
docs` generates the diagram in the docs from these tables."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


TERMINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.REJECTED})
WAITING: Final = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
"""States of a task that is paused on a question: it has an open interrupt and no active run."""

TASK_TRANSITIONS: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    TaskState.SUBMITTED: frozenset({TaskState.WORKING, TaskState.CANCELLING, *TERMINAL}),
    TaskState.WORKING: frozenset({*WAITING, TaskState.CANCELLING, *TERMINAL}),
    TaskState.INPUT_REQUIRED: frozenset({TaskState.WORKING, TaskState.CANCELLING, *TERMINAL}),
    TaskState.AUTH_REQUIRED: frozenset({TaskState.WORKING, TaskState.CANCELLING, *TERMINAL}),
    TaskState.CANCELLING: TERMINAL,
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELLED: frozenset(),
    TaskState.REJECTED: frozenset(),
}


class RunStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    """Status of a run that stopped at a question. The answer starts the next run of the same task."""


ENDED: Final = frozenset({RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.TIMEOUT, RunStatus.CANCELLED, RunStatus.PAUSED})

ERRED: Final = frozenset({RunStatus.ERROR, RunStatus.TIMEOUT})

RUN_TRANSITIONS: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.PENDING: frozenset({RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.ERROR}),
    # A run that is started again after a crash stays running under the next attempt.
    RunStatus.RUNNING: frozenset({RunStatus.RUNNING, *ENDED}),
    RunStatus.SUCCESS: frozenset(),
    RunStatus.ERROR: frozenset(),
    RunStatus.TIMEOUT: frozenset(),
    RunStatus.CANCELLED: frozenset(),
    RunStatus.PAUSED: frozenset(),
}


class RunReason(StrEnum):
    """Reason why a run ended. Together with the status it distinguishes ends that some protocols show alike."""

    DONE = "done"
    INPUT = "input"
    AUTH = "auth"
    CALLER = "caller"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"
    FAULT = "fault"


def can_become(now: TaskState, then: TaskState) -> bool:
    return then in TASK_TRANSITIONS[now]


def can_run_become(now: RunStatus, then: RunStatus) -> bool:
    return then in RUN_TRANSITIONS[now]
