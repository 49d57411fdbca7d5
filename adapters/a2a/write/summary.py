"""Ids, metadata, usage, output and losses of a task."""

from typing import Final

from babelgate.adapters.a2a.codec.names import to_camel_case
from babelgate.adapters.a2a.wire.task import shown_part
from babelgate.canonical import DataPart, FilePart, Part, Task, TextPart
from babelgate.canonical.event import RunEnded
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_KEY: Final = "babelgate"
"""Key of metadata for values that A2A has no field for."""


class TaskSummary:
    """Summary of one task, kept up to date by its records."""

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
        """Members of the task that only another server knows."""
        self._metadata = task.metadata
        self._unsent: JsonObject = {}
        """Metadata that no stream has shown yet, because the task at its beginning is older."""

    def begin(self, metadata: JsonObject) -> None:
        """Start with the metadata of the task's creation."""
        self._metadata = metadata

    def end_run(self, event: RunEnded) -> None:
        """Take the usage and the output of a run."""
        self.usage = {**self.usage, **event.usage}
        self.output = event.output

    def read_task(self, members: JsonObject, metadata: JsonObject) -> None:
        """Take members and metadata of another server's task. The next status carries the metadata."""
        self.members = {**self.members, **members}
        self._unsent = {**self._unsent, **metadata}
        self._metadata = {**self._metadata, **self._unsent}

    def take_metadata(self, metadata: JsonObject) -> JsonObject:
        """Return the metadata of a status update, with those that are unsent.

        The servers of the SDKs (a2a-sdk 0.3.26, 1.3.0) merge an update's metadata into the task's.
        """
        merged: JsonObject = {**self._unsent, **metadata}
        self._unsent = {}
        self._metadata = {**self._metadata, **merged}
        return merged

    def show(self, part: Part) -> TextPart | DataPart | FilePart | None:
        """Return the part in a form that A2A has, or None. Any loss is noted."""
        visible_part, loss = shown_part(part)
        if loss is not None:
            self.losses[loss] = None
        return visible_part

    @property
    def metadata(self) -> JsonObject:
        """Metadata of the whole task."""
        return {**self._metadata, **self.about()}

    def about(self) -> JsonObject:
        """Return the metadata with the gateway's ids, usage, output and losses."""
        about: JsonObject = {"threadId": self.thread_id, "taskId": self.task_id, "runId": self.run_id}
        if self.usage:
            about["usage"] = to_camel_case(self.usage)
        if self.output is not None:
            about["output"] = self.output
        if self.losses:
            about["loss"] = losses_by_feature(self.losses)
        return {_KEY: about}
