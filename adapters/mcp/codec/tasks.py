"""Tasks of the extension `io.modelcontextprotocol/tasks`, which are those of the gateway."""

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
    # A tool that failed is a result that says so (SEP-2663, Errors).
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "completed",
    TaskState.REJECTED: "completed",
    TaskState.CANCELLED: "cancelled",
}

_POLL: Final = 500
"""Milliseconds between two questions, as clients are told."""


def encode_task(task: Task, state: TaskState) -> JsonObject:
    return {
        "taskId": task.task_id,
        "status": STATES[state],
        "createdAt": _time(task.created_at),
        "lastUpdatedAt": _time(task.changed_at),
        "ttlMs": None,
        "pollIntervalMs": _POLL,
    }


def encode_error(fault: Fault | None) -> JsonObject | None:
    """SEP-2663, Errors: of what went wrong with the gateway, and not with the tool."""
    if fault is None or BLAME[fault.code] != "us":
        return None
    return {"code": INTERNAL, "message": fault.message}


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
