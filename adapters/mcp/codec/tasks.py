"""Tasks of the extension `io.modelcontextprotocol/tasks`, which are the tasks of the gateway."""

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
"""Poll interval that clients are sent, in milliseconds."""


def encode_task(task: Task, state: TaskState) -> JsonObject:
    """Return the task in its wire form."""
    return {
        "taskId": task.task_id,
        "status": STATES[state],
        "createdAt": _time(task.created_at),
        "lastUpdatedAt": _time(task.changed_at),
        "ttlMs": None,
        "pollIntervalMs": _POLL,
    }


def encode_error(fault: Fault | None) -> JsonObject | None:
    """Return the error of a task for a fault of the gateway, which is not a tool's result. Return None for other
    faults. SEP-2663, Errors."""
    if fault is None or BLAME[fault.code] != "us":
        return None
    return {"code": INTERNAL, "message": fault.message}


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
