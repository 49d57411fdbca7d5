"""Index of a thread: which messages and runs of the client the log has, and which run each answer began."""

from typing import Final, Self

from babelgate.adapters.ag_ui.codec.names import PROTOCOL
from babelgate.canonical import Record
from babelgate.canonical.event import InterruptAnswered, MessageStarted, RunCreated, RunRemoved
from babelgate.canonical.json import as_object, as_text

_ENTRY: Final = 200
"""Estimated memory of one entry of the index, in bytes."""


class ThreadIndex:
    """Ids of a thread's messages, runs and answered questions, folded from its records
    (`babelgate.canonical.hub.Snapshot`)."""

    def __init__(self) -> None:
        self.seq = 0
        self.messages: dict[str, str | None] = {}
        """Run id of each message, by message id; None for messages outside runs."""
        self.inputs: dict[str, str] = {}
        """Run id of each message that a caller sent to start the run, by message id, oldest first."""
        self.runs: dict[str, str] = {}
        """Gateway's run id by the client's run id. If a client used an id twice, it is the newest run. A run of another
        protocol is listed under its gateway's id."""
        self.tasks: dict[str, str] = {}
        """Task id of each run, by run id, oldest first."""
        self.answered: dict[str, str] = {}
        """Run that the answer to a question began, by the question's id."""

    @property
    def size(self) -> int:
        return _ENTRY * (len(self.messages) + len(self.runs) + len(self.tasks) + len(self.answered))

    def apply(self, record: Record) -> None:
        """Update the index with the next record of the thread."""
        self.seq = record.seq
        event = record.event
        match event:
            case RunCreated():
                self._add_run(event, record.task_id or "")
            case MessageStarted() if event.message_id is not None:
                self.messages[event.message_id] = record.run_id
            case InterruptAnswered() if record.run_id is not None and event.action != "superseded":
                self.answered[event.interrupt_id] = record.run_id
            case RunRemoved():
                self.messages = {name: run_id for name, run_id in self.messages.items() if run_id != event.run_id}
                self.inputs = {name: run_id for name, run_id in self.inputs.items() if run_id != event.run_id}
                self.runs = {name: run_id for name, run_id in self.runs.items() if run_id != event.run_id}
                self.tasks.pop(event.run_id, None)
            case _:
                pass

    def _add_run(self, event: RunCreated, task_id: str) -> None:
        self.tasks[event.run_id] = task_id
        client_id = as_text(as_object(event.extra.get(PROTOCOL)).get("runId"))
        self.runs[client_id or event.run_id] = event.run_id
        for message in event.messages:
            if message.message_id is not None:
                self.messages[message.message_id] = event.run_id
                if event.cause != "answer":
                    self.inputs[message.message_id] = event.run_id

    def copy(self) -> Self:
        """Return an independent copy."""
        copy = type(self)()
        copy.seq = self.seq
        copy.messages, copy.inputs, copy.runs = dict(self.messages), dict(self.inputs), dict(self.runs)
        copy.tasks, copy.answered = dict(self.tasks), dict(self.answered)
        return copy

    def run_before(self, run_id: str) -> str | None:
        """Return the id of the run that precedes a run on the thread, or None if the run is the first or unknown."""
        before: str | None = None
        for each in self.tasks:
            if each == run_id:
                return before
            before = each
        return None
