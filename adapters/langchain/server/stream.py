"""Streams of runs. Every frame has an id, so a client can resume every stream after any frame (Last-Event-ID)."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.server.fanout import PAST_RECORDS, EncodedRecord, Encoder, FanoutCache, Follower
from babelgate.adapters.kit.server.sse import EventStream, LargeFrame, event_stream, pieces_of
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.adapters.langchain.codec.stream_modes import StreamParameters
from babelgate.adapters.langchain.server.lookup import read_history
from babelgate.adapters.langchain.write.run_frames import EventWriter
from babelgate.canonical import Hub, Principal, Record, Scope

HEARTBEAT: Final = 5.0
"""Seconds between two heartbeat comments in an idle stream, as in langgraph-api 0.16.7 (sse.py, `sse_heartbeat`)."""

EventId = tuple[int, int]
"""Id of a frame: the seq of its record, and its number among the frames of that record."""
_AFTER_ALL_FRAMES: Final = 999_999
"""Number that is greater than those of all frames of one record. An id with it continues with the next record."""


@dataclass(frozen=True, slots=True)
class _Encoder:
    writer: EventWriter

    def write(self, record: Record, /) -> EncodedRecord:
        frames = [frame for _, frame in self.writer.write(record)]
        return EncodedRecord(frames, self.writer.done)

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str], /) -> Sequence[bytes] | None:
        return self.writer.write_passage(passage, texts)


@dataclass(frozen=True, slots=True)
class RunFrameStream:
    """One reader's stream of a run, or of a thread from run to run. Readers of the same view share encoded frames
    through `lines`."""

    hub: Hub
    principal: Principal
    view: StreamParameters
    lines: FanoutCache
    begins: int = 0
    """Seq of a record before the run's first one. Reading of the log starts after it."""

    async def enter(self, after: EventId | None) -> tuple[AsyncGenerator[bytes], EventId]:
        """Return the frames after an id, and that id. None returns only future frames, and the id after which these
        begin."""
        return (await self.after(after), after) if after is not None else await self.from_now()

    async def after(self, after: EventId, *, started_run: bool = False) -> AsyncGenerator[bytes]:
        """Return the frames after an id. Each item has as many frames as are available. `started_run`: this stream is
        the response to the request that started the run."""
        encoder = await self._encoder()
        follower = self.lines.join(
            self.view, encoder, (), self._rebuild_encoder, begins=self.begins, started_run=started_run
        )
        return self._frames(follower, self.begins, after)

    async def from_now(self) -> tuple[AsyncGenerator[bytes], EventId]:
        """Return the future frames, and the id after which they begin.

        They include everything that is committed after this method returns, even if the caller reads them later. With
        the Babelgate extension all frames are returned from the first one, because its records build on earlier ones.
        """
        if self.view.extended:
            return await self.after((0, -1)), (0, -1)
        encoder = await self._encoder()
        past: deque[Record] = deque(maxlen=PAST_RECORDS)
        async with aclosing(self._logged_records()) as records:
            async for record in records:
                encoder.write(record)
                past.append(record)
        last = past[-1].seq if past else self.begins
        follower = self.lines.join(self.view, encoder, past, self._rebuild_encoder, begins=self.begins)
        frames = _no_frames() if encoder.writer.done else self._frames(follower, last, (last, 0))
        return frames, (last, _AFTER_ALL_FRAMES)

    async def _encoder(self) -> _Encoder:
        """Return an encoder for the run's records, before its first one."""
        history = await read_history(self.hub, self.principal, self.view.thread_id, self.begins)
        return _Encoder(EventWriter(self.view, history))

    async def _logged_records(self) -> AsyncGenerator[Record]:
        """Yield the records that are in the log now. Pauses regularly so that other tasks of the event loop can run,
        because encoding one record may take long."""
        time_slice = TimeSlice()
        log = self.hub.reads.log(self.principal, Scope(self.view.thread_id), self.begins, inline=True)
        async with aclosing(self._with_whole_states(log)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record
                    if time_slice.is_used_up:
                        await time_slice.pause()

    def _with_whole_states(self, records: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[Sequence[Record]]:
        """Return the batches of records. With the Babelgate extension, states that the log stores as differences are
        replaced by whole states, because the reader may not have the earlier states."""
        if not self.view.extended:
            return records
        return complete_states(self.hub, self.principal, self.view.thread_id, records)

    async def _frames(self, follower: Follower, last: int, after: EventId) -> AsyncGenerator[bytes]:
        time_slice = TimeSlice()
        records = self.hub.reads.follow(self.principal, Scope(self.view.thread_id), last, inline=True)
        async with aclosing(self._with_whole_states(records)) as batches:
            async for batch in batches:
                ready: list[bytes | LargeFrame] = []
                for passage, encoded in await follower.write_all(batch):
                    ready += _frames_after(encoded, passage, after)
                    if not (encoded.stopped or time_slice.is_used_up):
                        continue
                    async with aclosing(pieces_of(ready)) as pieces:
                        async for piece in pieces:
                            yield piece
                    if encoded.stopped:
                        return
                    ready.clear()
                    await time_slice.pause()
                async with aclosing(pieces_of(ready)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def _rebuild_encoder(self, seq: int) -> Encoder:
        """Return an encoder in the state after all records before the seq `seq`, for a reader that joins a running
        stream."""
        encoder = await self._encoder()
        async with aclosing(self._logged_records()) as records:
            async for record in records:
                if record.seq >= seq:
                    break
                encoder.write(record)
        return encoder


async def _no_frames() -> AsyncGenerator[bytes]:
    return
    yield


def _frames_after(encoded: EncodedRecord, passage: Sequence[Record], after: EventId) -> Sequence[bytes | LargeFrame]:
    """Return the encoded frames whose id is greater than `after`. No frame needs to have exactly this id: the client
    may have had other modes before."""
    if passage[0].seq > after[0]:
        return encoded.frames
    return [frame for frame in encoded.frames if _id_of(frame) > after]


def _id_of(frame: bytes | LargeFrame) -> EventId:
    head = frame if isinstance(frame, bytes) else frame.head
    _, _, rest = head.partition(b"\nid: ")  # after the name of the event, which has no line breaks
    seq, _, number = rest.partition(b"\n")[0].partition(b"-")
    return int(seq), int(number)


def stream_response(frames: AsyncIterator[bytes], headers: dict[str, str]) -> EventStream:
    return event_stream(frames, ping=HEARTBEAT, headers={"Cache-Control": "no-store", **headers})
