"""Index of a thread's log: the messages of the page, and the runs and questions behind them."""

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
"""Estimated bytes of one run."""


class ChatRun(msgspec.Struct):
    """One run of the thread."""

    run_id: str
    task_id: str
    agent: str
    message_id: str
    """Id of the assistant's message to which the run belongs."""
    user_ids: Sequence[str]
    """Page's ids of the user messages that began the run. Empty if it continues a message."""
    seq: int
    """Number of the run's first record."""
    asks: bool
    """True if the page of the run declares `ask_caller`."""
    has_ended: bool = False


class ChatLog:
    """View of a thread for this protocol (`babelgate.canonical.hub.Snapshot`)."""

    def __init__(self) -> None:
        self.seq = 0
        self.size = 0
        self.runs: dict[str, ChatRun] = {}
        """Runs that were not removed, oldest first."""
        self.questions: dict[str, str] = {}
        """Id of the task that asked each question."""
        self.answered: dict[str, str] = {}
        """Id of the run that each answered question began."""
        self.restarts: tuple[Restart, ...] = ()
        self._agents: dict[str, str] = {}
        self._newest: dict[str, str] = {}
        """Newest message of each task."""

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
        """Add a record."""
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
        """Newest run."""
        return next(reversed(self.runs.values()), None)

    def runs_of(self, message_id: str) -> list[ChatRun]:
        """Return the runs of a message of the assistant, oldest first."""
        return [run for run in self.runs.values() if run.message_id == message_id]

    def restarts_of(self, run: ChatRun) -> list[Restart]:
        """Return the restarts of the runs of a run's message."""
        run_ids = {each.run_id for each in self.runs_of(run.message_id)}
        return [restart for restart in self.restarts if restart.run_id in run_ids]

    def find(self, page_id: str) -> ChatRun | None:
        """Return the last run of the turn to which a message of the page belongs, or None if the log has no such
        message. The id may be that of the user's message or of the assistant's."""
        for run in reversed(self.runs.values()):
            if page_id in (run.message_id, *run.user_ids):
                return self.runs_of(run.message_id)[-1]
        return None

    def is_user_message(self, page_id: str) -> bool:
        """Return True if the log has a user message with this id of the page."""
        return any(page_id in run.user_ids for run in self.runs.values())
