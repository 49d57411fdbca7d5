"""Construction of an agent's `Invocation` for one run, from the log of its thread."""

from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import msgspec

from babelgate.canonical.agent import AgentInfo, Invocation
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    MessageStarted,
    Record,
    RunCreated,
    RunStarted,
    StateSaved,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.fold import Fold
from babelgate.canonical.history import Revision, StateHistory, UpstreamState
from babelgate.canonical.hub import Snapshot
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.replay import without_voided
from babelgate.canonical.thread import Interrupt, Run
from babelgate.gateway.runs.budget_question import is_budget_question
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.run_rows import bound_runs
from babelgate.gateway.storage.subscription import LogReader

S = TypeVar("S", bound=Snapshot)


class ThreadTranscript:
    """Messages of a thread in conversation order, which is the order in which its runs started.

    The order of the log is different: in it, a queued input precedes the answers that agents give while it waits. An
    input that still waits is not part of the conversation yet.
    """

    def __init__(self, thread_id: str, owner: str) -> None:
        self.fold = Fold(thread_id, owner)
        self.branches = False
        """True if callers have created revisions of the thread, or started runs from earlier ones."""
        self.started: dict[str, int] = {}
        """Seq of the record with which each run started first, by run id."""
        self._turns: list[tuple[str | None, str]] = []
        """Turns of the conversation in order: run id and "" for a run, None and the message id for a message outside of
        runs."""

    @property
    def seq(self) -> int:
        return self.fold.seq

    @property
    def size(self) -> int:
        return self.fold.size

    def copy(self) -> "ThreadTranscript":
        duplicate = ThreadTranscript(self.fold.thread_id, self.fold.owner)
        duplicate.fold, duplicate.branches = self.fold.copy(), self.branches
        duplicate.started, duplicate._turns = dict(self.started), list(self._turns)
        return duplicate

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

    def messages_except(self, but: frozenset[str]) -> tuple[Message, ...]:
        """Return all inputs and answers of the conversation, without progress messages, and without the messages of the
        runs whose ids are in `but`."""
        by_run = self.fold.messages_by_run()
        outside_runs = {message.message_id: message for message in by_run.get(None, ())}
        messages: list[Message] = []
        for run_id, message_id in self._turns:
            if run_id is not None:
                messages += by_run.get(run_id, ()) if run_id not in but else ()
            elif (message := outside_runs.pop(message_id, None)) is not None:
                messages.append(message)
        return tuple(message for message in messages if message.phase == "answer")


@dataclass(frozen=True, slots=True)
class Origin:
    """Run that another run continues. It was paused because the gateway asked its user for an authorization."""

    start: StartedRun
    answer: InterruptAnswered
    """Answer of the user to the gateway's question."""
    has_output: bool
    """True if the agent's server has assigned an id to the paused run, so that the rest of it can be read there."""


class Invocations:
    """Builder of invocations, and reader of the log records that the engine needs for a run."""

    def __init__(self, journal: Journal, blobs: Blobs, reader: LogReader) -> None:
        self._journal = journal
        self._reader = reader
        self._blobs = blobs

    async def make(self, start: StartedRun, info: AgentInfo) -> Invocation:
        """Return the invocation of a run's agent, with loaded files, the earlier messages, and the ids that the agent's
        server uses for the thread, task and run."""
        task, run = start.task, start.run
        created = start.created or await self.read_input(start)
        held = [run async for run in self._held_runs(start, created)]
        if held:
            created = held[-1][1]
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
            held_ids = frozenset(run_id for run_id, _ in held)
            runs = [run for run in await self._bound_runs(start) if run.run_id not in held_ids]
            # A branch starts a new conversation upstream, unless the agent can branch from its own revisions. The
            # existing conversation continues from the newest revision, and has messages that this branch must not see.
            forks = created.checkpoint is not None
            if not info.stateful and created.cause != "answer":  # an answer goes to the conversation of its question
                forks = forks or _is_since(start.last_edit_seq, start, runs)
            # On a thread that began with the state of another one, that state is a change before its first run.
            is_changed = _is_since(start.changed_values, start, runs)
            is_first = _is_first(start, runs)
            # A stateful agent starts from the state of another thread only in its first run.
            has_upstream_state = is_changed and is_first if info.stateful else is_changed or forks
            if has_upstream_state and created.cause != "answer" and info.takes_history:
                stored = await self._upstream_state(start, created)
                if info.stateful:
                    call = replace(call, origin=stored.ids)
                else:
                    call = replace(call, origin=stored.ids if is_first or forks else {}, state=stored.changed)
            upstream = {} if forks and not info.stateful else upstream_of(runs, task.task_id)
            call = replace(call, upstream=upstream)
            if info.takes_history and (forks or not info.remembers or is_first):
                call = replace(call, history=await self._history(start, created, held_ids))
        return call

    async def find_origin(self, start: StartedRun) -> Origin | None:
        """Return the paused run that `start` continues after the gateway has asked its user for an authorization.

        Return None if the run answers no question, or a question of the agent.
        """
        records = await self.span(start.pk, start.task.first_seq - 1)
        of_task = without_voided(record for record in records if record.task_id == start.task.task_id)
        fold = Fold(start.thread_id, start.owner, of_task)
        raised = {question.interrupt_id: question for question in fold.interrupts.values()}
        answers = {
            record.run_id: record.event
            for record in of_task
            if isinstance(record.event, InterruptAnswered) and record.event.action != "superseded"
        }
        run_id, first = start.run.run_id, answers.get(start.run.run_id)
        while (answer := answers.get(run_id)) is not None:
            question = raised.get(answer.interrupt_id)
            if (
                question is None
                or question.asker != "gateway"
                or (run_id != start.run.run_id and _is_known(fold, run_id))
            ):
                break
            run_id = question.run_id
        if first is None or run_id == start.run.run_id:
            return None
        origin = msgspec.structs.replace(start, run=fold.runs[run_id], created=None)
        return Origin(origin, first, _is_known(fold, run_id))

    async def find_input(self, start: StartedRun, created: RunCreated) -> RunCreated:
        """Return the event with the input that a run executes. A run that continues a run which the gateway had paused
        executes the input of that run."""
        async for _, origin in self._held_runs(start, created):
            created = origin
        return created

    async def _held_runs(self, start: StartedRun, created: RunCreated) -> AsyncGenerator[tuple[str, RunCreated]]:
        """Yield the runs that the gateway paused before their agent began, and whose input this run executes, each as
        its id and the event that created it. The newest is the first."""
        while created.resumes:
            run_id = created.resumes
            run = await self._journal.row(Run, start.owner, run_id)
            if run is None:
                raise FaultError(FaultCode.INTERNAL, f"Run {run_id} is not in the log")
            created = await self._read_created(start, run)
            yield run_id, created

    async def _bound_runs(self, start: StartedRun) -> Sequence[Run]:
        """Return the agent's runs on the thread to which its server has assigned ids.

        Skips the query if the whole log is in memory and this is the thread's only run.
        """
        log = self._journal.channels.get(start.pk).after(0)
        if log is not None and sum(isinstance(record.event, RunCreated) for record in log) == 1:
            return (start.run,)
        runs = await self._journal.query(bound_runs, start.pk, start.task.agent)
        # A run that continues another one after an authorization is later, and is not part of the conversation.
        return [run for run in runs if run.first_seq <= start.run.first_seq]

    async def _history(self, start: StartedRun, created: RunCreated, held: frozenset[str]) -> tuple[Message, ...]:
        """Return the messages of the thread before the run started.

        If callers created revisions or branches, these are the messages of the revision that the run starts from.
        Otherwise the messages of the runs whose ids are in `held` are left out.
        """
        transcript = await self._snapshot(
            start, ThreadTranscript, partial(ThreadTranscript, start.thread_id, start.owner)
        )
        if not transcript.branches:
            return transcript.messages_except(held | {start.run.run_id})
        _, revision = await self._start_state(start, created, transcript)
        return () if revision is None else revision.messages

    async def _upstream_state(self, start: StartedRun, created: RunCreated) -> UpstreamState:
        """Return the relation of the state from which the run starts to the state on the agent's server.

        The result is empty if the thread is too large to be loaded: most agents do not need the ids and can still run.
        """
        try:
            transcript = await self._snapshot(
                start, ThreadTranscript, partial(ThreadTranscript, start.thread_id, start.owner)
            )
            history, revision = await self._start_state(start, created, transcript)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:
                raise
            return UpstreamState()
        return UpstreamState() if revision is None else history.upstream_state(revision, start.task.agent)

    async def _start_state(
        self, start: StartedRun, created: RunCreated, transcript: ThreadTranscript
    ) -> tuple[StateHistory, Revision | None]:
        """Return the state history before the run started, and the revision that the run starts from."""
        started = transcript.started.get(start.run.run_id, start.run.first_seq)
        history = await self._snapshot(
            start, StateHistory, partial(StateHistory, start.thread_id, start.owner), started - 1
        )
        return history, history.head if created.checkpoint is None else history.get(created.checkpoint)

    async def _states(self, start: StartedRun) -> StateHistory:
        """Return the state history of the thread, or an empty one if the thread is too large.

        With an empty history, states are logged whole and not as differences.
        """
        empty = partial(StateHistory, start.thread_id, start.owner)
        try:
            return await self._snapshot(start, StateHistory, empty)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:
                raise
            return empty()

    async def _snapshot(self, start: StartedRun, name: Hashable, empty: Callable[[], S], until: int | None = None) -> S:
        return await self._reader.snapshot(start.owner, start.thread_id, name, empty, until=until)

    async def of_run(self, start: StartedRun) -> tuple[list[Record], int]:
        """Return the records of a run that are not void, and the seq of the newest record that was read."""
        records = await self.span(start.pk, start.run.first_seq - 1)
        seq = records[-1].seq if records else 0
        return without_voided(record for record in records if record.run_id == start.run.run_id), seq

    async def span(self, pk: int, after: int = 0) -> list[Record]:
        """Return all records of the thread with the key `pk` whose seq is greater than `after`."""
        records: list[Record] = []
        while page := await self._journal.page(pk, after, 2048):
            records += page
            after = page[-1].seq
        return records

    async def read_input(self, start: StartedRun) -> RunCreated:
        """Return the event that created a run, which has its input."""
        return await self._read_created(start, start.run)

    async def _read_created(self, start: StartedRun, run: Run) -> RunCreated:
        seq = run.first_seq
        for record in await self._journal.page(start.pk, seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.INTERNAL, f"Run {run.run_id} has no input in the log")

    async def _load_all(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple([await self._load_files(message) for message in messages])

    async def _load_files(self, message: Message) -> Message:
        if not any(isinstance(part, FilePart) and part.blob for part in message.parts):
            return message
        parts = [await self._blobs.load(part) if isinstance(part, FilePart) else part for part in message.parts]
        return message.replace(parts=tuple(parts))

    async def _task_records(self, start: StartedRun) -> Sequence[Record]:
        records = await self.span(start.pk, start.task.first_seq - 1)
        of_task = without_voided(record for record in records if record.task_id == start.task.task_id)
        return [await self._with_input(record) for record in hide_gateway_questions(of_task)]

    async def _with_input(self, record: Record) -> Record:
        """Return a record of a run, with loaded files if it has the run's input, because an agent that is started again
        needs them."""
        if not isinstance(record.event, RunCreated) or not record.event.messages:
            return record
        messages = await self._load_all(record.event.messages)
        return record.replace(event=record.event.replace(messages=messages))


def hide_gateway_questions(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records without the questions of the gateway and the answers to them, which agents do not see."""
    question_ids = {
        record.event.interrupt_id
        for record in records
        if isinstance(record.event, InterruptRaised) and record.event.asker == "gateway"
    }
    if not question_ids:
        return records
    kinds = (InterruptRaised, InterruptAnswered)
    return [each for each in records if not (isinstance(each.event, kinds) and each.event.interrupt_id in question_ids)]


def _is_known(fold: Fold, run_id: str) -> bool:
    """Return True if the agent's server has an id for a run."""
    return not fold.runs[run_id].upstream.keys().isdisjoint(("run", "task"))


def _is_first(start: StartedRun, runs: Sequence[Run]) -> bool:
    """Return True if this is the agent's first run on the thread, so that its server knows no earlier message."""
    return all(run.run_id == start.run.run_id or run.started_at is None or run.removed for run in runs)


def _is_since(seq: int, start: StartedRun, runs: Sequence[Run]) -> bool:
    """Return True if the record `seq` is newer than the creation of the agent's previous run on the thread."""
    return seq > max((run.first_seq for run in runs if run.run_id != start.run.run_id), default=0)


def upstream_of(runs: Sequence[Run], task_id: str) -> dict[str, str]:
    """Return the ids that an agent's server has assigned on a thread, by kind: `thread`, `task` or `run`.

    The id of the thread comes from the last of the agent's `runs`, the ids of the task and the run from the last run of
    the task.
    """
    ids: dict[str, str] = {}
    for run in runs:
        if not run.removed:
            is_other_task = run.task_id != task_id
            ids |= {k: v for k, v in run.upstream.items() if not (is_other_task and k in ("task", "run"))}
    return ids


def _answers(fold: Fold) -> tuple[InterruptAnswered, ...]:
    """Return the answers to the questions with which the task's agent last paused. Questions of the gateway about
    budgets are left out."""
    answered = [
        question
        for question in fold.interrupts.values()
        if question.action in ("answer", "decline") and not is_budget_question(question)
    ]
    last = answered[-1].run_id if answered else None
    return tuple(_answer(question) for question in answered if question.run_id == last)


def _answer(question: Interrupt) -> InterruptAnswered:
    action = "decline" if question.action == "decline" else "answer"
    return InterruptAnswered(interrupt_id=question.interrupt_id, action=action, value=question.answer)
