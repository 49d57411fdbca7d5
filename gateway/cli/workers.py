"""Workers: gateways that serve one port together. Each is a process, and a node of one cluster.

The first process serves nothing itself. It starts the workers, restarts one that has ended, and forwards the signals
that end all. It forks, so imported modules are in memory once. Therefore it has no threads: a forked process would lack
them, but have their locks.
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
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, NoReturn

import click

from babelgate.canonical.printable import one_line
from babelgate.gateway.cli.errors import FAILED, USAGE, CliError
from babelgate.gateway.cli.listener import claim, claim_setting
from babelgate.gateway.cli.log import set_up_logging
from babelgate.gateway.cli.stop import release_hang_up
from babelgate.gateway.settings.listens import listens_of, with_port
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.telemetry.folder import private_folder

log = logging.getLogger("babelgate.workers")

_EARLY_END: Final = 10.0
"""Seconds after its start within which the end of a worker counts as early. Chosen."""
_MAX_EARLY_ENDS: Final = 5
"""Number of early ends in a row after which a worker is not started again. Chosen."""
_RESTART_DELAY: Final = 0.5
"""Seconds until a worker is started again after an early end. They are doubled after each further early end. Chosen."""
_KILL_DELAY: Final = 2.0
"""Seconds after `shutdown.grace`, or after a second signal, until a worker that has not ended is killed. Chosen, not
measured."""
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_SET_PDEATHSIG: Final = 1
"""Number of the option PR_SET_PDEATHSIG in linux/prctl.h, by which a worker gets a signal when its parent ends."""

Work = Callable[[Settings, Callable[[str], None], bool], object]
"""Function that serves until a signal arrives, in a worker.

It calls its second argument with the text to show, once callers can connect. The third argument is true if the other
workers have reloaded the configuration, so that it must be read again.
"""


def serve_by_workers(settings: Settings, work: Work) -> None:
    """Serve with `settings.workers` processes until a signal arrives. Each calls `work`. Raises CliError on another
    system than Linux, and if no worker starts or one ends again and again."""
    if sys.platform != "linux":
        raise CliError(
            "workers: only Linux shares a port out among processes. Elsewhere start several gateways with "
            "cluster: true, each on its own port, and a proxy in front of them.",
            code=USAGE,
        )
    set_up_logging(settings.log_level, buffered=False, is_json=settings.log_format == "json", node=settings.node)
    with ExitStack() as stack:
        place = stack.enter_context(claim(settings.host, settings.port))
        settings = settings.model_copy(update={"port": place.getsockname()[1]})
        places, bury = [place], None
        for name, value in listens_of(settings).items():
            if value is not None:
                places.append(stack.enter_context(claim_setting(name, value)))
                settings = with_port(settings, name, places[-1].getsockname()[1])
        if settings.telemetry.metrics.listen is not None:
            stack.enter_context(private_folder())
            bury = import_module("babelgate.gateway.telemetry.metrics").bury
        _Supervisor(settings, work, places, bury).run()


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int = 0
    """Process id; 0 if the worker is not running."""
    born: float = 0.0
    """Time of the last start, in seconds of the monotonic clock."""
    due: float | None = None
    """Time of the next start, in seconds of the monotonic clock; None if no start is due."""
    early_ends: int = 0
    """Number of early ends in a row (`_EARLY_END`)."""
    output: bytearray = field(default_factory=bytearray)
    """Text that the worker has sent, to be shown on stdout once all workers are ready."""
    is_ready: bool = False

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.pid})"


class _Supervisor:
    def __init__(
        self,
        settings: Settings,
        work: Work,
        places: Sequence[socket.socket],
        bury_metrics: Callable[[int], None] | None = None,
    ) -> None:
        """Create the supervisor. `places` are the sockets that reserve the ports. `bury_metrics` removes the gauges of
        a process that has ended; None if there are no metrics."""
        self._settings = settings
        self._work = work
        self._places = places
        self._bury_metrics = bury_metrics
        self._workers = [_Worker(number) for number in range(1, settings.workers + 1)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._stopping = False
        self._is_reloaded = False
        """True after the first SIGHUP, so that workers that start later read the configuration again."""
        self._kill_at: float | None = None
        """Time at which workers that have not ended are killed, in seconds of the monotonic clock; None if no stop is
        requested."""
        self._shown = False
        self._problem: CliError | None = None

    def run(self) -> None:
        """Start and restart the workers until a signal stops all of them. Raises CliError if no worker starts, or if
        one ends again and again."""
        gc.collect()
        gc.freeze()  # memory that the collector does not touch is not copied
        with self._watch_signals(), self._selector:
            # Start the first worker alone: it creates the tables, and if it cannot start, the others cannot either.
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
    def _watch_signals(self) -> Generator[None]:
        reads, wake = socket.socketpair()
        with reads, wake:
            reads.setblocking(False)
            wake.setblocking(False)
            self._selector.register(reads, selectors.EVENT_READ)
            signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
            for number in (*_STOPS, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, lambda number, _: self._signals.append(number))
            release_hang_up()
            try:
                yield
            finally:
                signal.set_wakeup_fd(-1)

    def _read(self, worker: _Worker | None, descriptor: int) -> None:
        """Read a descriptor that is ready. A worker writes its text and closes the descriptor once callers can connect
        to it.

        Without a worker, the descriptor is that of signals: it is only emptied.
        """
        data = os.read(descriptor, 2**16)
        if worker is None or data:
            if worker is not None:
                worker.output += data
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if not worker.output:  # the worker has ended
            return
        worker.is_ready = True
        log.info("%s is ready", worker)
        for other in self._workers:
            if other.born == 0 and other.due is None and not self._stopping:
                other.due = 0.0
        if not self._shown and all(each.is_ready for each in self._workers):
            self._shown = True
            click.echo(worker.output.decode())

    def _obey(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGHUP:
                self._reload()
            elif number != signal.SIGCHLD:
                log.info(
                    "signal received: the workers finish their runs and stop signal=%s", signal.Signals(number).name
                )
                self._stop()

    def _reload(self) -> None:
        """Pass SIGHUP to all workers. Those that start later read the configuration again."""
        self._is_reloaded = True
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGHUP)

    def _stop(self) -> None:
        """Stop all workers, and kill those that have not ended by the deadline. A second call shortens the deadline to
        two seconds."""
        self._kill_at = time.monotonic() + (
            _KILL_DELAY if self._stopping else self._settings.shutdown.grace + _KILL_DELAY
        )
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
        worker.output.clear()
        # Until the child has set its own handlers, the inherited handlers would swallow a signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_STOPS, signal.SIGHUP))
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
            signal.pthread_sigmask(
                signal.SIG_SETMASK, {*mask, signal.SIGHUP}
            )  # the worker has a handler when it serves
            os.setpgid(0, 0)  # Ctrl-C is for the parent process, which forwards it once
            ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # the parent ended before prctl
                os._exit(FAILED)
            for key in [*self._selector.get_map().values()]:
                os.close(key.fd)
            for place in self._places:
                place.close()
            logging.getLogger().handlers.clear()
            name = self._settings.node and f"{self._settings.node}-{worker.number}"
            self._work(
                self._settings.model_copy(update={"node": name}), lambda text: _tell(tells, text), self._is_reloaded
            )
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
        """Kill the workers that did not end by the deadline, because something in them blocks all of their threads."""
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
        if self._bury_metrics is not None:
            self._bury_metrics(worker.pid)
        worker.pid = 0
        if self._stopping:
            log.info("%s %s", who, how)
            if code and (worker.is_ready or code != -signal.SIGTERM) and self._problem is None:
                self._problem = CliError(f"{who} {how} during shutdown")
            return
        if not any(each.is_ready for each in self._workers):  # the worker has reported the reason
            self._problem = CliError(f"{who} {how}: the gateway could not be started", code=max(code, FAILED))
            self._stop()
            return
        worker.is_ready = False
        lived = time.monotonic() - worker.born
        worker.early_ends = worker.early_ends + 1 if lived < _EARLY_END else 0
        if worker.early_ends == _MAX_EARLY_ENDS:
            self._problem = CliError(
                f"worker {worker.number} {how}, and has ended {_MAX_EARLY_ENDS} times in a row within "
                f"{_EARLY_END:.0f} seconds of its start: the gateway stops. The log lines above have the reason."
            )
            self._stop()
            return
        pause = _RESTART_DELAY * 2 ** (worker.early_ends - 1) if worker.early_ends else 0.0
        worker.due = time.monotonic() + pause
        log.warning("%s %s: it is started again%s", who, how, f" in {pause:g} seconds" if pause else "")


def _tell(tells: int, text: str) -> None:
    with suppress(BrokenPipeError), os.fdopen(tells, "wb") as stream:
        stream.write(text.encode())
