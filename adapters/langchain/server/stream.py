"""Run streams, resumable by Last-Event-ID: what the records of a run become, from any point on. Every frame has an id,
so every stream can be resumed."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from babelgate.adapters.kit.aside import Turns
from babelgate.adapters.kit.server.fanout import SEEN, EncodedRecord, Encoder, FanoutCache, Follower
from babelgate.adapters.kit.server.sse import EventStream, LargeFrame, event_stream, pieces_of
from babelgate.adapters.kit.server.whole_states import tell_states_whole
from babelgate.adapters.langchain.codec.stream_modes import View
from babelgate.adapters.langchain.server.lookup import read_history
from babelgate.adapters.langchain.write.run_frames import EventWriter
from babelgate.canonical import Hub, Record, Scope

HEARTBEAT: Final = 5.0
"""Seconds, as langgraph-api 0.16.7 has it (sse.py, `sse_heartbeat`)."""

EventId = tuple[int, int]
"""(seq, n) of a frame."""
_LAST: Final = 999_999
"""An n above those of all frames of one record."""


@dataclass(frozen=True, slots=True)
class _Encoder:
    writer: EventWriter

    def write(self, record: Record, /) -> EncodedRecord:
        frames = [frame for _, frame in self.writer.write(record)]
        return EncodedRecord(frames, self.writer.done)

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str], /) -> Sequence[bytes] | None:
        return self.writer.write_passage(passage, texts)


@dataclass(frozen=True, slots=True)
class RunStream:
    """One reading of a run, or of a thread from run to run."""

    hub: Hub
    view: View
    lines: FanoutCache
    begins: int = 0
    """A seq before the run's first record. What was said by then was not said in it, and need not be read again."""

    async def enter(self, after: EventId | None) -> tuple[AsyncGenerator[bytes], EventId]:
        """Return the frames after one of them, or those that are still to come, and the id after which they begin."""
        return (await self.after(after), after) if after is not None else await self.from_now()

    async def after(self, after: EventId, *, started_run: bool = False) -> AsyncGenerator[bytes]:
        """The frames after one of them, as many at a time as are there."""
        encoder = await self._encoder()
        follower = self.lines.join(self.view, encoder, (), self._again, begins=self.begins, started_run=started_run)
        return self._frames(follower, self.begins, after)

    async def from_now(self) -> tuple[AsyncGenerator[bytes], EventId]:
        """Return the frames that are still to come, and the id after which they begin. What is said after this returns
        is among them, however late they are read. With the extension all of them: a reader could not understand it
        without the beginning."""
        if self.view.extended:
            return await self.after((0, -1)), (0, -1)
        encoder = await self._encoder()
        seen: deque[Record] = deque(maxlen=SEEN)
        async with aclosing(self._logged_records()) as records:
            async for record in records:
                encoder.write(record)
                seen.append(record)
        last = seen[-1].seq if seen else self.begins
        follower = self.lines.join(self.view, encoder, seen, self._again, begins=self.begins)
        frames = _no_frames() if encoder.writer.done else self._frames(follower, last, (last, 0))
        return frames, (last, _LAST)

    async def _encoder(self) -> _Encoder:
        """One that stands where the run begins."""
        history = await read_history(self.hub, self.view.owner, self.view.thread_id, self.begins)
        return _Encoder(EventWriter(self.view, history))

    async def _logged_records(self) -> AsyncGenerator[Record]:
        """What there is by now. Others have the loop in between, because each record may show the whole state."""
        turns = Turns()
        log = self.hub.reads.log(self.view.owner, Scope(self.view.thread_id), self.begins, inline=True)
        async with aclosing(self._whole(log)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record
                    if turns.is_over:
                        await turns.give()

    def _whole(self, records: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[Sequence[Record]]:
        """Envelopes are for readers who may not know what was before the run."""
        if not self.view.extended:
            return records
        return tell_states_whole(self.hub, self.view.owner, self.view.thread_id, records)

    async def _frames(self, follower: Follower, last: int, after: EventId) -> AsyncGenerator[bytes]:
        turns = Turns()
        reading = self.hub.reads.follow(self.view.owner, Scope(self.view.thread_id), last, inline=True)
        async with aclosing(self._whole(reading)) as batches:
            async for batch in batches:
                ready: list[bytes | LargeFrame] = []
                for passage, told in await follower.write_all(batch):
                    ready += _later(told, passage, after)
                    if not (told.stopped or turns.is_over):
                        continue
                    async with aclosing(pieces_of(ready)) as pieces:
                        async for piece in pieces:
                            yield piece
                    if told.stopped:
                        return
                    ready.clear()
                    await turns.give()
                async with aclosing(pieces_of(ready)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def _again(self, seq: int) -> Encoder:
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


def _later(told: EncodedRecord, passage: Sequence[Record], after: EventId) -> Sequence[bytes | LargeFrame]:
    """Those behind the frame `after`, which itself need not be among them: it may be of other modes."""
    if passage[0].seq > after[0]:
        return told.frames
    return [frame for frame in told.frames if _id_of(frame) > after]


def _id_of(frame: bytes | LargeFrame) -> EventId:
    head = frame if isinstance(frame, bytes) else frame.head
    _, _, rest = head.partition(b"\nid: ")  # behind the name of the event, which has no line breaks
    seq, _, number = rest.partition(b"\n")[0].partition(b"-")
    return int(seq), int(number)


def stream_response(frames: AsyncIterator[bytes], headers: dict[str, str]) -> EventStream:
    return event_stream(frames, ping=HEARTBEAT, headers={"Cache-Control": "no-store", **headers})
