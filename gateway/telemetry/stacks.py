"""Text page with the stacks of all threads and tasks of this process: file, line and function, without any values."""

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
"""Number of attempts to list the tasks. Chosen: an attempt fails if the event loop adds or removes one meanwhile."""

try:
    import resource
except ImportError:  # Windows
    resource = None


def render_stacks(loop: asyncio.AbstractEventLoop) -> bytes:
    """Return a text with the limits of the process, the stacks of its threads, and the stacks of the tasks of `loop`.

    Any thread may call this, also while the loop is blocked."""
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
    """Return the resource limits of this process (`ulimit`) by name, such as `nofile`. Each value is the soft and the
    hard limit."""
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
    """Yield a line for each frame of a stack, the innermost last. The source code is omitted, because it may contain
    secrets.

    `is_reversed` means that `frames` begin with the innermost one."""
    lines = [f"  {frame.f_code.co_filename}:{number} {frame.f_code.co_name}" for frame, number in frames]
    yield from reversed(lines) if is_reversed else lines
