"""WebSockets: why one is closed, and that its caller has left."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from litestar.exceptions import WebSocketDisconnect

POLICY: Final = 1008
GOING_AWAY: Final = 1001
FAILED: Final = 1011
"""RFC 6455, section 7.4.1."""
RESTART: Final = 1012
"""IANA's registry of close codes: the service restarts. A server that stops says so to idle sockets (uvicorn 0.54)."""


class Left(Exception):
    """Nobody reads any longer."""


@contextmanager
def detect_leaving() -> Generator[None]:
    """What Litestar and the server below it raise then. Raises Left."""
    try:
        yield
    except (WebSocketDisconnect, OSError, RuntimeError) as error:
        raise Left from error
