"""WebSockets: close codes, and detection of a disconnected caller."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from litestar.exceptions import WebSocketDisconnect

POLICY: Final = 1008
GOING_AWAY: Final = 1001
FAILED: Final = 1011
"""Close code for an internal error. It is defined in RFC 6455, section 7.4.1, as are `POLICY` and `GOING_AWAY`."""
RESTART: Final = 1012
"""Close code for a restart (IANA registry of WebSocket close codes). A server that shuts down sends it to idle sockets
(uvicorn 0.54)."""


class Disconnected(Exception):
    """Raised when the caller has disconnected."""


@contextmanager
def detect_disconnect() -> Generator[None]:
    """Raise `Disconnected` instead of the errors with which Litestar and the ASGI server report that the caller has
    disconnected."""
    try:
        yield
    except (WebSocketDisconnect, OSError, RuntimeError) as error:
        raise Disconnected from error
