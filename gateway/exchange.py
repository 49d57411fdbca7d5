"""The connection of the request that the current task answers."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

_HANG_UP: Final[ContextVar[Callable[[], None] | None]] = ContextVar("hang_up", default=None)

SCOPE_KEY: Final = "babelgate.hang_up"
"""Where the scope of a request has the function that closes its connection, if the server offers one."""


def enter_exchange(scope: Any) -> None:
    """Note the connection of a request for `hang_up`, also in the tasks that its handler starts."""
    _HANG_UP.set(scope.get(SCOPE_KEY))


def hang_up() -> None:
    """Close the connection of the current request without the end of its response.

    The client treats the connection as lost, and does what it does then: it connects again, or reports an error. Does
    nothing outside of a request.
    """
    close = _HANG_UP.get()
    if close is not None:
        close()
