"""Stacks of the threads and tasks of this process, without values: file, line and function only."""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Final

_MAX_TASKS: Final = 1000
"""Maximum number of tasks that are listed. Chosen: each has about ten lines."""
_TRIES: Final = 5
"""Attempts to list the tasks, which the event loop changes meanwhile."""

try:
    import resource
except ImportError:  # Windows
    resource = None


def render_stacks(loop: asyncio.AbstractEventLoop) -> bytes:
    """Return the process's limits, and the stacks of its threads and of an event loop's tasks, as text.

    Any thread may call this, also while the loop is blocked.
    """
    tasks = _tasks_of(loop)
    lines = [f"process {os.getpid()}", "", "Limits", *(f"{name}: {text}" for name, text in read_limits().items())]
    names = {each.ident: each.name for each in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage] - there is no other way
        lines += ["", f"Thread {names.get(ident, ident)}", *_describe(traceback.walk_stack(frame), is_reversed=True)]
    for task in tasks[:_MAX_TASKS]:
        frames = ((frame, frame.f_lineno) for frame in task.get_stack())
        lines += ["", f"Task {task.get_name()}", *_describe(frames)]
    if len(tasks) > _MAX_TASKS:
        lines += ["", f"{len(tasks) - _MAX_TASKS} more tasks"]
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def read_limits() -> dict[str, str]:
    """Return the resource limits of this process (`ulimit`), as soft and hard limit."""
    if resource is None:
        return {}
    names = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    limits = {name.removeprefix("RLIMIT_").lower(): resource.getrlimit(getattr(resource, name)) for name in names}
    return {name: " ".join(map(_format_limit, pair)) for name, pair in limits.items()}


def _format_limit(value: int) -> str:
    return "unlimited" if resource is not None and value == resource.RLIM_INFINITY else str(value)


def _tasks_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    for _ in range(_TRIES):
        try:
            return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
        except RuntimeError:  # the set changed during the iteration
            continue
    return []


def _describe(frames: Iterable[tuple[FrameType, int]], *, is_reversed: bool = False) -> Iterator[str]:
    """Yield a line for each frame, the innermost last; `is_reversed` means that the frames begin with the innermost.
    The lines of the source are omitted: they may contain secrets."""
    lines = [f"  {frame.f_code.co_filename}:{number} {frame.f_code.co_name}" for frame, number in frames]
    yield from reversed(lines) if is_reversed else lines
