"""Polling and trying again, with exponential backoff: how long to wait, and when a server counts as gone."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from babelgate.adapters.kit.client.status import is_gone, is_retryable
from babelgate.canonical import FaultCode, FaultError

FIRST_WAIT: Final = 0.1
LAST_WAIT: Final = 2.0
"""Seconds between looks at a run that is not streamed: most agents take longer, and none is worth asking more often."""
LOOK_TIMEOUT: Final = 30.0
"""Seconds that one look may take."""
MAX_FAILURES: Final = 5
"""Looks in a row that may fail before the agent counts as gone."""

T = TypeVar("T")


class Backoff:
    """The waits between looks, each twice as long as the one before: from `first` to `last` seconds. `most` = how many
    looks in a row may fail."""

    def __init__(self, first: float, last: float, most: int = MAX_FAILURES) -> None:
        self._first = self._next = first
        self._last = last
        self._most = most
        self.failures = 0
        """In a row."""

    def reset(self) -> None:
        """There is something new: what comes next may come soon."""
        self._next = self._first
        self.failures = 0

    def count_failure(self, error: FaultError) -> None:
        """Raises the error if it is one too many."""
        self.failures += 1
        if self.failures >= self._most:
            raise error

    async def wait(self) -> None:
        pause, self._next = self._next, min(self._next * 2, self._last)
        await asyncio.sleep(pause)

    async def look(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """What the server answers; None where it is away for the moment, or too slow. Raises what its error response
        says, and the fault of a server that is gone."""
        try:
            answer = await ask()
        except FaultError as error:
            if not is_retryable(error.fault):
                raise
            self.count_failure(error)
            return None
        self.failures = 0
        return answer

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the server answers in the end: also what it takes its time for. Raises what its error
        response says, and the fault of a server that is gone."""
        while True:
            try:
                return await ask()
            except FaultError as error:
                if not is_gone(error.fault):
                    raise
                self.count_failure(error)
            await self.wait()


@asynccontextmanager
async def in_time(seconds: float) -> AsyncGenerator[None]:
    """Raises agent_timeout when the time is over."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent's server did not answer in time") from error
