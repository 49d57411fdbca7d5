"""What an agent is given for one activation, read from the log."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from canonical.agent import AgentInfo, Invocation
from canonical.event import InterruptAnswered, MessageStarted, Record, RunCreated, RunStarted, StateSaved
from canonical.fault import FaultCode, FaultError
from canonical.fold import Fold
from canonical.history import History
from canonical.message import FilePart, Message
from canonical.thread import Interrupt, Run
from gateway import turn
from gateway.blob import Blobs
from gateway.journal import Journal
from gateway.turn import Start

__all__ = ("Invocations", "upstream_of")


class Invocations:
    def __init__(self, journal: Journal, blobs: Blobs) -> None:
        self._journal = journal
        self._blobs = blobs

    async def make(self, start: Start, info: AgentInfo) -> Invocation:
        task, run = start.task, start.run
        created = start.created or await self._created(start)
        past = partial(self._task_records, start)
        call = Invocation(
            owner=start.owner,
            agent=task.agent,
            thread_id=start.thread_id,
            task_id=task.task_id,
            run_id=run.run_id,
            attempt=run.attempt,
            cause=created.cause,
            messages=tuple([await self._loaded(message) for message in created.messages]),
            data=created.data,
            checkpoint=created.checkpoint,
            config=created.config,
            metadata=task.metadata,
            headers=created.headers,
            past=past,
        )
        if created.cause == "answer":
            call = replace(call, answers=_answers(Fold(start.thread_id, start.owner, await past())))
        if run.first_seq > 3 or task.first_seq > 2 or run.attempt > 1:  # all but a new thread's first start
            runs = await self._journal.query(partial(turn.bound_runs, pk=start.pk, agent=task.agent))
            # A branch begins a conversation of its own upstream, unless the agent has revisions to branch from: the one
            # that goes on from the newest revision knows what this one must not.
            forks = created.checkpoint is not None
            if not info.stateful and created.cause != "answer":  # an answer goes to whoever asked
                forks = forks or _is_revised(start, runs)
            known = {} if forks and not info.stateful else upstream_of(runs, task.task_id)
            call = replace(call, upstream=known)
            if info.takes_history and (forks or not info.remembers or _is_first(start, runs)):
                call = replace(call, history=_history(start, created, await self.span(start.pk)))
        return call

    async def of_run(self, start: Start) -> list[Record]:
        """The records of a run so far."""
        return [r for r in await self.span(start.pk, start.run.first_seq - 1) if r.run_id == start.run.run_id]

    async def span(self, pk: int, after: int = 0) -> list[Record]:
        records: list[Record] = []
        while page := await self._journal.page(pk, after, 2048):
            records += page
            after = page[-1].seq
        return records

    async def _created(self, start: Start) -> RunCreated:
        seq = start.run.first_seq
        for record in await self._journal.page(start.pk, seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.INTERNAL, f"Run {start.run.run_id} has no input in the log")

    async def _loaded(self, message: Message) -> Message:
        if not any(isinstance(part, FilePart) and part.blob for part in message.parts):
            return message
        parts = [await self._blobs.load(part) if isinstance(part, FilePart) else part for part in message.parts]
        return message.model_copy(update={"parts": tuple(parts)})

    async def _task_records(self, start: Start) -> Sequence[Record]:
        records = await self.span(start.pk, start.task.first_seq - 1)
        return [await self._with_input(record) for record in records if record.task_id == start.task.task_id]

    async def _with_input(self, record: Record) -> Record:
        """With the files of an input: an agent that starts over gets them again."""
        if not isinstance(record.event, RunCreated) or not record.event.messages:
            return record
        messages = tuple([await self._loaded(message) for message in record.event.messages])
        return replace(record, event=record.event.model_copy(update={"messages": messages}))


def _is_first(start: Start, runs: Sequence[Run]) -> bool:
    """Whether the agent was not at work on the thread before: of what was said by then it remembers nothing."""
    return all(run.run_id == start.run.run_id or run.started_at is None or run.removed for run in runs)


def _is_revised(start: Start, runs: Sequence[Run]) -> bool:
    """Whether a caller has changed the conversation since the agent heard of it."""
    return start.revised > max((run.first_seq for run in runs if run.run_id != start.run.run_id), default=start.revised)


def upstream_of(runs: Sequence[Run], task_id: str) -> dict[str, str]:
    """The upstream's ids, as an agent's runs on a thread bound them: of the thread by the last one, of the task by the
    task's last one."""
    ids: dict[str, str] = {}
    for run in runs:
        if not run.removed:
            thread_wide = run.task_id != task_id
            ids |= {k: v for k, v in run.upstream.items() if not (thread_wide and k in ("task", "run"))}
    return ids


def _history(start: Start, created: RunCreated, records: Sequence[Record]) -> tuple[Message, ...]:
    """What was said on the thread before this run started. Where callers made revisions or branches, these decide."""
    if any(_branches(record) for record in records):
        return _branch(start, created, records)
    return _transcript(start, records)


def _branches(record: Record) -> bool:
    """Whether the conversation is no single line from here on."""
    event = record.event
    if isinstance(event, RunCreated):
        return event.checkpoint is not None
    return isinstance(event, StateSaved) and record.run_id is None


def _branch(start: Start, created: RunCreated, records: Sequence[Record]) -> tuple[Message, ...]:
    """What the revision holds that the run starts from."""
    begun = next(
        (r.seq for r in records if r.run_id == start.run.run_id and isinstance(r.event, RunStarted)),
        start.run.first_seq,
    )
    history = History(start.thread_id, start.owner, (record for record in records if record.seq < begun))
    revision = history.head if created.checkpoint is None else history.get(created.checkpoint)
    return () if revision is None else revision.messages


def _transcript(start: Start, records: Sequence[Record]) -> tuple[Message, ...]:
    """Run by run in the order of their turns: an input that waited stands in the log before the answers that it waited
    for, and one that still waits was not said yet."""
    by_run = Fold(start.thread_id, start.owner, records).messages_by_run()
    elsewhere = iter(by_run.get(None, ()))  # a conversation that was held elsewhere, where it was told
    said: list[Message] = []
    started: set[str] = {start.run.run_id}
    for record in records:
        run_id, event = record.run_id, record.event
        if run_id is None and isinstance(event, MessageStarted):
            said.append(next(elsewhere))
        elif run_id is not None and isinstance(event, RunStarted) and run_id not in started:
            started.add(run_id)
            said += by_run.get(run_id, ())
    return tuple(message for message in said if message.phase == "answer")


def _answers(fold: Fold) -> tuple[InterruptAnswered, ...]:
    """To all the questions that the task's last pause was for."""
    answered = [asked for asked in fold.interrupts.values() if asked.action in ("answer", "decline")]
    last = answered[-1].run_id if answered else None
    return tuple(_answer(asked) for asked in answered if asked.run_id == last)


def _answer(asked: Interrupt) -> InterruptAnswered:
    action = "decline" if asked.action == "decline" else "answer"
    return InterruptAnswered(interrupt_id=asked.interrupt_id, action=action, value=asked.answer)
