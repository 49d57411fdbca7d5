"""Drives an agent on another server, whatever its protocol: one activation is a sequence of stages, each of which reads
one thing that the server says (a stream, the rest of one that broke, a task that is looked at again and again).

From the wire to the engine, an event passes two generators: the protocol's stage, which decodes, and `drive`.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.data_url import inline_data_url
from babelgate.canonical import Event, FaultError, Invocation
from babelgate.canonical.agent import DETACH

log = logging.getLogger("babelgate.upstream")

CANCEL_TIMEOUT: Final = 3.0
"""Seconds that telling a server of a cancel may take."""

C = TypeVar("C", bound=Calls)

Stage = AsyncGenerator[Sequence[Event]]
"""Yields what the server says, as it says it. What a stage raises ends the run."""


class UpstreamRun(ABC):
    """One activation of an agent, in the words of its server's protocol."""

    @abstractmethod
    def stages(self) -> AsyncGenerator[Stage]:
        """What to read, one stage after the other: it goes on when all of the stage before was read."""
        ...

    @property
    def is_cancellable(self) -> bool:
        """Whether the server has work that it does not stop when its caller hangs up."""
        return False

    async def cancel(self) -> None:
        """Have that work stopped. Raises FaultError."""
        raise NotImplementedError


async def drive(run: UpstreamRun) -> AsyncGenerator[Event]:
    """The events of a run. Whoever leaves before the run has stopped wants it cancelled, but for a gateway that will be
    back (`DETACH`)."""
    is_detached = False
    try:
        async with aclosing(run.stages()) as stages:
            async for stage in stages:
                async with aclosing(stage):
                    async for events in stage:
                        for event in events:
                            yield inline_data_url(event)
    except asyncio.CancelledError as error:
        is_detached = DETACH in error.args
        raise
    finally:
        if run.is_cancellable and not is_detached:
            await asyncio.shield(asyncio.ensure_future(_cancel(run)))


async def _cancel(run: UpstreamRun) -> None:
    """Whether the server hears it or not, nobody waits for the run any longer."""
    try:
        async with asyncio.timeout(CANCEL_TIMEOUT):
            await run.cancel()
    except (FaultError, TimeoutError) as error:
        log.info("cancelling a run on an agent's server failed: %s", error)


class DrivenClient(ABC, Generic[C]):
    """An agent behind a URL (`babelgate.adapters.kit.upstream.Client`)."""

    def __init__(self, http: C) -> None:
        self._http = http

    async def aclose(self) -> None:
        await self._http.aclose()

    @abstractmethod
    def start(self, call: Invocation) -> UpstreamRun:
        """The run of this call. Nothing is sent before its first stage is read."""
        ...

    def run(self, call: Invocation) -> AsyncGenerator[Event]:
        return drive(self.start(call))


class ReattachableClient(DrivenClient[C]):
    """One whose server has a run that can be found again (`babelgate.canonical.agent.Reattachable`)."""

    @abstractmethod
    def find(self, call: Invocation) -> UpstreamRun:
        """The run that the server has for this call already. Nothing is sent before its first stage is read."""
        ...

    def reattach(self, call: Invocation) -> AsyncGenerator[Event]:
        """The events of this activation from its start: told again, or as the log has them."""
        return drive(self.find(call))
