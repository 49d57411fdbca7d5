"""A2A streams and polling: a task's log → the events of a stream, or the task as it is when it stops."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.wire.task import Artifact, ArtifactUpdate, Status, StatusUpdate, Update, is_reply
from babelgate.adapters.a2a.write.recorded import RecordedWriter
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.extension import URI, envelope
from babelgate.adapters.kit.server.encoding import LargeJson, TextTemplate, encode
from babelgate.adapters.kit.server.fanout import SEEN, EncodedRecord, Encoder, FanoutCache, Follower
from babelgate.adapters.kit.server.whole_states import tell_states_whole
from babelgate.canonical import Hub, Receipt, Record, Scope, Task, TaskState, TextPart
from babelgate.canonical.event import (
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
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import JsonObject


def _stops(record: Record) -> bool:
    event = record.event
    # Specification 1.0, 11.7; by 3.1.2 a stream ends in terminal states alone.
    return type(event) is TaskChanged and (event.state in TERMINAL or event.state in WAITING)


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


def _open_records(
    hub: Hub, owner: str, task: Task, after: int, *, extended: bool = False
) -> aclosing[AsyncGenerator[Sequence[Record]]]:
    """The task's records from `after` on; the reader is closed as soon as nobody follows it."""
    records = hub.reads.follow(owner, Scope.task(task), after, inline=True)
    return aclosing(tell_states_whole(hub, owner, task.thread_id, records) if extended else records)


_OF_EITHER = (RunCreated, RunStarted, RunEnded, LossNoted, PartAdded, PartDelta, PartEnded, MessageEnded)
"""Events of runs that are answered with a message, too."""


def is_of_task(record: Record) -> bool:
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
    first, extended = receipt.task.first_seq - 1, isinstance(writer, RecordedWriter)
    async with _open_records(hub, owner, receipt.task, first, extended=extended) as batches:
        async for batch in batches:
            for record in batch:
                writer.write(record)
                if begun and (_stops(record) or (until is not None and until(record))):
                    return
                begun = begun or due(record)


async def fold_task(hub: Hub, owner: str, task: Task, context_id: str, *, extended: bool = False) -> EventWriter:
    """All that is known of the task now."""
    writer = (RecordedWriter if extended else EventWriter)(task, context_id)
    log = hub.reads.log(owner, Scope.task(task), task.first_seq - 1, inline=True)
    async for records in tell_states_whole(hub, owner, task.thread_id, log) if extended else log:
        for record in records:
            writer.write(record)
    return writer


_NOTHING: Final = EncodedRecord(())
_LARGE_TEXT: Final = 64 * 1024
"""Characters that are encoded at once, whatever else there is. Chosen, not measured."""


class _Encoder:
    """Records → the events of a stream, each as JSON."""

    __slots__ = ("_artifact", "_before", "_dialect", "_extended", "_last", "_seq", "_template", "writer")

    def __init__(self, writer: EventWriter, dialect: Dialect, *, extended: bool) -> None:
        self.writer = writer
        self._extended = extended
        self._seq = 0
        """Of the last record."""
        self._last: Record | None = None
        self._before = 0
        """Of the one before it."""
        self._dialect = dialect
        self._artifact: Artifact | None = None
        """That grows."""
        self._template: TextTemplate | None = None
        """Of some plain text that is added to it."""

    def skip(self, record: Record) -> None:
        """Know of a record that is shown as part of a snapshot."""
        self.writer.write(record)
        self._before, self._last, self._seq = self._seq, record, record.seq

    def snapshot(self, history_length: int | None = None, *, repeats: bool = False) -> bytes | LargeJson:
        """`repeats` = what comes after some record is told again, and the last one may be the first that comes."""
        snapshot = self.writer.snapshot()
        if self._extended:
            last = self._last if repeats else None
            told = envelope(self._seq) if last is None else envelope(self._before, (last,))
            snapshot = replace(snapshot, metadata={**snapshot.metadata, URI: told})
        return encode(self._dialect.encode_update(snapshot, history_length))

    def write(self, record: Record) -> EncodedRecord:
        updates = self.writer.write(record)
        if self._extended:
            return self._write_extended(record, updates)
        if not updates:
            return _NOTHING
        last = updates[-1]
        stopped = type(last) is StatusUpdate and last.status.is_stop
        return EncodedRecord([self._encode(update) for update in updates], stopped)

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        if self._extended or max(map(len, texts)) > _LARGE_TEXT:
            return None
        artifact = self.writer.add_texts(passage[0], texts)
        if artifact is None:
            return None
        if self._template is None or artifact is not self._artifact:
            self._artifact = artifact
            self._template = TextTemplate(self._more_of(artifact))
        return self._template.encode_all(texts)

    def _more_of(self, artifact: Artifact) -> Callable[[str], JsonObject]:
        def more(text: str) -> JsonObject:
            piece = replace(artifact, parts=(TextPart(text=text),))
            return self._dialect.encode_update(
                ArtifactUpdate(self.writer.task_id, self.writer.context_id, piece, append=True)
            )

        return more

    def _write_extended(self, record: Record, updates: Sequence[Update]) -> EncodedRecord:
        """The last of its frames has the record, too, or a frame of its own, which says nothing that is new."""
        told, self._seq = envelope(self._seq, (record,)), record.seq
        *others, last = updates or (self._bare(record),)
        stopped = bool(updates) and type(last) is StatusUpdate and last.status.is_stop
        final = self._dialect.encode_update(last)
        update: JsonObject = next((final[name] for name in _WRAPPED if name in final), final)
        update["metadata"] = {**update.get("metadata", {}), URI: told}
        return EncodedRecord([*map(self._encode, others), encode(final)], stopped)

    def _bare(self, record: Record) -> StatusUpdate:
        """Never of a state that would end the stream: what is asked may be answered by this very record."""
        state = self.writer.status.state
        shown = TaskState.WORKING if state in TERMINAL | WAITING else state
        return StatusUpdate(self.writer.task_id, self.writer.context_id, Status(shown, record.at))

    def _encode(self, update: Update) -> bytes | LargeJson:
        return encode(self._dialect.encode_update(update))


_WRAPPED: Final = ("statusUpdate", "artifactUpdate")
"""Specification 1.0, 3.2.3: an event of a stream is a member of that name; in 0.3 it stands alone."""


@dataclass(frozen=True, slots=True)
class TaskStream:
    """One reading of a task, as a stream in one dialect."""

    hub: Hub
    owner: str
    task: Task
    context_id: str
    dialect: Dialect
    lines: FanoutCache
    extended: bool = False
    """The caller has activated the extension."""
    in_pieces: bool = True
    """Show a growing answer; otherwise one update when it is complete."""

    def _fresh(self) -> _Encoder:
        writer = EventWriter(self.task, self.context_id, in_pieces=self.in_pieces)
        return _Encoder(writer, self.dialect, extended=self.extended)

    def _join(self, encoder: _Encoder, seen: Sequence[Record], *, started_run: bool = False) -> Follower:
        """Go on from a snapshot with whoever reads the same."""
        task = self.task
        spoken = (self.dialect.name, self.dialect.base_url, self.extended, self.in_pieces)
        view = (self.owner, task.task_id, task.created_at, self.context_id, spoken)
        return self.lines.join(view, encoder, seen, self._again, started_run=started_run)

    def _log(self, after: int) -> aclosing[AsyncGenerator[Sequence[Record]]]:
        """What is known of the task now."""
        records = self.hub.reads.log(self.owner, Scope.task(self.task), after, inline=True)
        whole = tell_states_whole(self.hub, self.owner, self.task.thread_id, records)
        return aclosing(whole if self.extended else records)

    async def _again(self, seq: int) -> Encoder:
        encoder = self._fresh()
        async with self._log(0) as known:
            async for records in known:
                for record in records:
                    if record.seq >= seq:
                        return encoder
                    encoder.skip(record)
        return encoder

    async def stream_answer(
        self, receipt: Receipt, history_length: int | None
    ) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """What a send's stream shows of an agent that may answer with a message: nothing before it is known that there
        is a task, then the same as of any other; where there is none, the message alone."""
        writer = EventWriter(self.task, self.context_id)
        await wait_for_stop(self.hub, self.owner, receipt, writer, until=is_of_task)
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
        first = self.task.first_seq - 1
        async with _open_records(self.hub, self.owner, self.task, first, extended=self.extended) as batches:
            async for batch in batches:
                ready: list[bytes | LargeJson] = []
                news: Sequence[Record] = batch
                if follower is None:
                    for place, record in enumerate(batch, 1):
                        encoder.skip(record)
                        seen.append(record)
                        del seen[:-SEEN]
                        if due(record):
                            ready.append(encoder.snapshot(history_length))
                            follower = self._join(encoder, seen, started_run=True)
                            seen.clear()
                            news = batch[place:]
                            break
                    else:
                        continue
                stopped = await self._add(ready, follower, news)
                if ready:
                    yield ready
                if stopped:
                    return

    async def replay(self, start: int | None) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """The task as it was at seq `start` (None = now), what has happened since, and what happens until it stops
        (specification 1.0, 3.1.6).

        A question that was answered since does not end the stream, one that is open does, unless the stream began with
        it: whoever subscribes to a waiting task wants to see what becomes of it.
        """
        encoder = self._fresh()
        follower: Follower | None = None
        seen: list[Record] = []
        last, over = 0, False
        async with self._log(self.task.first_seq - 1) as known:
            async for records in known:
                ready: list[bytes | LargeJson] = []
                for record in records:
                    last = record.seq
                    if follower is not None:
                        told = await follower.write_record(record)
                        ready += told.frames
                        over = told.stopped if told.frames else over
                        continue
                    encoder.skip(record)
                    seen.append(record)
                    del seen[:-SEEN]
                    if (
                        start is not None
                        and record.seq >= start
                        and (self.extended or encoder.writer.run_id is not None)
                    ):
                        ready.append(encoder.snapshot(repeats=True))
                        follower = self._join(encoder, seen)
                        over = _is_task_end(record)
                if ready:
                    yield ready
        if follower is None:
            yield [encoder.snapshot()]
            follower = self._join(encoder, seen)
            over = _is_task_end(seen[-1])
        seen.clear()
        if over:
            return
        async with _open_records(self.hub, self.owner, self.task, last, extended=self.extended) as batches:
            async for batch in batches:
                ready = []
                stopped = await self._add(ready, follower, batch)
                if ready:
                    yield ready
                if stopped:
                    return

    @staticmethod
    async def _add(ready: list[bytes | LargeJson], follower: Follower, records: Sequence[Record]) -> bool:
        """What some records became; whether the task has stopped with one of them."""
        for passage, told in await follower.write_all(records):
            ready += told.frames
            if _stops(passage[-1]):
                return True
        return False
