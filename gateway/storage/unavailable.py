"""Retry with backoff while the database is away, as while its server is started anew, for who can wait; and what who
cannot is told."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError

from babelgate.canonical.fault import FaultCode, FaultError

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds for which a read waits before it fails."""
PATIENCE_OF_RUNS: Final = 30.0
"""The same, for what a run that is at work has to store."""
RETRY_AFTER: Final = 5
"""Seconds that callers are told to wait."""


class Unstored(FaultError):
    """The database refused a whole transaction, as on a full disk: the same command may succeed later."""

    def __init__(self) -> None:
        super().__init__(
            FaultCode.UNAVAILABLE, "The gateway could not store this; nothing was changed.", retry_after=RETRY_AFTER
        )


class Unsettled(FaultError):
    """The gateway stopped while the database was committing: nobody knows yet whether it did."""

    def __init__(self) -> None:
        super().__init__(
            FaultCode.UNAVAILABLE,
            "The gateway stopped before the database answered: this may be stored. Look before you send it again.",
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
    """What `act` gives, in the end. For so many seconds it is done again at one of these errors, after pauses that
    double up to the `longest`; then the error is raised. `note` is told of each, and of the pause after it."""
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
