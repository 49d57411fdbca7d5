"""Retries with backoff while the database is unavailable, and the faults for callers that do not wait that long."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError

from babelgate.canonical.fault import FaultCode, FaultError

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds for which a read is retried before it fails. Chosen."""
PATIENCE_OF_RUNS: Final = 30.0
"""Seconds for which the writes of an active run are retried. Chosen: longer than the restart of a server."""
RETRY_AFTER: Final = 5
"""Seconds after which callers should retry, as sent to them. Chosen."""


class Unstored(FaultError):
    """The database refused a whole transaction, as on a full disk: the same command may succeed later."""

    def __init__(self) -> None:
        super().__init__(
            FaultCode.UNAVAILABLE, "The gateway could not store this; nothing was changed.", retry_after=RETRY_AFTER
        )


class Unsettled(FaultError):
    """The gateway stopped during a commit whose outcome is not known yet."""

    def __init__(self) -> None:
        super().__init__(
            FaultCode.UNAVAILABLE,
            "The gateway stopped before the database answered: this may have been stored. Check before you send it "
            "again.",
            retry_after=RETRY_AFTER,
        )


class Unreachable(FaultError):
    """The database could not be read: the same read may succeed later."""

    def __init__(self) -> None:
        super().__init__(FaultCode.UNAVAILABLE, "The gateway could not reach its database.", retry_after=RETRY_AFTER)


def reason_of(error: Exception) -> str:
    """Return the message of the driver on one line, without the statement and links that SQLAlchemy adds."""
    of_driver = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(f"{type(of_driver).__name__}: {of_driver}".split())


async def keep_trying(
    act: Callable[[], Awaitable[T]],
    *errors: type[FaultError],
    seconds: float = inf,
    longest: float = 1.0,
    note: Callable[[FaultError, float], None] | None = None,
) -> T:
    """Return the result of `act`, and retry it for `seconds` while it raises one of `errors`.

    After that the error is raised. The pauses double up to `longest` seconds. `note`, if given, is called with each
    error, and with the pause after it.
    """
    pause, until = 0.05, asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await act()
        except errors as error:
            if asyncio.get_running_loop().time() > until:
                raise
            if note is not None:
                note(error, pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, longest)
