"""Resume of a broken stream: the rest of a run is read from a gateway that offers the Babelgate extension, first the
records that were missed, then the new ones."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, Backoff
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.extension import RecordReader
from babelgate.canonical import Event, FaultCode, FaultError

_AT_ONCE: Final = LAST_WAIT
"""Minimum duration of a healthy connection, in seconds. A connection that ends earlier without a new record counts as
failed. A longer connection may end any number of times, because proxies cut streams while the agent is silent."""


async def catch_up(
    records: RecordReader,
    open_stage: Callable[[int], AsyncGenerator[Sequence[Event]]],
    has_stopped: Callable[[], bool],
) -> AsyncGenerator[Sequence[Event]]:
    """Reconnect until the run has stopped, and yield its events in batches. The result is a `Stage` of
    `babelgate.adapters.kit.client.driver`.

    `open_stage` opens one connection, which yields the events of the records after a seq. The connection ends with the
    stream, when a record is missing (`records.behind`), or when the run has stopped.

    Raises agent_invalid if the server omits records, agent_unreachable if several connections in a row yield nothing
    new, and the fault of an error response.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff(FIRST_WAIT, LAST_WAIT)
    while not has_stopped():
        before, began = records.seq, loop.time()
        try:
            async with aclosing(open_stage(before or 0)) as stage:
                async for events in stage:
                    yield events
            if records.seq == before and not has_stopped():
                if records.behind:
                    raise FaultError(FaultCode.AGENT_INVALID, "The agent's server leaves out records of its run")
                if loop.time() - began < _AT_ONCE:
                    raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its run did")
        except FaultError as error:
            if not is_retryable(error.fault):
                raise
            if records.seq == before:
                backoff.count_failure(error)
        if records.seq != before:
            backoff.reset()
        if not has_stopped():
            await backoff.wait()
