"""Reading of a run for ACP callers: as a snapshot, as a list of its events, or as a live stream until the run stops."""

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Final

from pydantic import BaseModel

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.parts import EncodingContext
from babelgate.adapters.acp.write.recorded import RecordedWriter
from babelgate.adapters.acp.write.run_events import EventWriter
from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.fanout import PAST_RECORDS, EncodedRecord, Encoder, FanoutCache
from babelgate.adapters.kit.server.passages import split_passages
from babelgate.adapters.kit.server.sse import LargeFrame, TextFrames, frame, frame_of, pieces_of
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.canonical import Hub, Principal, Record, Scope, Task
from babelgate.canonical.event import TaskChanged


class RunStream:
    """Reader of one run, from the first record of its first task on.

    - `tasks` are the tasks of the run: the first one, and those that continue it.
    - `show_after` and `skip` omit events: those until this seq, and the first `skip` ones.
    - `stop_after` is the seq after which a stop of the run ends the stream. A record with the seq `end` also ends it.
    - `extended` sends the records of the Babelgate extension.
    """

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        tasks: Sequence[Task],
        view: EncodingContext,
        *,
        show_after: int = 0,
        stop_after: int = 0,
        skip: int = 0,
        end: int | None = None,
        extended: bool = False,
    ) -> None:
        self.writer = _writer(view, extended=extended)
        self.complete = False
        """True if `events` was read to its end, so that the writer knows all losses."""
        self._hub = hub
        self._principal = principal
        self._tasks = tasks
        # After a resume, the stream has only new events (SDK 1.0.3), and its test suite asserts that run.in-progress is
        # the first one.
        self._show_after = show_after
        self._stop_after = stop_after
        self._skip = skip
        self._end = end
        self._extended = extended

    async def snapshot(self, until: w.Status | None = None) -> EventWriter:
        """Read the existing records, and return the writer, from which the caller gets the run. With `until`, stop
        reading as soon as the newest task has this status."""
        last = self._tasks[-1]
        async with aclosing(self._log(self._tasks)) as records:
            async for record in records:
                self.writer.apply(record)
                is_of_last = record.task_id == last.task_id
                if until == self.writer.status and is_of_last and record.seq > self._show_after:
                    return self.writer
        return self.writer

    async def _log(self, tasks: Sequence[Task]) -> AsyncGenerator[Record]:
        """Yield the records of the tasks that are in the log now."""
        for task in tasks:
            async with aclosing(
                self._whole(self._hub.reads.log(self._principal, Scope.task(task), inline=True))
            ) as batches:
                async for records in batches:
                    for record in records:
                        yield record

    async def events(self) -> AsyncGenerator[BaseModel]:
        """Yield the events of the run until now, without those that are omitted."""
        async with aclosing(self._log(self._tasks)) as records:
            async for record in records:
                for event in self.writer.write(record):
                    if self._shows(record.seq):
                        yield event
        self.complete = True

    def _shows(self, seq: int) -> bool:
        """Return True if an event of the record with this seq is sent. Count down `skip` if it is one of the first
        events that are omitted."""
        if self._skip > 0:
            self._skip -= 1
            return False
        return seq > self._show_after

    def _before(self) -> AsyncGenerator[Record]:
        """Yield the records of all tasks of the run except the newest."""
        return self._log(self._tasks[:-1])

    def _open_records(self) -> aclosing[AsyncGenerator[Sequence[Record]]]:
        """Return the records of the newest task, including those to come, as a context that closes the reader on
        exit."""
        last = self._tasks[-1]
        return aclosing(
            self._whole(self._hub.reads.follow(self._principal, Scope.task(last), last.first_seq - 1, inline=True))
        )

    def _whole(self, batches: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[Sequence[Record]]:
        """Return the batches of records. If the caller receives the records themselves, states in them are whole, and
        not differences."""
        if not self._extended:
            return batches
        return complete_states(self._hub, self._principal, self._tasks[0].thread_id, batches)

    async def frames(self, lines: FanoutCache) -> AsyncGenerator[bytes]:
        """Yield the bytes of the run's event stream."""
        async with aclosing(self.follow(lines)) as batches:
            async for frames in batches:
                async with aclosing(pieces_of(frames)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def follow(self, lines: FanoutCache) -> AsyncGenerator[Sequence[bytes | LargeFrame]]:
        """Yield the events of the run as frames, in batches as they arrive, until the run stops."""
        encoder = _Encoder(self.writer)
        past: deque[Record] = deque(maxlen=PAST_RECORDS)
        async for record in self._before():
            past.append(record)
            if visible := self._visible_frames(encoder.write(record), (record,)):
                yield visible
        view = (self._principal.owner, self.writer.view, self._tasks[0].created_at, len(self._tasks), self._extended)
        started_run = self._stop_after > 0 and len(self._tasks) == 1
        follower = lines.join(view, encoder, past, self._rebuild, started_run=started_run)
        past.clear()
        async with self._open_records() as batches:
            async for batch in batches:
                ready: list[bytes | LargeFrame] = []
                for passage, encoded in await follower.write_all(batch):
                    ready += self._visible_frames(encoded, passage)
                    if encoded.stopped and self._stops(passage[-1]):
                        yield ready
                        return
                if ready:
                    yield ready

    def _visible_frames(self, encoded: EncodedRecord, passage: Sequence[Record]) -> Sequence[bytes | LargeFrame]:
        """Return those frames of a record or a passage that are sent, without the events that are omitted."""
        first, last = passage[0].seq, passage[-1].seq
        if first > self._show_after and self._skip <= 0:
            return encoded.frames
        if first == last:
            return [frame for frame in encoded.frames if self._shows(first)]
        return [frame for record, frame in zip(passage, encoded.frames, strict=True) if self._shows(record.seq)]

    async def _rebuild(self, seq: int) -> Encoder:
        """Return an encoder that has read all records before the seq `seq`."""
        writer = _writer(self.writer.view, extended=self._extended)
        async with aclosing(self._log(self._tasks)) as records:
            async for record in records:
                if record.seq >= seq:
                    break
                writer.apply(record)
        return _Encoder(writer)

    def _stops(self, record: Record) -> bool:
        """Return True if the stream ends with this record, because the run has stopped.

        Only a change of the task is a stop, because at the first record of an answer the run is still awaiting. For a
        stream that was opened after the stop, the last existing record is the stop.
        """
        is_task_change = isinstance(record.event, TaskChanged) and record.seq > self._stop_after
        return is_task_change or record.seq == self._end

    async def stop(self) -> EventWriter:
        """Read the records until the run stops or the gateway shuts down. Return the writer, from which the caller gets
        the run."""
        async for record in self._before():
            self.writer.apply(record)
        async with self._open_records() as batches:
            async for batch in batches:
                for passage, texts in split_passages(batch):
                    if texts and self.writer.add_texts(passage[0], texts) is not None:
                        continue
                    for record in passage:
                        self.writer.apply(record)
                        if self.writer.has_stopped and self._stops(record):
                            return self.writer
        return self.writer


def _writer(view: EncodingContext, *, extended: bool) -> EventWriter:
    return RecordedWriter(view) if extended else EventWriter(view)


class _Encoder:
    """Encoder that converts the records of a run to frames."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer

    def write(self, record: Record) -> EncodedRecord:
        frames = [_frame(event) for event in self._writer.write(record)]
        return EncodedRecord(frames, self._writer.has_stopped)

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        content_type = self._writer.add_texts(passage[0], texts)
        if content_type is None:
            return None
        return _text_part(content_type).write(texts)


def _frame(event: BaseModel) -> bytes | LargeFrame:
    """Return the frame of an event, as bytes, or as a `LargeFrame` if the event is large."""
    if not isinstance(event, w.PartEvent):
        return frame_of(encode(event))
    # A part is one string, which is encoded in one step: its size need not be checked.
    part = event.part
    if part.content is None or part.model_fields_set != _TEXT:
        return frame(w.dump(event))
    return _text_part(part.content_type).write((part.content,))[0]


_TEXT: Final = {"content_type", "content"}
"""Names of the members that are set in a part which contains only plain text."""


@lru_cache(maxsize=64)
def _text_part(content_type: str | None) -> TextFrames:
    """Return the encoder of frames with a plain-text part of this content type."""
    return TextFrames(lambda text: w.PartEvent(part=w.MessagePart(content_type=content_type, content=text)))
