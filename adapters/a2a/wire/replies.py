"""Types of the replies of A2A servers of any version. They are tolerant, so that every known server can be read.

Members may have the names of 1.0 or of 0.x, and null for "not set". No member is required that some server omits.
"""

from typing import Any

from pydantic import AliasChoices, Field

from babelgate.adapters.a2a.wire.v1_0 import Part, Wire


class Message(Wire):
    kind: str | None = None
    messageId: str | None = None
    contextId: str | None = None
    taskId: str | None = None
    role: str | None = None
    parts: list[Part] | None = Field(default=None, validation_alias=AliasChoices("parts", "content"))
    metadata: dict[str, Any] | None = None
    extensions: list[str] | None = None
    referenceTaskIds: list[str] | None = None


class TaskStatus(Wire):
    state: str | None = None
    message: Message | None = Field(default=None, validation_alias=AliasChoices("message", "update"))
    timestamp: str | None = None


class Artifact(Wire):
    artifactId: str | None = None
    name: str | None = None
    description: str | None = None
    parts: list[Part] | None = None
    metadata: dict[str, Any] | None = None
    extensions: list[str] | None = None


class Task(Wire):
    kind: str | None = None
    id: str = Field(min_length=1)
    contextId: str | None = None
    status: TaskStatus | None = None
    artifacts: list[Artifact] | None = None
    history: list[Message] | None = None
    metadata: dict[str, Any] | None = None


class TaskStatusUpdateEvent(Wire):
    kind: str | None = None
    taskId: str | None = None
    contextId: str | None = None
    status: TaskStatus
    final: bool | None = None
    metadata: dict[str, Any] | None = None


class TaskArtifactUpdateEvent(Wire):
    kind: str | None = None
    taskId: str | None = None
    contextId: str | None = None
    artifact: Artifact
    append: bool | None = None
    lastChunk: bool | None = None
    metadata: dict[str, Any] | None = None


Reply = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
