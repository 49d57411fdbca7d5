"""A2A streams and polling: a task's log → the events of a stream, or the task as it is when it stops."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from adapters._server.encoding import LargeJson, TextTemplate, encode
from adapters._server.fanout import SEEN, EncodedRecord, Encoder, FanoutCache, Follower
from adapters.a2a.codec.dialect import Dialect
from adapters.a2a.wire.task import ArtifactUpdate, StatusUpdate, Update, is_reply
from adapters.a2a.write.task_events import EventWriter
from canonical import Hub, Receipt, Record, Scope, Task
from canonical.event import (
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskChanged,
    UpstreamBound,
)
from canonical.state import TERMINAL, WAITING


def _stops(record: Record) -> bool:
    event = record.event
    return isinstance(event, TaskChanged) and (event.state in TERMINAL or event.state in WAITING)


def _is_task_end(record: Record) -> bool:
    return isinstance(record.event, TaskChanged) and record.event.state in TERMINAL


class _Begin:
    """Finds the record that completes a submission: with it the stream's first event, the task, is taken.

    An input is complete with its run. An answer is only with the change of state that follows it, in the same commit:
    before it the task would show as waiting still, and clients leave when they see that.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._answer = False

    def __call__(self, record: Record) -> bool:
        event = record.event
        if isinstance(event, RunCreated) and event.run_id == self._run_id:
            self._answer = event.cause == "answer"
            return not self._answer
        return self._answer and isinstance(event, TaskChanged)


def _open_records(hub: Hub, owner: str, task: Task, after: int) -> aclosing[AsyncGenerator[Sequence[Record]]]:
    """The task's records from `after` on; the reader is closed as soon as nobody follows it."""
    return aclosing(hub.reads.follow(owner, Scope.task(task), after, inline=True))


_OF_EITHER = (RunCreated, RunStarted, RunEnded, LossNoted, PartAdded, PartDelta, PartEnded, MessageEnded)
"""Events of runs that are answered with a message, too."""


def tells_of_a_task(record: Record) -> bool:
    """Whether an agent that may answer with a message alone, and has been asked, makes a task of it."""
    match record.event:
        case UpstreamBound(ids=ids):
            return "task" in ids
        case MessageStarted(extra=extra):
            return not is_reply(extra)
        case TaskChanged():
            return _stops(record)
        case _:
            return not isinstance(record.event, _OF_EITHER)


async def wait_for_stop(
    hub: Hub, owner: str, receipt: Receipt, writer: EventWriter, until: Callable[[Record], bool] | None = None
) -> None:
    """Read the task until it stops after a submission, or the gateway does; or until some record is there before."""
    due = _Begin(receipt.run_id)
    begun = False
    async with _open_records(hub, owner, receipt.task, receipt.task.first_seq - 1) as batches:
        async for batch in batches:
            for record in batch:
                writer.write(record)
                if begun and (_stops(record) or (until is not None and until(record))):
                    return
                begun = begun or due(record)


async def fold_task(hub: Hub, owner: str, task: Task, context_id: str) -> EventWriter:
    """All that is known of the task now."""
    writer = EventWriter(task, context_id)
    async for records in hub.reads.log(owner, Scope.task(task), task.first_seq - 1, inline=True):
        for record in records:
            writer.write(record)
    return writer


_NOTHING: Final = EncodedRecord(())
_LARGE_TEXT: Final = 64 * 1024
"""Characters that are encoded at once, whatever else there is."""


class _Encoder:
    """Records → the events of a stream, each as JSON."""

    __slots__ = ("_dialect", "_piece", "_template", "writer")

    def __init__(self, writer: EventWriter, dialect: Dialect) -> None:
        self.writer = writer
        self._dialect = dialect
        self._piece: ArtifactUpdate | None = None
        """The piece of text that the template was made of."""
        self._template: TextTemplate | None = None

    def write(self, record: Record) -> EncodedRecord:
        updates = self.writer.write(record)
        if not updates:
            return _NOTHING
        last = updates[-1]
        stopped = type(last) is StatusUpdate and last.status.stops
        return EncodedRecord([self._encode(update) for update in updates], stopped)

    def _encode(self, update: Update) -> bytes | LargeJson:
        if type(update) is not ArtifactUpdate or (text := update.text) is None or len(text) > _LARGE_TEXT:
            return encode(self._dialect.encode_update(update))
        if self._template is None or self._piece is None or not update.is_beside(self._piece):
            self._piece = update
            self._template = TextTemplate(lambda text: self._dialect.encode_update(update.with_text(text)))
        return self._template.encode(text)


@dataclass(frozen=True, slots=True)
class TaskStream:
    """One reading of a task, as a stream in one dialect."""

    hub: Hub
    owner: str
    task: Task
    context_id: str
    dialect: Dialect
    lines: FanoutCache

    def _fresh(self) -> _Encoder:
        return _Encoder(EventWriter(self.task, self.context_id), self.dialect)

    def _join(self, encoder: _Encoder, seen: Sequence[Record]) -> Follower:
        """Go on from a snapshot with whoever reads the same."""
        task = self.task
        view = (self.owner, task.task_id, task.created_at, self.context_id, self.dialect.name, self.dialect.base_url)
        return self.lines.join(view, encoder, seen, self._again)

    def _now(self, encoder: _Encoder) -> bytes | LargeJson:
        return encode(self.dialect.encode_update(encoder.writer.snapshot()))

    async def _again(self, seq: int) -> Encoder:
        encoder = self._fresh()
        async with aclosing(self.hub.reads.log(self.owner, Scope.task(self.task), inline=True)) as known:
            async for records in known:
                for record in records:
                    if record.seq >= seq:
                        return encoder
                    encoder.writer.write(record)
        return encoder

    async def stream_answer(
        self, receipt: Receipt, history_length: int | None
    ) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """What a send's stream shows of an agent that may answer with a message: nothing before it is known that there
        is a task, then the same as of any other; where there is none, the message alone."""
        writer = EventWriter(self.task, self.context_id)
        await wait_for_stop(self.hub, self.owner, receipt, writer, until=tells_of_a_task)
        if writer.reply is not None:
            yield [encode(self.dialect.encode_reply(writer.reply, self.context_id))]
            return
        async with aclosing(self.follow(receipt.run_id, history_length)) as batches:
            async for batch in batches:
                yield batch

    async def follow(self, run_id: str, history_length: int | None) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """What a send's stream shows: the task as of the submission, then its updates until it stops."""
        due = _Begin(run_id)
        encoder = self._fresh()
        seen: list[Record] = []
        follower: Follower | None = None
        async with _open_records(self.hub, self.owner, self.task, self.task.first_seq - 1) as batches:
            async for batch in batches:
                ready: list[bytes | LargeJson] = []
                for record in batch:
                    if follower is not None:
                        ready += (follower.look_up(record) or await follower.write_record(record)).frames
                        if _stops(record):
                            yield ready
                            return
                        continue
                    encoder.writer.write(record)
                    seen.append(record)
                    del seen[:-SEEN]
                    if due(record):
                        ready.append(encode(self.dialect.encode_update(encoder.writer.snapshot(), history_length)))
                        follower = self._join(encoder, seen)
                        seen.clear()
                if ready:
                    yield ready

    async def replay(self, start: int | None) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """The task as it was at seq `start` (None = now), what has happened since, and what happens until it stops.

        A question that was answered since does not end the stream, one that is open does, unless the stream began with
        it: whoever subscribes to a waiting task wants to see what becomes of it.
        """
        encoder = self._fresh()
        follower: Follower | None = None
        seen: list[Record] = []
        last, over = 0, False
        log = self.hub.reads.log(self.owner, Scope.task(self.task), self.task.first_seq - 1, inline=True)
        async with aclosing(log) as known:
            async for records in known:
                ready: list[bytes | LargeJson] = []
                for record in records:
                    last = record.seq
                    if follower is not None:
                        told = follower.look_up(record) or await follower.write_record(record)
                        ready += told.frames
                        over = told.stopped if told.frames else over
                        continue
                    encoder.writer.write(record)
                    seen.append(record)
                    del seen[:-SEEN]
                    if start is not None and record.seq >= start and encoder.writer.run_id is not None:
                        ready.append(self._now(encoder))
                        follower = self._join(encoder, seen)
                        over = _is_task_end(record)
                if ready:
                    yield ready
        if follower is None:
            yield [self._now(encoder)]
            follower = self._join(encoder, seen)
            over = _is_task_end(seen[-1])
        seen.clear()
        if over:
            return
        async with _open_records(self.hub, self.owner, self.task, last) as batches:
            async for batch in batches:
                ready = []
                for record in batch:
                    ready += (follower.look_up(record) or await follower.write_record(record)).frames
                    if _stops(record):
                        yield ready
                        return
                if ready:
                    yield ready
