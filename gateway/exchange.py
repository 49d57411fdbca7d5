"""Context of the request that the current asyncio task handles: its connection, its headers, and its caller for the
audit log."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from babelgate.adapters.kit.headers import read_line

_HANG_UP: Final[ContextVar[Callable[[], None] | None]] = ContextVar("hang_up", default=None)

SCOPE_KEY: Final = "babelgate.hang_up"
"""Key in the ASGI scope of a request under which the server puts a function that closes the connection, if it offers
one."""


class ActOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Request that caused an act in the audit log, and its caller. For an act of the gateway itself, `subject` is
    `gateway` and all other texts are empty."""

    request_id: str = ""
    trace_id: str = ""
    protocol: str = ""
    address: str = ""
    """IP address of the client, or of the last proxy before the gateway."""
    subject: str = ""
    owner: str = ""
    issuer: str = ""
    credential: str = ""


_SCOPE: Final[ContextVar[Any]] = ContextVar("request_scope", default=None)
_HEADERS: Final[ContextVar[dict[str, str] | None]] = ContextVar("response_headers", default=None)
_DESCRIBE: Final[ContextVar[Callable[[], ActOrigin] | None]] = ContextVar("describe_origin", default=None)


def enter_exchange(
    scope: Any, describe: Callable[[], ActOrigin] | None = None, headers: dict[str, str] | None = None
) -> None:
    """Set the request that the current task handles. Tasks that its handler starts inherit it.

    `describe` returns the origin of the acts that the request causes. It is called only if there is such an act.
    `headers` collects the headers that `note_headers` adds to the response; None if there will be no response.
    """
    _SCOPE.set(scope)
    _HANG_UP.set(scope.get(SCOPE_KEY))
    _DESCRIBE.set(describe)
    _HEADERS.set(headers)


def current_origin() -> ActOrigin:
    """Return the request and caller that cause an act in the current task, or the gateway itself outside a request."""
    describe = _DESCRIBE.get()
    return ActOrigin(subject="gateway") if describe is None else describe()


def find_request_header(name: bytes) -> str:
    """Return all lines of a header of the current request as one value. Return an empty text outside a request."""
    scope = _SCOPE.get()
    return "" if scope is None else read_line(scope["headers"], name.decode())


def note_headers(headers: Mapping[str, str]) -> None:
    """Add headers to the response of the current request, if the response has not started. Do nothing outside a
    request."""
    noted = _HEADERS.get()
    if noted is not None:
        noted.update(headers)


def hang_up() -> None:
    """Close the connection of the current request before its response is complete.

    The client treats the connection as lost: it reconnects or reports an error. Do nothing outside a request.
    """
    close = _HANG_UP.get()
    if close is not None:
        close()
