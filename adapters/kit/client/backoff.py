"""Retries and polling with exponential backoff: the delays, and when a server counts as unreachable."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from babelgate.adapters.kit.client.status import is_gone, is_retryable
from babelgate.canonical import FaultCode, FaultError

FIRST_WAIT: Final = 0.1
"""First delay between two polls of a run that is not streamed, in seconds. Chosen."""
LAST_WAIT: Final = 2.0
"""Longest delay between two polls, in seconds. Chosen: most agents take longer than this, and none needs to be polled
more often."""
POLL_TIMEOUT: Final = 30.0
"""Timeout of one poll, in seconds. Chosen."""
MAX_FAILURES: Final = 5
"""Number of consecutive polls that may fail before the agent counts as unreachable. Chosen."""

T = TypeVar("T")


class Backoff:
    """Delays between polls, each twice as long as the previous one, from `first` to `last` seconds. `most` is the
    number of consecutive failures at which polling ends."""

    def __init__(self, first: float, last: float, most: int = MAX_FAILURES) -> None:
        self._first = self._next = first
        self._last = last
        self._most = most
        self.failures = 0
        """Number of consecutive failures."""

    def reset(self) -> None:
        """Return to the shortest delay and forget earlier failures, because the server sent something new."""
        self._next = self._first
        self.failures = 0

    def count_failure(self, error: FaultError) -> None:
        """Count one failure. Raises the error once there have been `most` in a row."""
        self.failures += 1
        if self.failures >= self._most:
            raise error

    async def wait(self) -> None:
        """Wait for the current delay, and double the next one."""
        pause, self._next = self._next, min(self._next * 2, self._last)
        await asyncio.sleep(pause)

    async def poll(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Poll the server once with `ask` and return its response. Return None if the server is temporarily unreachable
        or too slow. Raises the fault of any other error response, and the last fault after too many failures."""
        try:
            answer = await ask()
        except FaultError as error:
            if not is_retryable(error.fault):
                raise
            self.count_failure(error)
            return None
        self.failures = 0
        return answer

    async def retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request while the server is unreachable, and return its response. Raises the fault of any other
        failure (a timeout is not repeated), and the last fault after too many failures."""
        while True:
            try:
                return await ask()
            except FaultError as error:
                if not is_gone(error.fault):
                    raise
                self.count_failure(error)
            await self.wait()


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncGenerator[None]:
    """Limit the time of a block. Raises agent_timeout after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent's server did not answer in time") from error
