"""HTTP server for `/metrics` and `/stacks`, on a separate port and threads, so that a blocked event loop can be
measured."""

import ipaddress
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

PATH: Final = "/metrics"
STACKS: Final = "/stacks"
"""URL path of the page with the stacks of the process. Only clients on this machine can read it."""
_TIMEOUT: Final = 10.0
"""Seconds after which a client that sends no request, or receives no data, is disconnected. Chosen."""
_MAX_CLIENTS: Final = 8
"""Maximum number of concurrent connections. Chosen: Prometheus needs one, and each takes a thread."""
_POLL: Final = 1.0
"""Seconds between two checks of the server's thread whether it must stop. Chosen."""


class MetricsListener(ThreadingHTTPServer):
    """HTTP server with the pages `/metrics` and `/stacks`, one thread per connection."""

    daemon_threads = True

    def __init__(
        self,
        listener: socket.socket,
        render: Callable[[], bytes],
        content_type: str,
        render_stacks: Callable[[], bytes] | None = None,
    ) -> None:
        """Create a server on a bound socket. `start` begins to listen.

        `render` returns the page of metrics with the type `content_type`, and `render_stacks` the page of stacks.
        Without `render_stacks`, that page does not exist."""
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        listener.setblocking(True)
        self.socket = listener
        self.render = render
        self.content_type = content_type
        self.render_stacks = render_stacks
        self._room = threading.BoundedSemaphore(_MAX_CLIENTS)
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL,), name="babelgate-metrics", daemon=True)

    def start(self) -> None:
        self.socket.listen(_MAX_CLIENTS)
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting connections. Requests in progress are not awaited."""
        if self._thread.is_alive():
            self.shutdown()
        self.socket.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection, such as a client that disconnects."""


class _Handler(BaseHTTPRequestHandler):
    server: MetricsListener  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == STACKS and self.server.render_stacks is not None and is_from_this_machine(self.client_address[0]):
            self._answer(200, self.server.render_stacks(), "text/plain; charset=utf-8")
            return
        if path != PATH:
            self._answer(404, b"The metrics are at /metrics.\n", "text/plain; charset=utf-8")
            return
        self._answer(200, self.server.render(), self.server.content_type)

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "babelgate"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request of Prometheus is not a call of the gateway."""


def is_from_this_machine(address: str) -> bool:
    """Return True if a client address is a loopback address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):  # a dual-stack socket reports 127.0.0.1 as ::ffff:127.0.0.1
        parsed = parsed.ipv4_mapped or parsed
    return parsed.is_loopback
