"""Workers: gateways that serve one port together, each a process and a node of one cluster. The process that was
started serves nothing itself: it starts them, starts one again that has ended, and hands on the signals that end all.

It forks, so what was imported is in memory once. So it has no threads: a fork would be without them, and with their
locks.
"""

import ctypes
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NoReturn

import click

from babelgate.canonical.printable import one_line
from babelgate.gateway.cli.errors import FAILED, USAGE, CliError
from babelgate.gateway.cli.listener import claim
from babelgate.gateway.cli.log import set_up_logging
from babelgate.gateway.settings.model import Settings

log = logging.getLogger("babelgate.workers")

_SOON: Final = 10.0
"""Seconds: a worker that ends earlier after its start has ended at once."""
_MOST_ENDS: Final = 5
"""Times in a row that a worker may end at once. Then it is no use to start it again."""
_PAUSE: Final = 0.5
"""Seconds before one that has ended at once is started again; twice as many each time."""
_LATE: Final = 2.0
"""Seconds after which a worker that should have ended is killed. Chosen, not measured."""
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_SET_PDEATHSIG: Final = 1
"""PR_SET_PDEATHSIG in linux/prctl.h."""

Work = Callable[[Settings, Callable[[str], None]], object]
"""Serve until a signal, and tell what is to be shown when it can be called."""


def serve_by_workers(settings: Settings, work: Work) -> None:
    """Until a signal. Raises CliError."""
    if sys.platform != "linux":
        raise CliError(
            "workers: only Linux shares a port out among processes. Elsewhere start several gateways with "
            "cluster: true, each on a port of its own, and a proxy in front of them.",
            code=USAGE,
        )
    set_up_logging(settings.log_level, buffered=False)
    with claim(settings.host, settings.port) as place:
        _Supervisor(settings.model_copy(update={"port": place.getsockname()[1]}), work, place).run()


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int = 0
    """0 = it does not run."""
    born: float = 0.0
    """By the steady clock, in seconds, as `due`."""
    due: float | None = None
    """When it is to be started."""
    ended_at_once: int = 0
    """Times in a row."""
    told: bytearray = field(default_factory=bytearray)
    """What it has to show."""
    is_ready: bool = False

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.pid})"


class _Supervisor:
    def __init__(self, settings: Settings, work: Work, place: socket.socket) -> None:
        self._settings = settings
        self._work = work
        self._place = place
        self._workers = [_Worker(number) for number in range(1, settings.workers + 1)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._stopping = False
        self._kill_at: float | None = None
        """When workers that have not ended are killed, by the steady clock."""
        self._shown = False
        self._problem: CliError | None = None

    def run(self) -> None:
        """Raises CliError."""
        gc.collect()
        gc.freeze()  # what is not looked at is not copied
        with self._hear_signals(), self._selector:
            # The first one alone: it makes the tables, and where it cannot start the others could not either.
            self._workers[0].due = 0.0
            while not self._stopping or any(worker.pid for worker in self._workers):
                self._start_those_due()
                for key, _ in self._selector.select(self._next_due()):
                    self._read(key.data, key.fd)
                self._obey()
                self._reap()
                self._kill_late()
        if self._problem is not None:
            raise self._problem

    @contextmanager
    def _hear_signals(self) -> Generator[None]:
        ours, wake = socket.socketpair()
        with ours, wake:
            ours.setblocking(False)
            wake.setblocking(False)
            self._selector.register(ours, selectors.EVENT_READ)
            signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
            for number in (*_STOPS, signal.SIGCHLD):
                signal.signal(number, lambda number, _: self._signals.append(number))
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as one gateway does; the workers inherit it
            try:
                yield
            finally:
                signal.set_wakeup_fd(-1)

    def _read(self, worker: _Worker | None, descriptor: int) -> None:
        """What a worker tells before it can be called; a signal only wakes up."""
        said = os.read(descriptor, 2**16)
        if worker is None or said:
            if worker is not None:
                worker.told += said
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if not worker.told:  # it has ended
            return
        worker.is_ready = True
        log.info("%s is ready", worker)
        for other in self._workers:
            if other.born == 0 and other.due is None and not self._stopping:
                other.due = 0.0
        if not self._shown and all(each.is_ready for each in self._workers):
            self._shown = True
            click.echo(worker.told.decode())

    def _obey(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number != signal.SIGCHLD:
                log.info("%s: the workers end what they are at, and then themselves", signal.Signals(number).name)
                self._stop()

    def _stop(self) -> None:
        """A second time, they end within a second."""
        self._kill_at = time.monotonic() + (_LATE if self._stopping else self._settings.shutdown.grace + _LATE)
        self._stopping = True
        for worker in self._workers:
            worker.due = None
            if worker.pid:
                os.kill(worker.pid, signal.SIGTERM)

    # Start

    def _next_due(self) -> float | None:
        due = [worker.due for worker in self._workers if worker.due is not None]
        if self._kill_at is not None:
            due.append(self._kill_at)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start_those_due(self) -> None:
        for worker in self._workers:
            if worker.due is not None and worker.due <= time.monotonic():
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        reads, tells = os.pipe()
        worker.due, worker.born, worker.is_ready = None, time.monotonic(), False
        worker.told.clear()
        # In a child that has not put its own in their place yet, our handlers would swallow a signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        pid = os.fork()
        if pid == 0:
            self._become(worker, tells, before)
        os.close(tells)
        worker.pid = pid
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._selector.register(reads, selectors.EVENT_READ, worker)
        log.info("%s starts", worker)

    def _become(self, worker: _Worker, tells: int, mask: set[int]) -> NoReturn:
        code = FAILED
        try:
            parent = os.getppid()
            signal.set_wakeup_fd(-1)
            for number in (*_STOPS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.setpgid(0, 0)  # Ctrl-C is for who started it, and is handed on once
            ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it was gone before
                os._exit(FAILED)
            for key in [*self._selector.get_map().values()]:
                os.close(key.fd)
            self._place.close()
            logging.getLogger().handlers.clear()
            name = self._settings.node and f"{self._settings.node}-{worker.number}"
            self._work(self._settings.model_copy(update={"node": name}), lambda text: _tell(tells, text))
        except CliError as error:
            for line in error.lines:
                click.echo(f"babelgate: {one_line(line)}", err=True)
            code = error.code
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    # End

    def _kill_late(self) -> None:
        """A worker ends by itself within the grace, unless something in it does not let any of its threads run."""
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        self._kill_at = None
        for worker in self._workers:
            if worker.pid:
                log.warning("%s did not stop in time and is killed", worker)
                os.kill(worker.pid, signal.SIGKILL)

    def _reap(self) -> None:
        for worker in self._workers:
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._bury(worker, os.waitstatus_to_exitcode(status))

    def _bury(self, worker: _Worker, code: int) -> None:
        who, how = (
            str(worker),
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}",
        )
        worker.pid = 0
        if self._stopping:
            log.info("%s %s", who, how)
            if code and (worker.is_ready or code != -signal.SIGTERM) and self._problem is None:
                self._problem = CliError(f"{who} {how} when it was to stop")
            return
        if not any(each.is_ready for each in self._workers):  # which has said why
            self._problem = CliError(f"{who} {how}: the gateway could not be started", code=max(code, FAILED))
            self._stop()
            return
        worker.is_ready = False
        lived = time.monotonic() - worker.born
        worker.ended_at_once = worker.ended_at_once + 1 if lived < _SOON else 0
        if worker.ended_at_once == _MOST_ENDS:
            self._problem = CliError(
                f"worker {worker.number} {how}, and has ended {_MOST_ENDS} times in a row within {_SOON:.0f} seconds "
                "of its start: the gateway gives up. What it said stands above."
            )
            self._stop()
            return
        pause = _PAUSE * 2 ** (worker.ended_at_once - 1) if worker.ended_at_once else 0.0
        worker.due = time.monotonic() + pause
        log.warning("%s %s: it is started again%s", who, how, f" in {pause:g} seconds" if pause else "")


def _tell(tells: int, text: str) -> None:
    with suppress(BrokenPipeError), os.fdopen(tells, "wb") as stream:
        stream.write(text.encode())
