"""Processes of the command `babelgate` that are forks of one that has imported everything: each takes a hundredth of a
second to start, and not two seconds, nearly all of which go into imports.

`python -m tests.gateway.forking FD` is that one: a job is a message on the socket FD, with the four files that it gets.
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
"""Bytes of one job."""
_BOUND: Final = 30
"""Seconds in which the one that has imported everything ends."""


# The test's side


class Forked:
    """As much of a `subprocess.Popen` as tests ask for."""

    def __init__(self, pid: int, status: IO[bytes], stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[str] | None = stdout
        self.stderr: IO[str] | None = stderr
        self._status = status

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
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
    """`babelgate` with these arguments, in that folder. The caller reads both of its outputs."""
    told, status = os.pipe()
    out, stdout = os.pipe()
    errors, stderr = os.pipe()
    job = json.dumps({"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}).encode()
    try:
        socket.send_fds(_parent(os.getpid(), environment["PYTHONPATH"]), [job], [stdin, stdout, stderr, status])
    finally:
        for descriptor in (status, stdout, stderr):
            os.close(descriptor)
    answers = os.fdopen(told, "rb", buffering=0)
    return Forked(int(answers.readline()), answers, os.fdopen(out), os.fdopen(errors))


@contextmanager
def forked_embedded_gateways() -> Generator[None]:
    """Until the end of the block, the gateway that a command of this process starts for its own use is a fork."""
    import pytest  # which the process that is forked has no use for

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
    """Of this process, with which it ends. `path`: its PYTHONPATH, on which it depends what it has imported."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.forking", str(its.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, process, ours)
    return ours


def _end(process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    control.close()
    process.wait(_BOUND)


# The other side


class _Parent:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting: dict[int, int] = {}
        """Who wants to know how a child ends."""

    def next_child(self) -> Mapping[str, Any] | None:
        """In a child, its job. In the parent, nothing, when no more are to come."""
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
                    *given, status = files
                    for descriptor in given:
                        os.close(descriptor)
                    self._waiting[pid] = status
                    _tell(status, pid)

    def _reap(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            telling = self._waiting.pop(pid)
            _tell(telling, os.waitstatus_to_exitcode(status))
            os.close(telling)

    def _end(self) -> None:
        for pid in self._waiting:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _wake(*_: object) -> None:
    """A signal without a handler writes nothing to the wakeup file."""


def _tell(to: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody is interested any more
        os.write(to, f"{number}\n".encode())


def _become(files: Sequence[int]) -> None:
    *given, status = files
    for number, descriptor in enumerate(given):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.close(status)


def _serve(control: socket.socket) -> None:
    # What only some of them need is imported, too: it is shared.
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
