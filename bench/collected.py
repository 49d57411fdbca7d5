"""The command `babelgate`, which records what stops its event loop: runs of the garbage collector, and long steps.

It appends lines to the file that BENCH_PAUSES names. All times are CPU time of the thread, in seconds: they exclude the
time for which other processes had the core.
"""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = "BENCH_PAUSES"
_TICK: Final = 0.005
"""Seconds between two looks at the event loop. A step is long if it takes more CPU time than that."""
_LOOP: Final = "loop"


class Collection(NamedTuple):
    """One run of the collector."""

    generation: int
    cpu: float
    """CPU time of the run in seconds."""
    freed: int
    """Number of objects that only the collector could free."""


class Pauses(NamedTuple):
    """Pauses of a process."""

    collections: list[Collection]
    steps: list[float]
    """CPU time of each long step of the event loop, in seconds. It is too long by up to two ticks."""


class Recorder:
    """Recorder of the pauses of this process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._begun: dict[int, float] = {}

    def note_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Note a run of the collector: a callback of `gc.callbacks`."""
        thread = threading.get_ident()
        if phase == "start":
            self._begun[thread] = time.thread_time()
        else:
            cpu = time.thread_time() - self._begun.pop(thread)
            self._write(f"{info['generation']} {cpu:.6f} {info['collected']}")

    def watch(self, loop: asyncio.AbstractEventLoop, before: float | None = None) -> None:
        """Note the long steps of an event loop from now on. `before` is the CPU time of its thread at the last look."""
        now = time.thread_time()
        if before is not None and now - before > _TICK:
            self._write(f"{_LOOP} {now - before:.6f}")
        loop.call_later(_TICK, self.watch, loop, now)

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def count(path: Path) -> int:
    """Return the number of lines in a file of pauses."""
    return len(path.read_text(encoding="ascii").splitlines())


def read(path: Path, skipped: int = 0) -> Pauses:
    """Return the pauses in a file, without the first `skipped` lines."""
    rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()[skipped:]]
    collections = [Collection(int(row[0]), float(row[1]), int(row[2])) for row in rows if row[0] != _LOOP]
    return Pauses(collections, [float(row[1]) for row in rows if row[0] == _LOOP])


def _main() -> None:
    from babelgate.gateway.cli import main

    serve: Any = import_module("babelgate.gateway.cli.serve")  # its package has a function of this name, too
    recorder = Recorder(os.environ[FILE])
    gc.callbacks.append(recorder.note_collection)
    make: Callable[[], asyncio.AbstractEventLoop] = serve.new_event_loop

    def make_watched() -> asyncio.AbstractEventLoop:
        loop = make()
        loop.call_soon(recorder.watch, loop)
        return loop

    serve.new_event_loop = make_watched
    main()


if __name__ == "__main__":
    _main()
