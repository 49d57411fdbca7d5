"""Streams of a task, and tasks as of their stop. Both are built from the records of the task's log."""

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
from babelgate.adapters.kit.server.fanout import PAST_RECORDS, EncodedRecord, Encoder, FanoutCache, Follower
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.canonical import Hub, Principal, Receipt, Record, Scope, Task, TaskState, TextPart
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
    # Specification 1.0, 11.7. By 3.1.2 a stream ends only in terminal states.
    return type(event) is TaskChanged and (event.state in TERMINAL or event.state in WAITING)


def _is_task_end(record: Record) -> bool:
    return isinstance(record.event, TaskChanged) and record.event.state in TERMINAL


class _Begin:
    """Predicate that is true for the record with which a submission is complete. A stream then sends its first event,
    the task.

    An input is complete when its run is created. An answer is complete with the change of state that follows in the
    same commit. Before that the task would still show as waiting, and clients disconnect when they see that.
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
    hub: Hub, principal: Principal, task: Task, after: int, *, extended: bool = False
) -> aclosing[AsyncGenerator[Sequence[Record]]]:
    """Return the records of a task after the seq `after`, and those to come, as a context that closes the reader on
    exit. With `extended`, states are whole, and not differences to earlier ones."""
    records = hub.reads.follow(principal, Scope.task(task), after, inline=True)
    return aclosing(complete_states(hub, principal, task.thread_id, records) if extended else records)


_OF_EITHER = (RunCreated, RunStarted, RunEnded, LossNoted, PartAdded, PartDelta, PartEnded, MessageEnded)
"""Types of events that do not show whether the agent answers with a task or with a message."""


def is_of_task(record: Record) -> bool:
    """Return True if a record shows that the agent answers with a task. Return False if the answer may still be a
    message alone."""
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
    hub: Hub, principal: Principal, receipt: Receipt, writer: EventWriter, until: Callable[[Record], bool] | None = None
) -> None:
    """Feed the task's records to the writer until the task stops after the submission of `receipt`, or the gateway
    stops.

    `until` can end the wait earlier: at the first record after the submission for which it returns True.
    """
    due = _Begin(receipt.run_id)
    begun = False
    first, extended = receipt.task.first_seq - 1, isinstance(writer, RecordedWriter)
    async with _open_records(hub, principal, receipt.task, first, extended=extended) as batches:
        async for batch in batches:
            for record in batch:
                writer.write(record)
                if begun and (_stops(record) or (until is not None and until(record))):
                    return
                begun = begun or due(record)


async def fold_task(
    hub: Hub, principal: Principal, task: Task, context_id: str, *, extended: bool = False
) -> EventWriter:
    """Return a writer that has read all records of a task, for an encoding of its current state. With `extended`, the
    writer keeps the records for the Babelgate extension."""
    writer = (RecordedWriter if extended else EventWriter)(task, context_id)
    log = hub.reads.log(principal, Scope.task(task), task.first_seq - 1, inline=True)
    async for records in complete_states(hub, principal, task.thread_id, log) if extended else log:
        for record in records:
            writer.write(record)
    return writer


_NOTHING: Final = EncodedRecord(())
_LARGE_TEXT: Final = 64 * 1024
"""Maximum length of a text delta that is encoded together with others, in characters. Chosen, not measured."""


class _Encoder:
    """Encoder that converts records to the events of a task's stream, each as JSON."""

    __slots__ = ("_artifact", "_before", "_dialect", "_extended", "_last", "_seq", "_template", "writer")

    def __init__(self, writer: EventWriter, dialect: Dialect, *, extended: bool) -> None:
        self.writer = writer
        self._extended = extended
        self._seq = 0
        """Seq of the last record that was read."""
        self._last: Record | None = None
        self._before = 0
        """Seq of the record before `_last`, for the member `after` of the envelope that contains `_last`."""
        self._dialect = dialect
        self._artifact: Artifact | None = None
        """Artifact to which the last passage of text deltas was appended, without its parts."""
        self._template: TextTemplate | None = None
        """Template of the update that appends plain text to `_artifact`."""

    def skip(self, record: Record) -> None:
        """Read a record without an event for it, because a later snapshot shows it."""
        self.writer.write(record)
        if self._extended:  # otherwise a silent stream would hold the input of its run
            self._before, self._last = self._seq, record
        self._seq = record.seq

    def snapshot(self, history_length: int | None = None, *, repeats: bool = False) -> bytes | LargeJson:
        """Return the task as of the last record that was read, as JSON. `history_length` is the maximum number of its
        newest messages (None: all).

        With `repeats`, the stream is a replay, so the envelope of the Babelgate extension contains the last record
        itself.
        """
        snapshot = self.writer.snapshot()
        if self._extended:
            last = self._last if repeats else None
            extension = envelope(self._seq) if last is None else envelope(self._before, (last,))
            snapshot = replace(snapshot, metadata={**snapshot.metadata, URI: extension})
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
        """Encode the updates of a record, and attach the record itself to the last of them, as the Babelgate extension
        requires.

        A record without updates is attached to a status update that repeats the current state.
        """
        extension, self._seq = envelope(self._seq, (record,)), record.seq
        *others, last = updates or (self._bare(record),)
        stopped = bool(updates) and type(last) is StatusUpdate and last.status.is_stop
        final = self._dialect.encode_update(last)
        update: JsonObject = next((final[name] for name in _WRAPPED if name in final), final)
        update["metadata"] = {**update.get("metadata", {}), URI: extension}
        return EncodedRecord([*map(self._encode, others), encode(final)], stopped)

    def _bare(self, record: Record) -> StatusUpdate:
        """Return a status update whose only purpose is to carry a record.

        A state that would end the stream is replaced by WORKING, because the record may be the answer to the open
        question.
        """
        state = self.writer.status.state
        open_state = TaskState.WORKING if state in TERMINAL | WAITING else state
        return StatusUpdate(self.writer.task_id, self.writer.context_id, Status(open_state, record.at))

    def _encode(self, update: Update) -> bytes | LargeJson:
        return encode(self._dialect.encode_update(update))


_WRAPPED: Final = ("statusUpdate", "artifactUpdate")
"""Members of a 1.0 stream event that contain the update (specification 1.0, 3.2.3). In 0.3 the event is the update
itself."""


@dataclass(frozen=True, slots=True)
class TaskStream:
    """Stream of one task for one caller, in one dialect."""

    hub: Hub
    principal: Principal
    task: Task
    context_id: str
    dialect: Dialect
    lines: FanoutCache
    extended: bool = False
    """True if the caller has activated the Babelgate extension."""
    in_pieces: bool = True
    """True if an answer is sent in pieces while it grows. False if it is sent in one update when it is complete."""

    def _fresh(self) -> _Encoder:
        writer = EventWriter(self.task, self.context_id, in_pieces=self.in_pieces)
        return _Encoder(writer, self.dialect, extended=self.extended)

    def _join(self, encoder: _Encoder, recent: Sequence[Record], *, started_run: bool = False) -> Follower:
        """Return the follower that continues the stream after a snapshot. It shares encoded events with other streams
        of the same view. `recent` are the newest records in the snapshot. `started_run` is True if the stream is the
        response to the request that started the run."""
        task = self.task
        form = (self.dialect.name, self.dialect.base_url, self.extended, self.in_pieces)
        view = (self.principal.owner, task.task_id, task.created_at, self.context_id, form)
        return self.lines.join(view, encoder, recent, self._again, started_run=started_run)

    def _log(self, after: int) -> aclosing[AsyncGenerator[Sequence[Record]]]:
        """Return the records of the task after the seq `after` that are in the log now, as a context that closes the
        reader on exit."""
        records = self.hub.reads.log(self.principal, Scope.task(self.task), after, inline=True)
        whole = complete_states(self.hub, self.principal, self.task.thread_id, records)
        return aclosing(whole if self.extended else records)

    async def _again(self, seq: int) -> Encoder:
        encoder = self._fresh()
        async with self._log(0) as batches:
            async for records in batches:
                for record in records:
                    if record.seq >= seq:
                        return encoder
                    encoder.skip(record)
        return encoder

    async def stream_answer(
        self, receipt: Receipt, history_length: int | None
    ) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """Yield the stream of a send to an agent that may answer with a message instead of a task.

        Nothing is sent until it is known which of the two the agent sends. A message is the only event of the stream. A
        task is followed as for every other agent. `history_length` is the maximum number of its newest messages (None:
        all).
        """
        writer = EventWriter(self.task, self.context_id)
        await wait_for_stop(self.hub, self.principal, receipt, writer, until=is_of_task)
        if writer.reply is not None:
            yield [encode(self.dialect.encode_reply(writer.reply, self.context_id))]
            return
        async with aclosing(self.follow(receipt.run_id, history_length)) as batches:
            async for batch in batches:
                yield batch

    async def follow(self, run_id: str, history_length: int | None) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """Yield the stream of a send: the task as of the submission, then its updates until it stops. `history_length`
        is the maximum number of the task's newest messages (None: all)."""
        due = _Begin(run_id)
        encoder = self._fresh()
        recent: list[Record] = []
        follower: Follower | None = None
        first = self.task.first_seq - 1
        async with _open_records(self.hub, self.principal, self.task, first, extended=self.extended) as batches:
            async for batch in batches:
                ready: list[bytes | LargeJson] = []
                news: Sequence[Record] = batch
                if follower is None:
                    for place, record in enumerate(batch, 1):
                        encoder.skip(record)
                        recent.append(record)
                        del recent[:-PAST_RECORDS]
                        if due(record):
                            ready.append(encoder.snapshot(history_length))
                            follower = self._join(encoder, recent, started_run=True)
                            recent.clear()
                            news = batch[place:]
                            del record
                            break
                    else:
                        continue
                stopped = await self._add(ready, follower, news)
                del batch, news  # a silent stream holds no records
                if ready:
                    yield ready
                if stopped:
                    return
                del ready

    async def replay(self, start: int | None) -> AsyncGenerator[Sequence[bytes | LargeJson]]:
        """Yield the task as of seq `start` (None: now), then its later events until it stops.

        The first event is the task (specification 1.0, 3.1.6). A question that is answered in the log does not end the
        stream. An open one does, unless the stream began with it: a client that subscribes to a waiting task wants to
        follow it.
        """
        encoder = self._fresh()
        follower: Follower | None = None
        recent: list[Record] = []
        last, over = 0, False
        async with self._log(self.task.first_seq - 1) as batches:
            async for records in batches:
                ready: list[bytes | LargeJson] = []
                for record in records:
                    last = record.seq
                    if follower is not None:
                        encoded = await follower.write_record(record)
                        ready += encoded.frames
                        over = encoded.stopped if encoded.frames else over
                        continue
                    encoder.skip(record)
                    recent.append(record)
                    del recent[:-PAST_RECORDS]
                    if (
                        start is not None
                        and record.seq >= start
                        and (self.extended or encoder.writer.run_id is not None)
                    ):
                        ready.append(encoder.snapshot(repeats=True))
                        follower = self._join(encoder, recent)
                        over = _is_task_end(record)
                if ready:
                    yield ready
        if follower is None:
            yield [encoder.snapshot()]
            follower = self._join(encoder, recent)
            over = _is_task_end(recent[-1])
        recent.clear()
        if over:
            return
        async with _open_records(self.hub, self.principal, self.task, last, extended=self.extended) as batches:
            async for batch in batches:
                ready = []
                stopped = await self._add(ready, follower, batch)
                if ready:
                    yield ready
                if stopped:
                    return

    @staticmethod
    async def _add(ready: list[bytes | LargeJson], follower: Follower, records: Sequence[Record]) -> bool:
        """Append the events for some records to `ready`. Return True if one of the records stops the task."""
        for passage, encoded in await follower.write_all(records):
            ready += encoded.frames
            if _stops(passage[-1]):
                return True
        return False
