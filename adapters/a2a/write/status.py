"""Writer of a task's status and history."""

from babelgate.adapters.a2a.wire.task import Status, StatusUpdate, derived_id
from babelgate.adapters.a2a.write.pieces import PieceSource
from babelgate.adapters.a2a.write.summary import TaskSummary
from babelgate.canonical import Message, Part, Record
from babelgate.canonical.event import RunStarted
from babelgate.canonical.value import JsonObject


class StatusWriter:
    """The current status of one task, and the messages of its history. It returns the updates of a stream that change
    the status."""

    def __init__(self, summary: TaskSummary, status: Status) -> None:
        self.status = status
        self._summary = summary
        self._source = PieceSource()
        """Run and message from which the message of the current status was written."""
        self._history: list[tuple[Message, PieceSource]] = []
        self._place = 0
        """Index in the history at which the message of the current status is inserted when the status changes."""

    @property
    def history(self) -> tuple[Message, ...]:
        """Messages of the task in order, without that of the current status."""
        return tuple(message for message, _ in self._history)

    def add(self, message: Message, source: PieceSource) -> None:
        """Add a message to the end of the history. `source` is the run and the message from which it was written."""
        self._history.append((message, source))

    def write(self, status: Status, source: PieceSource, foreign: JsonObject | None = None) -> StatusUpdate:
        """Change the status, and return the update. The message of the previous status moves to the history.

        `source` is the run and the message from which the message of the status was written. `foreign` has the
        `metadata` and the unknown members (`own`) of another server's status update, if there was one.
        """
        foreign = foreign or {}
        metadata = self._summary.take_metadata(foreign.get("metadata") or {})
        if self.status.message is not None:
            self._history.insert(self._place, (self.status.message, self._source))
        self._place = len(self._history)
        self.status, self._source = status, source
        return StatusUpdate(
            task_id=self._summary.task_id,
            context_id=self._summary.context_id,
            status=status,
            # Only with the end: each event would repeat it.
            metadata={**metadata, **self._summary.about()} if status.is_stop else metadata,
            members=foreign.get("own") or {},
        )

    def write_activity(
        self, record: Record, part: Part, metadata: JsonObject, message_id: str | None = None
    ) -> StatusUpdate:
        """Show a thought or tool call as the message of the status, and return the update. `message_id` is that of the
        canonical message which contains it, if any. Answers are shown as artifacts instead (specification 1.0, 3.7)."""
        message = self.message(record, (part,), metadata)
        return self.write(Status(self.status.state, record.at, message), PieceSource(record.run_id, message_id))

    def message(self, record: Record, parts: tuple[Part, ...], metadata: JsonObject) -> Message:
        """Return a message for a status. Its id is derived from the record, so it is the same whenever the record is
        written."""
        message_id = derived_id(self._summary.task_id, "status", str(record.seq))
        return Message(message_id=message_id, role="agent", parts=parts, metadata=metadata)

    def remove_void(self, record: Record, start: RunStarted) -> bool:
        """Remove the messages that a restart of a run voids. Return True if the message of the current status is one of
        them."""
        is_void = self.status.message is not None and self._source.is_void(record, start)
        before, after = self._history[: self._place], self._history[self._place :]
        before, after = ([entry for entry in part if not entry[1].is_void(record, start)] for part in (before, after))
        self._history, self._place = [*before, *after], len(before)
        if is_void:
            self.status = Status(self.status.state, self.status.at)
        return is_void
