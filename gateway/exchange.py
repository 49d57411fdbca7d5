"""Connection of the request that the current task handles."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

_HANG_UP: Final[ContextVar[Callable[[], None] | None]] = ContextVar("hang_up", default=None)

SCOPE_KEY: Final = "babelgate.hang_up"
"""Key of the function in a request's scope that closes its connection, if the server offers one."""


def enter_exchange(scope: Any) -> None:
    """Store the connection of a request for `hang_up`, also for the tasks that its handler starts."""
    _HANG_UP.set(scope.get(SCOPE_KEY))


def hang_up() -> None:
    """Close the connection of the current request before its response is complete.

    The client treats the connection as lost: it reconnects or reports an error. Does nothing outside a request.
    """
    close = _HANG_UP.get()
    if close is not None:
        close()
