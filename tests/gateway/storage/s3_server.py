"""A real S3 server for tests: moto's, in a separate environment, and a proxy to it that can cut connections."""

import os
import re
import socket
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from types import MappingProxyType

from tests.gateway.command import bound_socket
from tests.interop.peers import peer_python

BUCKET = "bucket"
SECRET = "the-secret-key-that-nobody-may-read"
_MAIN = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"


def variables(port: int) -> Mapping[str, str]:
    """Return the environment variables with which clients find the server at a port."""
    return MappingProxyType(
        {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "access",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
    )


@contextmanager
def s3_server() -> Generator[int]:
    """Run the server with one empty bucket, and yield its port."""
    python = peer_python("moto")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with subprocess.Popen([python, "-c", _MAIN], stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stderr is not None
            output = ""
            while (match := re.search(r"Running on http://127\.0\.0\.1:(\d+)", output)) is None:
                line = server.stderr.readline()
                assert line, output
                output += line
            threading.Thread(target=server.stderr.read, daemon=True).start()
            port = int(match[1])
            with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as http:
                http.request("PUT", f"/{BUCKET}")
                assert http.getresponse().status == 200
            yield port
        finally:
            server.kill()


class Way:
    """Proxy from one port to another. `refuse` = number of connections to close at once, or None for all."""

    def __init__(self, to: int) -> None:
        self.refuse: int | None = 0
        self.refused = 0
        self._to = to
        self._listener = bound_socket()
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        self.refuse = None
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                if self.refuse is None or self.refused < self.refuse:
                    self.refused += 1
                    caller.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open += [caller, server]
                for one, other in ((caller, server), (server, caller)):
                    threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(2**16):
            other.sendall(data)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
