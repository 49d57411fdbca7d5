"""Resume of a broken stream: the records of a run that were missed, and those that come, as a gateway tells them again
by the Babelgate extension."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, Backoff
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.extension import RecordReader
from babelgate.canonical import Event, FaultCode, FaultError

_AT_ONCE: Final = LAST_WAIT
"""Seconds. A connection that lives for less, and tells nothing new, counts as one that failed. One that lives longer
may be cut by what stands in between while the agent is at work, however often."""


async def catch_up(
    records: RecordReader,
    open_stage: Callable[[int], AsyncGenerator[Sequence[Event]]],
    has_stopped: Callable[[], bool],
) -> AsyncGenerator[Sequence[Event]]:
    """A stage of `babelgate.adapters.kit.client.driver`: connects again and again until the run has stopped.
    `open_stage` = what one connection tells from the record after this seq on; it ends with the stream, where records
    are left out (`records.behind`), and when the run has stopped.

    Raises agent_invalid for a server that leaves records out, agent_unreachable for one that tells nothing new several
    times in a row, and what the server answers instead.
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
