"""Summary of a task: its ids, metadata, usage, output and losses."""

from typing import Final

from babelgate.adapters.a2a.codec.names import to_camel_case
from babelgate.adapters.a2a.wire.task import shown_part
from babelgate.canonical import DataPart, FilePart, Part, Task, TextPart
from babelgate.canonical.event import RunEnded
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_KEY: Final = "babelgate"
"""Key in the metadata of a task for the gateway's values that A2A has no field for."""


class TaskSummary:
    """Ids, metadata, usage, output and losses of one task, as of the last record that was written."""

    def __init__(self, task: Task, context_id: str) -> None:
        # Only fields that never change are read from the task. The others come from its records.
        self.task_id = task.task_id
        self.thread_id = task.thread_id
        self.context_id = context_id
        self.run_id: str | None = None
        self.losses: dict[Loss, None] = {}
        self.usage: JsonObject = {}
        self.output: Json = None
        self.members: JsonObject = {}
        """Members that A2A does not define, from the task on another server."""
        self._metadata = task.metadata
        self._unsent: JsonObject = {}
        """Metadata from another server's task that no update of a stream has shown yet. The next status update contains
        them."""

    def begin(self, metadata: JsonObject) -> None:
        """Set the metadata with which the caller created the task."""
        self._metadata = metadata

    def end_run(self, event: RunEnded) -> None:
        """Store the usage and the structured output of a run that has ended."""
        self.usage = {**self.usage, **event.usage}
        self.output = event.output

    def read_task(self, members: JsonObject, metadata: JsonObject) -> None:
        """Add unknown members and metadata from another server's task. The next status update contains the metadata."""
        self.members = {**self.members, **members}
        self._unsent = {**self._unsent, **metadata}
        self._metadata = {**self._metadata, **self._unsent}

    def take_metadata(self, metadata: JsonObject) -> JsonObject:
        """Return the metadata for a status update: `metadata`, and those that no update has shown yet. Add them to the
        metadata of the task, too, because clients do the same.

        The servers of the SDKs (a2a-sdk 0.3.26, 1.3.0) merge an update's metadata into the task's.
        """
        merged: JsonObject = {**self._unsent, **metadata}
        self._unsent = {}
        self._metadata = {**self._metadata, **merged}
        return merged

    def show(self, part: Part) -> TextPart | DataPart | FilePart | None:
        """Return a part in a form that A2A has, or None if there is no such form. A loss is added to the losses of the
        task."""
        visible_part, loss = shown_part(part)
        if loss is not None:
            self.losses[loss] = None
        return visible_part

    @property
    def metadata(self) -> JsonObject:
        """Metadata of the whole task."""
        return {**self._metadata, **self.about()}

    def about(self) -> JsonObject:
        """Return the entry of the gateway in the metadata: the ids of the thread, task and run, usage, output and
        losses."""
        about: JsonObject = {"threadId": self.thread_id, "taskId": self.task_id, "runId": self.run_id}
        if self.usage:
            about["usage"] = to_camel_case(self.usage)
        if self.output is not None:
            about["output"] = self.output
        if self.losses:
            about["loss"] = losses_by_feature(self.losses)
        return {_KEY: about}
