"""Faults for callers while the database is unavailable, and retries with backoff."""

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
"""Seconds after which a caller should retry: the value of Retry-After in the response. Chosen."""


class Unstored(FaultError):
    """Fault of a command whose transaction the database refused, for example because the disk is full.

    Nothing was stored, so the same command may be repeated."""

    def __init__(self) -> None:
        super().__init__(
            FaultCode.UNAVAILABLE, "The gateway could not store this; nothing was changed.", retry_after=RETRY_AFTER
        )


class Unsettled(FaultError):
    """Fault of a command whose commit got no response before the gateway stopped. It may have been stored."""

    def __init__(self) -> None:
        super().__init__(
            FaultCode.UNAVAILABLE,
            "The gateway stopped before the database answered: this may have been stored. Check before you send it "
            "again.",
            retry_after=RETRY_AFTER,
        )


class Unreachable(FaultError):
    """Fault of a read that failed because the database could not be reached. It may be repeated."""

    def __init__(self) -> None:
        super().__init__(FaultCode.UNAVAILABLE, "The gateway could not reach its database.", retry_after=RETRY_AFTER)


def reason_of(error: Exception) -> str:
    """Return the driver's error message on one line, without the statement and the links that SQLAlchemy adds."""
    of_driver = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(f"{type(of_driver).__name__}: {of_driver}".split())


async def keep_trying(
    act: Callable[[], Awaitable[T]],
    *errors: type[FaultError],
    seconds: float = inf,
    longest: float = 1.0,
    note: Callable[[FaultError, float], None] | None = None,
) -> T:
    """Call `act` until it succeeds, and return its result. Retry for `seconds` if it raises one of `errors`.

    After that time, the error is raised. The pauses begin with 50 ms and double up to `longest` seconds. `note`, if
    given, is called with each error and the pause that follows."""
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
