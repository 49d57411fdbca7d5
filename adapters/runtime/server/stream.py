"""Reading of a run's log: as a stream of events, or all records until now."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.sse import LargeFrame, frame_of, pieces_of
from babelgate.adapters.runtime.codec import encode_event
from babelgate.canonical import Fold, Hub, Principal, Record, Run, Scope
from babelgate.canonical.event import RunCreated

HEARTBEAT: Final = 15.0
"""Seconds between heartbeats in a stream without events. Chosen."""


class RunLog:
    """Reader of one run's log. It computes the run and its output from the records."""

    def __init__(self, hub: Hub, principal: Principal, thread_id: str, run_id: str, begins: int) -> None:
        """Create a reader that has read nothing. `begins` is the seq after which the run's records begin."""
        self.fold = Fold(thread_id, principal.owner)
        """Fold of all records that `end` or `read` has received."""
        self.created: RunCreated | None = None
        self._hub = hub
        self._principal = principal
        self._scope = Scope(thread_id, "run", run_id)
        self._run_id = run_id
        self._begins = begins

    @classmethod
    def of(cls, hub: Hub, principal: Principal, run: Run) -> "RunLog":
        """Return a new reader for a run."""
        return cls(hub, principal, run.thread_id, run.run_id, run.first_seq - 1)

    @property
    def run(self) -> Run:
        """The run as of the newest record that was read."""
        return self.fold.runs[self._run_id]

    async def end(self) -> None:
        """Read records until the run stops, or until the gateway shuts down."""
        async with aclosing(self._follow(self._begins)) as batches:
            async for batch in batches:
                self._apply(batch)

    async def read(self) -> None:
        """Read the records that are in the log now."""
        log = self._hub.reads.log(self._principal, self._scope, self._begins, inline=True)
        async with aclosing(log) as batches:
            async for batch in batches:
                self._apply(batch)

    async def frames(self, after: int = 0) -> AsyncGenerator[bytes]:
        """Yield the events with an id greater than `after` as SSE frames, until the run stops or the gateway shuts
        down. Each item joins the frames that are ready."""
        async with aclosing(self._follow(max(after, self._begins))) as batches:
            async for batch in batches:
                async with aclosing(pieces_of(map(self._frame, batch))) as pieces:
                    async for piece in pieces:
                        yield piece

    def _apply(self, batch: Sequence[Record]) -> None:
        for record in batch:
            if isinstance(record.event, RunCreated):
                self.created = record.event
            self.fold.apply(record)

    def _frame(self, record: Record) -> bytes | LargeFrame:
        event = encode_event(record, self._run_id)
        return frame_of(encode(event), id=str(record.seq), event=event["event_type"])

    def _follow(self, after: int) -> AsyncGenerator[Sequence[Record]]:
        return self._hub.reads.follow(self._principal, self._scope, after, inline=True)
