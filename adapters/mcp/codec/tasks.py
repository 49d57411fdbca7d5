"""Tasks of the extension `io.modelcontextprotocol/tasks`. Each is a task of the gateway, under the same id."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from babelgate.adapters.mcp.errors import INTERNAL
from babelgate.canonical import Fault, Task, TaskState
from babelgate.canonical.fault import BLAME
from babelgate.canonical.value import JsonObject

EXTENSION: Final = "io.modelcontextprotocol/tasks"

STATES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "working",
    TaskState.WORKING: "working",
    TaskState.CANCELLING: "working",
    TaskState.INPUT_REQUIRED: "input_required",
    TaskState.AUTH_REQUIRED: "input_required",
    # SEP-2663, Errors: a failed tool is a result with an error.
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "completed",
    TaskState.REJECTED: "completed",
    TaskState.CANCELLED: "cancelled",
}

_POLL: Final = 500
"""Interval at which clients are asked to poll a task, in milliseconds. Chosen."""


def encode_task(task: Task, state: TaskState) -> JsonObject:
    """Return a task with the given state as the JSON object of the tasks extension."""
    return {
        "taskId": task.task_id,
        "status": STATES[state],
        "createdAt": _time(task.created_at),
        "lastUpdatedAt": _time(task.changed_at),
        "ttlMs": None,
        "pollIntervalMs": _POLL,
    }


def encode_error(fault: Fault | None) -> JsonObject | None:
    """Return the error of a task that failed because of the gateway (SEP-2663, Errors). Return None for other faults,
    because the failure of an agent is a tool result."""
    if fault is None or BLAME[fault.code] != "us":
        return None
    return {"code": INTERNAL, "message": fault.message}


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
