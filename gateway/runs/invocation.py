"""Invocation: what an agent is given for one activation, read from the log."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from babelgate.canonical.agent import AgentInfo, Invocation
from babelgate.canonical.event import InterruptAnswered, MessageStarted, Record, RunCreated, RunStarted, StateSaved
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.fold import Fold
from babelgate.canonical.history import Origin, Revision, StateHistory
from babelgate.canonical.hub import Snapshot
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.replay import standing
from babelgate.canonical.thread import Interrupt, Run
from babelgate.gateway.runs.lifecycle import Start
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.run_rows import bound_runs
from babelgate.gateway.storage.subscription import LogReader

S = TypeVar("S", bound=Snapshot)


class Transcript:
    """Who said what on a thread, run by run in the order of their turns: an input that waited stands in the log before
    the answers that it waited for, and one that still waits was not said yet."""

    def __init__(self, thread_id: str, owner: str) -> None:
        self.fold = Fold(thread_id, owner)
        self.branches = False
        """Whether the conversation is no single line."""
        self.started: dict[str, int] = {}
        """By run, the seq at which it did first."""
        self._turns: list[tuple[str | None, str]] = []
        """Runs, and under None the messages of a conversation that was held elsewhere, where it was told."""

    @property
    def seq(self) -> int:
        return self.fold.seq

    @property
    def size(self) -> int:
        return self.fold.size

    def copy(self) -> "Transcript":
        made = Transcript(self.fold.thread_id, self.fold.owner)
        made.fold, made.branches = self.fold.copy(), self.branches
        made.started, made._turns = dict(self.started), list(self._turns)
        return made

    def apply(self, record: Record) -> None:
        self.fold.apply(record)
        event, run_id = record.event, record.run_id
        match event:
            case RunCreated():
                self.branches = self.branches or event.checkpoint is not None
            case StateSaved() if run_id is None:
                self.branches = True
            case MessageStarted() if run_id is None:
                self._turns.append((None, event.message_id or ""))
            case RunStarted() if run_id is not None and run_id not in self.started:
                self.started[run_id] = record.seq
                self._turns.append((run_id, ""))
            case _:
                pass

    def messages_except(self, but: str) -> tuple[Message, ...]:
        """All answers and inputs, without those of one run."""
        by_run = self.fold.messages_by_run()
        elsewhere = {message.message_id: message for message in by_run.get(None, ())}
        told: list[Message] = []
        for run_id, message_id in self._turns:
            if run_id is not None:
                told += by_run.get(run_id, ()) if run_id != but else ()
            elif (message := elsewhere.pop(message_id, None)) is not None:
                told.append(message)
        return tuple(message for message in told if message.phase == "answer")


class Invocations:
    def __init__(self, journal: Journal, blobs: Blobs, reader: LogReader) -> None:
        self._journal = journal
        self._reader = reader
        self._blobs = blobs

    async def make(self, start: Start, info: AgentInfo) -> Invocation:
        task, run = start.task, start.run
        created = start.created or await self._run_input(start)
        past = partial(self._task_records, start)
        call = Invocation(
            owner=start.owner,
            agent=task.agent,
            thread_id=start.thread_id,
            task_id=task.task_id,
            run_id=run.run_id,
            attempt=run.attempt,
            cause=created.cause,
            input=created.input.replace(messages=await self._load_all(created.messages)),
            metadata=task.metadata,
            # The thread, the task and the run are its first three records.
            opens_thread=run.first_seq <= 3 and task.first_seq <= 2 and run.attempt <= 1,
            past=past,
            states=partial(self._states, start),
            with_files=self._load_files,
        )
        if created.cause == "answer":
            call = replace(call, answers=_answers(Fold(start.thread_id, start.owner, await past())))
        if not call.opens_thread:
            runs = await self._bound_runs(start)
            # A branch begins a conversation of its own upstream, unless the agent has revisions to branch from: the one
            # that goes on from the newest revision knows what this one must not.
            forks = created.checkpoint is not None
            if not info.stateful and created.cause != "answer":  # an answer goes to whoever asked
                forks = forks or _is_since(start.last_edit_seq, start, runs)
            # A thread that began with the state of another one has a change of it before its first run.
            is_changed = _is_since(start.changed_values, start, runs)
            is_first = _is_first(start, runs)
            # Of an agent with a state of its own only the first run starts from what another thread was.
            has_origin = is_changed and is_first if info.stateful else is_changed or forks
            if has_origin and created.cause != "answer" and info.takes_history:
                origin = await self._origin(start, created)
                if info.stateful:
                    call = replace(call, origin=origin.ids)
                else:
                    call = replace(call, origin=origin.ids if is_first or forks else {}, state=origin.changed)
            known = {} if forks and not info.stateful else upstream_of(runs, task.task_id)
            call = replace(call, upstream=known)
            if info.takes_history and (forks or not info.remembers or is_first):
                call = replace(call, history=await self._history(start, created))
        return call

    async def _bound_runs(self, start: Start) -> Sequence[Run]:
        """Those that know the upstream's ids. Of a thread whose whole log is in memory, and which has this run alone,
        the database need not be asked."""
        log = self._journal.channels.get(start.pk).after(0)
        if log is not None and sum(isinstance(record.event, RunCreated) for record in log) == 1:
            return (start.run,)
        return await self._journal.query(bound_runs, start.pk, start.task.agent)

    async def _history(self, start: Start, created: RunCreated) -> tuple[Message, ...]:
        """What was said on the thread before the run started. Where callers made revisions or branches, these
        decide."""
        transcript = await self._snapshot(start, Transcript, partial(Transcript, start.thread_id, start.owner))
        if not transcript.branches:
            return transcript.messages_except(start.run.run_id)
        _, revision = await self._start_state(start, created, transcript)
        return () if revision is None else revision.messages

    async def _origin(self, start: Start, created: RunCreated) -> Origin:
        """What the agent's own server knows of the state that the run starts from. Of a thread that is too large to be
        put together, nothing: most agents do not ask, and their runs go on."""
        try:
            transcript = await self._snapshot(start, Transcript, partial(Transcript, start.thread_id, start.owner))
            history, revision = await self._start_state(start, created, transcript)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:
                raise
            return Origin()
        return Origin() if revision is None else history.origin(revision, start.task.agent)

    async def _start_state(
        self, start: Start, created: RunCreated, transcript: Transcript
    ) -> tuple[StateHistory, Revision | None]:
        begun = transcript.started.get(start.run.run_id, start.run.first_seq)
        history = await self._snapshot(
            start, StateHistory, partial(StateHistory, start.thread_id, start.owner), begun - 1
        )
        return history, history.head if created.checkpoint is None else history.get(created.checkpoint)

    async def _states(self, start: Start) -> StateHistory:
        """None of a thread that is too large: what is told of it then is told whole."""
        empty = partial(StateHistory, start.thread_id, start.owner)
        try:
            return await self._snapshot(start, StateHistory, empty)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:
                raise
            return empty()

    async def _snapshot(self, start: Start, name: Hashable, empty: Callable[[], S], until: int | None = None) -> S:
        return await self._reader.snapshot(start.owner, start.thread_id, name, empty, until=until)

    async def of_run(self, start: Start) -> tuple[list[Record], int]:
        """The records of a run so far, of those that stand, and the seq up to which the log was read."""
        records = await self.span(start.pk, start.run.first_seq - 1)
        seq = records[-1].seq if records else 0
        return standing(record for record in records if record.run_id == start.run.run_id), seq

    async def span(self, pk: int, after: int = 0) -> list[Record]:
        records: list[Record] = []
        while page := await self._journal.page(pk, after, 2048):
            records += page
            after = page[-1].seq
        return records

    async def _run_input(self, start: Start) -> RunCreated:
        seq = start.run.first_seq
        for record in await self._journal.page(start.pk, seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.INTERNAL, f"Run {start.run.run_id} has no input in the log")

    async def _load_all(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple([await self._load_files(message) for message in messages])

    async def _load_files(self, message: Message) -> Message:
        if not any(isinstance(part, FilePart) and part.blob for part in message.parts):
            return message
        parts = [await self._blobs.load(part) if isinstance(part, FilePart) else part for part in message.parts]
        return message.replace(parts=tuple(parts))

    async def _task_records(self, start: Start) -> Sequence[Record]:
        records = await self.span(start.pk, start.task.first_seq - 1)
        of_task = standing(record for record in records if record.task_id == start.task.task_id)
        return [await self._with_input(record) for record in of_task]

    async def _with_input(self, record: Record) -> Record:
        """With the files of an input: an agent that starts over gets them again."""
        if not isinstance(record.event, RunCreated) or not record.event.messages:
            return record
        messages = await self._load_all(record.event.messages)
        return record.replace(event=record.event.replace(messages=messages))


def _is_first(start: Start, runs: Sequence[Run]) -> bool:
    """Whether the agent was not at work on the thread before: of what was said by then it remembers nothing."""
    return all(run.run_id == start.run.run_id or run.started_at is None or run.removed for run in runs)


def _is_since(seq: int, start: Start, runs: Sequence[Run]) -> bool:
    """Whether it stands in the log since the agent heard of the conversation."""
    return seq > max((run.first_seq for run in runs if run.run_id != start.run.run_id), default=0)


def upstream_of(runs: Sequence[Run], task_id: str) -> dict[str, str]:
    """The upstream's ids, as an agent's runs on a thread bound them: of the thread by the last one, of the task by the
    task's last one."""
    ids: dict[str, str] = {}
    for run in runs:
        if not run.removed:
            thread_wide = run.task_id != task_id
            ids |= {k: v for k, v in run.upstream.items() if not (thread_wide and k in ("task", "run"))}
    return ids


def _answers(fold: Fold) -> tuple[InterruptAnswered, ...]:
    """To all the questions that the task's last pause was for."""
    answered = [asked for asked in fold.interrupts.values() if asked.action in ("answer", "decline")]
    last = answered[-1].run_id if answered else None
    return tuple(_answer(asked) for asked in answered if asked.run_id == last)


def _answer(asked: Interrupt) -> InterruptAnswered:
    action = "decline" if asked.action == "decline" else "answer"
    return InterruptAnswered(interrupt_id=asked.interrupt_id, action=action, value=asked.answer)
