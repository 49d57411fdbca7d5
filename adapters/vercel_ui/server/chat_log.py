"""Index of a thread's log: assistant and user messages of the page → runs, and questions → tasks and runs."""

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from babelgate.adapters.vercel_ui.codec import can_ask, is_new_reply, ui_id
from babelgate.adapters.vercel_ui.write.view import Restart
from babelgate.canonical import Record
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskCreated,
)

_ENTRY: Final = 500
"""Estimated memory of one run in the index, in bytes."""


class ChatRun(msgspec.Struct):
    """Entry of one run in the index of its thread's log."""

    run_id: str
    task_id: str
    agent: str
    message_id: str
    """Id of the assistant message to which the run belongs."""
    user_ids: Sequence[str]
    """Ids, assigned by the page, of the user messages that began the run. Empty if the run continues an assistant
    message."""
    seq: int
    """Number of the run's first record in the thread's log."""
    asks: bool
    """True if the request that created the run declares the tool `ask_caller`."""
    has_ended: bool = False


class ChatLog:
    """Index of one thread's log, updated record by record (`babelgate.canonical.hub.Snapshot`)."""

    def __init__(self) -> None:
        self.seq = 0
        self.size = 0
        self.runs: dict[str, ChatRun] = {}
        """Entries of the runs that were not removed, by run id, oldest first."""
        self.questions: dict[str, str] = {}
        """Id of the task that asked each question, by question id."""
        self.answered: dict[str, str] = {}
        """Id of the run that the answer to each question began, by question id."""
        self.restarts: tuple[Restart, ...] = ()
        self._agents: dict[str, str] = {}
        self._newest: dict[str, str] = {}
        """Id of the newest assistant message of each task, by task id."""

    def copy(self) -> Self:
        """Return an independent copy."""
        copy = type(self)()
        copy.seq, copy.size = self.seq, self.size
        copy.runs = {run_id: msgspec.structs.replace(run) for run_id, run in self.runs.items()}
        copy.questions, copy.answered = dict(self.questions), dict(self.answered)
        copy.restarts = self.restarts
        copy._agents, copy._newest = dict(self._agents), dict(self._newest)
        return copy

    def apply(self, record: Record) -> None:
        """Update the index with the next record of the thread."""
        self.seq = record.seq
        event = record.event
        match event:
            case TaskCreated():
                self._agents[event.task_id] = event.agent
            case RunCreated():
                self._add_run(event, record)
            case RunStarted() if event.is_restart:
                self.restarts = (*self.restarts, Restart(record.run_id or "", record.seq, event.void))
            case RunEnded() if record.run_id in self.runs:
                self.runs[record.run_id].has_ended = True
            case RunRemoved():
                self.runs.pop(event.run_id, None)
            case InterruptRaised():
                self.questions[event.interrupt_id or ""] = record.task_id or ""
            case InterruptAnswered():
                self.answered[event.interrupt_id] = record.run_id or ""
            case _:
                pass

    def _add_run(self, event: RunCreated, record: Record) -> None:
        self.size += _ENTRY
        task_id = record.task_id or ""
        message_id = self._newest.get(task_id)
        is_new = message_id is None or is_new_reply(event)
        if message_id is None:
            message_id = task_id
        elif is_new:
            message_id = event.run_id
        self._newest[task_id] = message_id
        self.runs[event.run_id] = ChatRun(
            run_id=event.run_id,
            task_id=task_id,
            agent=self._agents.get(task_id, ""),
            message_id=message_id,
            user_ids=[ui_id(message) for message in event.messages if message.role == "user"] if is_new else (),
            seq=record.seq,
            asks=can_ask(event),
        )

    @property
    def head(self) -> ChatRun | None:
        """Entry of the newest run; None for a thread without runs."""
        return next(reversed(self.runs.values()), None)

    def runs_of(self, message_id: str) -> list[ChatRun]:
        """Return the runs of the assistant message `message_id`, oldest first."""
        return [run for run in self.runs.values() if run.message_id == message_id]

    def restarts_of(self, run: ChatRun) -> list[Restart]:
        """Return the restarts of all runs that belong to the same assistant message as `run`."""
        run_ids = {each.run_id for each in self.runs_of(run.message_id)}
        return [restart for restart in self.restarts if restart.run_id in run_ids]

    def find(self, page_id: str) -> ChatRun | None:
        """Return the newest run of the assistant message that has the id `page_id`, or that answers the user message
        with that id. Return None if the log has no such message."""
        for run in reversed(self.runs.values()):
            if page_id in (run.message_id, *run.user_ids):
                return self.runs_of(run.message_id)[-1]
        return None

    def is_user_message(self, page_id: str) -> bool:
        """Return True if the log has a user message to which the page assigned the id `page_id`."""
        return any(page_id in run.user_ids for run in self.runs.values())
