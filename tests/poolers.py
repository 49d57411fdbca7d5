"""Poolers for PostgreSQL in transaction mode: PgBouncer, on machines that have it, and a small equivalent.

Both give each transaction the session that has waited longest, so that successive transactions of a client hardly ever
share a session.
"""

import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Queue
from time import monotonic
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.postgres import server
from tests.skip import missing

_SESSIONS: Final = 3
_BOUND: Final = 30.0
_TRACKED: Final = frozenset({"user", "database", "client_encoding", "application_name", "datestyle", "timezone"})
"""Startup parameters that PgBouncer accepts; `options` is not among them."""
_SSL, _GSS = 80877103, 80877104
"""Codes of requests for encryption (PostgreSQL, 55.7 Message Formats)."""


@contextmanager
def pgbouncer(schema: str) -> Generator[str]:
    """Start PgBouncer for this schema, and yield its URL. Skips the calling test if the program is missing."""
    program = shutil.which("pgbouncer")
    if program is None:
        missing("PgBouncer")
    at = conninfo_to_dict(server())
    place = " ".join(f"{name}={at[name]}" for name in ("host", "port", "dbname", "user", "password") if at.get(name))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="babelgate-pgbouncer-"))
    folder.chmod(0o755)
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": str(_SESSIONS),
        "server_round_robin": "1",
    }
    lines = (
        "[databases]",
        f"gate = {place} connect_query='SET search_path TO {schema}'",
        "[pgbouncer]",
        *(f"{name} = {value}" for name, value in settings.items()),
    )
    (folder / "pgbouncer.ini").write_text("\n".join(lines))
    as_user = {"user": "nobody"} if Path("/proc/self").stat().st_uid == 0 else {}
    process = subprocess.Popen([program, folder / "pgbouncer.ini"], stderr=subprocess.DEVNULL, **as_user)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]
    url = f"postgresql://gate@127.0.0.1:{port}/gate"
    try:
        _await_pooler(url)
        yield url
    finally:
        process.kill()
        process.wait(_BOUND)
        shutil.rmtree(folder, ignore_errors=True)


def _await_pooler(url: str) -> None:
    until = monotonic() + _BOUND
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            assert monotonic() < until, "PgBouncer does not answer"
        else:
            return


@contextmanager
def relay(schema: str) -> Generator[str]:
    """Start the small pooler for this schema, and yield its URL. The server must not require a password."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pooler = _Relay(listener, schema)
        stack.callback(pooler.close)
        threading.Thread(target=pooler.accept, daemon=True).start()
        yield f"postgresql://gate@127.0.0.1:{listener.getsockname()[1]}/gate"


class _Relay:
    def __init__(self, listener: socket.socket, schema: str) -> None:
        self._listener = listener
        self._free: Queue[socket.socket] = Queue()
        """Sessions without an open transaction."""
        self._all: list[socket.socket] = []
        self._greeting = b""
        """Messages of a server to a client that is accepted."""
        for _ in range(_SESSIONS):
            session, self._greeting = _connect(schema)
            self._all.append(session)
            self._free.put(session)

    def accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._all.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        for each in self._all:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self, client: socket.socket) -> None:
        session: socket.socket | None = None
        request = b""
        with suppress(OSError, EOFError), client:
            if not _welcome(client):
                return
            client.sendall(self._greeting)
            while (message := _read_message(client))[:1] != b"X":
                request += message
                if message[:1] not in (b"Q", b"S"):  # the server answers after these
                    continue
                session = session or self._free.get(timeout=_BOUND)
                session.sendall(request)
                request = b""
                if _answer(session, client) == b"I":
                    self._free.put(session)
                    session = None


def _welcome(client: socket.socket) -> bool:
    while True:
        (length,) = struct.unpack("!I", _read(client, 4))
        startup = _read(client, length - 4)
        (code,) = struct.unpack("!I", startup[:4])
        if code in (_SSL, _GSS):
            client.sendall(b"N")
            continue
        names = startup[4:].split(b"\0")[:-2:2]
        unknown = [name.decode() for name in names if name.decode().lower() not in _TRACKED]
        if unknown:
            text = f"SFATAL\0C08P01\0Munsupported startup parameter: {unknown[0]}\0\0".encode()
            client.sendall(b"E" + struct.pack("!I", len(text) + 4) + text)
        return not unknown


def _answer(session: socket.socket, client: socket.socket) -> bytes:
    """Forward the server's answer to a request, and return the state of the transaction after it."""
    answer = b""
    while True:
        message = _read_message(session)
        answer += message
        if message[:1] == b"Z":
            client.sendall(answer)
            return message[5:6]


def _connect(schema: str) -> tuple[socket.socket, bytes]:
    at = conninfo_to_dict(server())
    session = socket.create_connection((str(at.get("host")), int(str(at.get("port", 5432)))))
    session.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    parameters = {"user": at.get("user"), "database": at.get("dbname"), "options": f"-csearch_path={schema}"}
    text = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    session.sendall(struct.pack("!II", len(text) + 8, 3 << 16) + text)
    greeting = b""
    while not greeting.endswith(b"Z\0\0\0\5I"):
        message = _read_message(session)
        if message[:1] == b"R" and message[5:9] != b"\0\0\0\0":
            session.close()
            missing("a PostgreSQL that asks for no password")
        greeting += message
    return session, greeting


def _read_message(stream: socket.socket) -> bytes:
    head = _read(stream, 5)
    return head + _read(stream, struct.unpack("!I", head[1:])[0] - 4)


def _read(stream: socket.socket, count: int) -> bytes:
    """Read exactly this many bytes. Raises EOFError."""
    read = b""
    while len(read) < count:
        some = stream.recv(count - len(read))
        if not some:
            raise EOFError
        read += some
    return read


POOLERS: Final = {"relay": relay, "pgbouncer": pgbouncer}
