"""Processes of the command `babelgate`, forked from a parent process that has imported everything.

A fork starts in 0.01 s. A new process takes 2 s, nearly all of it for imports.
`python -m tests.gateway.forking FD` is the parent process. A job is a message on the socket FD, with four files.
"""

import asyncio
import atexit
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parents[2]
_IMPORTED: Final = ("add", "bench", "check", "embedded", "record", "run", "serve", "transfer", "validate")
_RELAY: Final = Path(__file__).parent / "relay.py"
_EMBEDDED: Final = "babelgate.gateway.cli.embedded"
_MOST_BYTES: Final = 2**20
"""Maximum size of one job, in bytes."""
_BOUND: Final = 30
"""Seconds within which the parent process must end."""


# The test's side


class Forked:
    """Subset of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: IO[bytes], stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[str] | None = stdout
        self.stderr: IO[str] | None = stderr
        self._status = status

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code. Raise subprocess.TimeoutExpired if it is late."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"babelgate, process {self.pid}", timeout or 0)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    return None
            line = self._status.readline()
            self._status.close()
            self.returncode = int(line) if line else -signal.SIGKILL
        return self.returncode


def fork(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: int) -> Forked:
    """Start `babelgate` with these arguments in that folder. The caller must read its stdout and its stderr."""
    reports, status = os.pipe()
    out, stdout = os.pipe()
    errors, stderr = os.pipe()
    job = json.dumps({"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}).encode()
    try:
        socket.send_fds(_parent(os.getpid(), environment["PYTHONPATH"]), [job], [stdin, stdout, stderr, status])
    finally:
        for descriptor in (status, stdout, stderr):
            os.close(descriptor)
    answers = os.fdopen(reports, "rb", buffering=0)
    return Forked(int(answers.readline()), answers, os.fdopen(out), os.fdopen(errors))


@contextmanager
def forked_embedded_gateways() -> Generator[None]:
    """Fork the gateways that commands of this process start for their own use, instead of starting new processes."""
    import pytest  # the parent process does not need it

    start: Any = asyncio.create_subprocess_exec

    async def started(*arguments: Any, **options: Any) -> Any:
        if arguments != (sys.executable, "-m", _EMBEDDED):
            return await start(*arguments, **options)
        descriptor = _parent(os.getpid(), str(ROOT)).fileno()
        relay = (sys.executable, "-I", "-S", str(_RELAY), str(descriptor), _EMBEDDED)
        return await start(*relay, pass_fds=[descriptor], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", started)
        yield


@cache
def _parent(pid: int, path: str) -> socket.socket:
    """Start the parent process for this process (`pid`) and this PYTHONPATH (`path`). Return the socket that accepts
    its jobs. The parent process ends with this process."""
    control, child_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with child_control:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.forking", str(child_control.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[child_control.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, process, control)
    return control


def _end(process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    control.close()
    process.wait(_BOUND)


# The side of the parent process


class _Parent:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting: dict[int, int] = {}
        """Descriptor to which the exit code of a child is written, by its pid."""

    def next_child(self) -> Mapping[str, Any] | None:
        """Return the job in a child. Return None in the parent after the socket was closed."""
        signals, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(signals, False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(signals, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is not self._control:
                        os.read(signals, 4096)
                        self._reap()
                        continue
                    text, files, _, _ = socket.recv_fds(self._control, _MOST_BYTES, 4)
                    if not text:
                        self._end()
                        return None
                    if (pid := os.fork()) == 0:
                        signal.set_wakeup_fd(-1)
                        for descriptor in (signals, wake, *self._waiting.values()):
                            os.close(descriptor)
                        _become(files)
                        return json.loads(text)
                    *standard_files, status = files
                    for descriptor in standard_files:
                        os.close(descriptor)
                    self._waiting[pid] = status
                    _tell(status, pid)

    def _reap(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            report = self._waiting.pop(pid)
            _tell(report, os.waitstatus_to_exitcode(status))
            os.close(report)

    def _end(self) -> None:
        for pid in self._waiting:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _wake(*_: object) -> None:
    """Do nothing. Python writes to the wakeup file only for signals that have a handler."""


def _tell(to: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the reader has closed its end
        os.write(to, f"{number}\n".encode())


def _become(files: Sequence[int]) -> None:
    *standard_files, status = files
    for number, descriptor in enumerate(standard_files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.close(status)


def _serve(control: socket.socket) -> None:
    # Imports are shared by all forks, so import also what only some of them need.
    for name in _IMPORTED:
        import_module(f"babelgate.gateway.cli.{name}")
    import_module("babelgate.gateway.demo")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    job = _Parent(control).next_child()
    control.close()
    if job is None:
        return
    for number, handler in ((signal.SIGCHLD, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    sys.path[0] = job["folder"]
    sys.argv = [str(ROOT / "babelgate" / "__main__.py"), *job["arguments"]]
    import_module(job.get("module", "babelgate.gateway.cli")).main()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
