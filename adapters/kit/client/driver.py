"""Driver of a run on another server, in any protocol. One activation is a sequence of stages. Each stage reads one
source: a stream, the rest of a broken stream, or a task that is polled.

An event passes three iterators between the wire and the engine: the stage of the protocol, which decodes it, `drive`,
and the failover between servers. A stage reads the frames of a stream in batches (`frames.FrameStream.read`).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, Generic, Protocol, TypeVar

from babelgate.adapters.kit.client.authorization import AuthorizationNeeded
from babelgate.adapters.kit.data_url import inline_data_url
from babelgate.canonical import Event, FaultError, Invocation
from babelgate.canonical.agent import DETACH

log = logging.getLogger("babelgate.upstream")

CANCEL_TIMEOUT: Final = 3.0
"""Maximum duration of the request that cancels a run, in seconds. Chosen."""


class TransportClient(Protocol):
    """Client of a server, in the transport of its protocol."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=TransportClient)

Stage = AsyncGenerator[Sequence[Event]]
"""Generator that reads one source of a run, and yields its events in batches as they arrive. An exception of a stage
ends the run."""


class UpstreamRun(ABC):
    """One activation of an agent on its server: the requests to send in the server's protocol, and how to cancel it."""

    @abstractmethod
    def stages(self) -> AsyncGenerator[Stage]:
        """Yield the stages of the run, in order. `drive` reads each stage to its end before it requests the next
        one."""
        ...

    @property
    def is_cancellable(self) -> bool:
        """True if the server is working on the run, and continues even if the gateway closes the connection."""
        return False

    async def cancel(self) -> None:
        """Ask the server to stop the run. Called only if `is_cancellable`. Raises FaultError if the server refuses or
        does not respond."""
        raise NotImplementedError


async def drive(run: UpstreamRun) -> AsyncGenerator[Event]:
    """Yield the events of a run. If the reader stops early, the run is cancelled on the server, unless this gateway is
    restarting and will reattach (`DETACH`)."""
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
    except AuthorizationNeeded:  # the run continues with the authorization
        is_detached = True
        raise
    finally:
        if run.is_cancellable and not is_detached:
            await asyncio.shield(asyncio.ensure_future(_cancel(run)))


async def _cancel(run: UpstreamRun) -> None:
    """Cancel a run on its server. A failure is only logged, because no reader waits for the run any longer."""
    try:
        async with asyncio.timeout(CANCEL_TIMEOUT):
            await run.cancel()
    except (FaultError, TimeoutError) as error:
        log.info("run not cancelled on its agent's server error=%s", error)


class DrivenClient(ABC, Generic[C]):
    """Base class of clients for agents behind a URL (`babelgate.adapters.kit.upstream.Client`). A subclass implements
    `start` for its protocol."""

    def __init__(self, http: C) -> None:
        self._http = http

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @abstractmethod
    def start(self, call: Invocation) -> UpstreamRun:
        """Return the run that executes this call. The run sends no request before its first stage is read."""
        ...

    def run(self, call: Invocation) -> AsyncGenerator[Event]:
        """Start a run on the server for this call, and yield its events."""
        return drive(self.start(call))


class ReattachableClient(DrivenClient[C]):
    """Base class of clients whose servers keep runs that can be found again
    (`babelgate.canonical.agent.Reattachable`)."""

    @abstractmethod
    def find(self, call: Invocation) -> UpstreamRun:
        """Return the run that the server already has for this call. The run sends no request before its first stage is
        read."""
        ...

    def reattach(self, call: Invocation) -> AsyncGenerator[Event]:
        """Find the run that the server already has for this call, and yield all its events from the start of the
        activation. Those that the gateway has logged before come from the server, or, if it does not repeat them, from
        the log."""
        return drive(self.find(call))
