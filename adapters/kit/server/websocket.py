"""WebSockets: close codes, several messages at once, disconnected callers, and release of memory."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect

POLICY: Final = 1008
GOING_AWAY: Final = 1001
FAILED: Final = 1011
"""Close code for an internal error. It is defined in RFC 6455, section 7.4.1, as are `POLICY` and `GOING_AWAY`."""
RESTART: Final = 1012
"""Close code for a restart (IANA registry of WebSocket close codes). A server that shuts down sends it to idle sockets
(uvicorn 0.54)."""

TEXTS: Final = "babelgate.texts"
"""Member of an ASGI message `websocket.send` with the contents of several text frames, as UTF-8. The gateway's own
server has the ASGI extension of this name."""


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


@contextmanager
def release(socket: WebSocket[Any, Any, Any]) -> Generator[None]:
    """Drop the ASGI functions of the socket at the end of the context. Litestar wraps them in functions that refer to
    the socket, so only the garbage collector would free both, with all data of the connection."""
    try:
        yield
    finally:
        socket.receive = socket.send = _fail_closed


async def _fail_closed(*_: Any) -> Any:
    raise WebSocketDisconnect(detail="the socket is closed")


async def send_texts(socket: WebSocket[Any, Any, Any], texts: Sequence[bytes]) -> None:
    """Send one text frame for each text. The gateway's own server receives all texts in one ASGI message, which takes
    half of the time."""
    scope = cast("Mapping[str, Any]", socket.scope)
    if TEXTS in (scope.get("extensions") or {}):
        await socket.send(cast("Any", {"type": "websocket.send", TEXTS: texts}))
        return
    for text in texts:
        await socket.send_data(text.decode())
