"""The command `babelgate` as users start it: in its own process and its own folder."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from queue import Empty, Queue

from tests.gateway.forking import Forked, fork

BOUND = 60
"""Timeout of every wait, in seconds."""
PROGRAM = (sys.executable, "-m", "babelgate")
ROOT = Path(__file__).parents[2]
FORKED = ({"PYTHONPATH": str(ROOT)}, {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'toy'}"})
"""Environments of the interpreter that a fork can serve. Each has one parent process that has imported everything."""


def bound_socket() -> socket.socket:
    """Return a socket that reserves a free port of 127.0.0.1 and does not listen there."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    return listener


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_") and name != "PORT"}
    # Runs that a test leaves behind do not end by themselves.
    return {**env, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "BABELGATE_SHUTDOWN__GRACE": "2", **more}


def babelgate(
    folder: Path,
    *arguments: str,
    stdin: str = "",
    program: Sequence[str] = PROGRAM,
    bound: float = BOUND,
    **variables: str,
) -> "subprocess.CompletedProcess[str]":
    """Run the command `babelgate` with these arguments in a folder, and return its exit code and output. `bound` is the
    timeout in seconds, and `variables` are added to its environment."""
    if _may_fork(program, variables):
        return _run_fork(folder, arguments, stdin, bound, variables)
    return subprocess.run(
        [*program, *arguments],
        cwd=folder,
        env=_environment(variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=bound,
        check=False,
    )


def _may_fork(program: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Return False if the command needs a fresh interpreter: the interpreter reads its variables only at startup."""
    of_python = {name: value for name, value in variables.items() if name.startswith("PYTHON")}
    return program is PROGRAM and (not of_python or of_python in FORKED)


def _run_fork(
    folder: Path, arguments: Sequence[str], stdin: str, bound: float, variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    with tempfile.TemporaryFile() as stdin_file:
        stdin_file.write(stdin.encode())
        stdin_file.seek(0)
        process = fork(arguments, folder, _environment(variables), stdin_file.fileno())
    assert process.stdout is not None and process.stderr is not None
    with process.stdout as stdout, process.stderr as stderr, ThreadPoolExecutor(2) as pool:
        texts = [pool.submit(stream.read) for stream in (stdout, stderr)]
        try:
            code = process.wait(bound)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, *(text.result(bound) for text in texts))


class Served:
    """Running gateway. Threads read its output all the time, so that it never blocks on a full pipe."""

    def __init__(self, process: "subprocess.Popen[str] | Forked") -> None:
        self.process = process
        self.lines: list[str] = []
        """Lines of stdout that were read so far."""
        self.url = ""
        self._stdout: Queue[str | None] = Queue()
        self._stderr: Queue[str | None] = Queue()
        assert process.stdout is not None and process.stderr is not None
        self._log: list[str] = []
        self._readers = [
            threading.Thread(target=_pump, args=(process.stdout, self._stdout.put)),
            threading.Thread(target=_pump, args=(process.stderr, self._stderr.put)),
        ]
        for reader in self._readers:
            reader.start()

    def ready(self) -> None:
        """Wait until the gateway has printed the last line of its table of URLs."""
        while not self.lines or "Ctrl-C" not in self.lines[-1]:
            try:
                line = self._stdout.get(timeout=BOUND)
            except Empty:
                raise AssertionError(f"no output for {BOUND} s; so far: {self.lines}") from None
            assert line is not None, self.end()
            self.lines.append(line.rstrip("\n"))
        match = re.search(r"serves (http\S+)", self.lines[0])
        assert match is not None, self.lines
        self.url = match[1]

    def logged(self, word: str) -> str:
        """Wait for the next line of stderr that contains the word, and return it."""
        while True:
            try:
                line = self._stderr.get(timeout=BOUND)
            except Empty:
                raise AssertionError(f"{word} was not logged in {BOUND} s; so far: {self._log}") from None
            assert line is not None, f"{word} was not logged: {self._log}"
            self._log.append(line)
            if word in line:
                return line

    @property
    def log(self) -> str:
        """Lines of stderr that were waited for, with those before them."""
        return "".join(self._log)

    @property
    def table(self) -> str:
        return "\n".join(self.lines)

    def end(self) -> str:
        """Wait until the process has ended, and return what it wrote to stderr."""
        self.process.wait(BOUND)
        for reader in self._readers:
            reader.join(BOUND)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        while (line := self._stderr.get(timeout=BOUND)) is not None:
            self._log.append(line)
        self._stderr.put(None)
        return "".join(self._log)

    def stop(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        return self.end()


def _pump(stream: Iterable[str], put: Callable[[str | None], None]) -> None:
    for line in stream:
        put(line)
    put(None)


@contextmanager
def served(
    folder: Path, *arguments: str, program: Sequence[str] = PROGRAM, command: str = "serve", **variables: str
) -> Generator[Served]:
    """Start `babelgate serve`, or another command that serves, on a free port, and wait until it is ready."""
    with _started(folder, (command, "--port", "0", *arguments), program, variables) as running:
        running.ready()
        yield running


@asynccontextmanager
async def served_in_loop(folder: Path, *arguments: str) -> AsyncGenerator[Served]:
    """Start `babelgate serve` without blocking the event loop, which may serve the agents of the gateway.

    At its start the gateway asks its agents' servers, and waits ten seconds for those that do not answer.
    """
    with _started(folder, ("serve", "--port", "0", *arguments), PROGRAM, {}) as running:
        await asyncio.to_thread(running.ready)
        yield running


@contextmanager
def _started(
    folder: Path, arguments: Sequence[str], program: Sequence[str], variables: Mapping[str, str]
) -> Generator[Served]:
    process: subprocess.Popen[str] | Forked
    if _may_fork(program, variables):
        with Path(os.devnull).open() as null:
            process = fork(arguments, folder, _environment(variables), null.fileno())
    else:
        process = subprocess.Popen(
            [*program, *arguments],
            cwd=folder,
            env=_environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    running = Served(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        running.end()
