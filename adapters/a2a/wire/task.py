"""A2A tasks in a form that is the same for all versions: the task itself, and the two kinds of updates that follow it
on a stream.

`write.task_events` creates these from records. The dialects `codec.v0_3`, `codec.v0_3_rest` and `codec.v1_0` encode
them.
"""

from typing import Final
from uuid import NAMESPACE_URL, uuid5

import msgspec

from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TaskState,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.message import text_of
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Extra, JsonObject

PROTOCOL: Final = "a2a"
NO_FORM: Final = "A2A has no field for it"
SHOWN_IN_METADATA: Final = "in the metadata of an otherwise empty status update; not part of the task"
"""Text of the loss of an event that A2A has no form for. Only clients that read such metadata see the event, for
example another gateway."""
CHUNK: Final = "a2a.chunk"
"""Key in `extra` of an event that was read from a piece of another server's artifact. Callers of A2A then see the same
piece.

The last event of a piece has the piece's `append`, `lastChunk`, metadata and unknown members. The events before it have
an empty object. Like `REPLY`, the key is not within `a2a`, which holds unknown members of the wire format.
"""
REPLY: Final = "a2a.reply"
"""Key in `extra` of a message by which an agent answered without a task (specification 1.0, 3.1.1)."""
IN_STATUS: Final = "a2a.status"
"""Key in `extra` of an answer that the server sends in pieces, each as the message of a status."""
GROWING: Final = "a2a.growing"
"""Key in `extra` of an answer that the server sends in messages of the status, each of which repeats the whole answer
so far."""
DRAFT: Final = "a2a.draft"
"""Key in `extra` of an event that was read from a draft, a message that the server sends as changes while the agent
writes it.

Its value has the id of the message, and the numbers of thoughts, tool calls and progress reports that were read.
Callers of A2A receive the server's changes, then the whole message.
"""
REPEATED: Final = "a2a.again"
"""Key in `extra` of an answer that only repeats the progress of its task. Callers of A2A do not see it, because they
have seen the progress."""
PROGRESS_ONLY: Final = "a2a.aside"
"""Key in `extra` of a message that the server declares to be progress. It does not become the answer of a task that has
no answer."""
SHOWN_IN_STATUS: Final = "a2a.shown"
"""Key in `extra` of a custom event that was read from the metadata of a status. Callers of A2A receive the status
itself instead."""
TYPED_RESULT: Final = "a2a.typed"
"""Key in `extra` of a data part that the server sends with a schema, as the member `result` of an object (fasta2a
2.1.1)."""
STATUS: Final = "status"
TASK: Final = "task"
"""Name of the `Native` events with the members of another server's task that no canonical event covers. `STATUS` is the
name of those with the members of a status.

Their `extra` has `metadata` and unknown members (under `own`; those of a status under `status`). For a status it also
has the `state` and the `message`, which callers of A2A see instead of the events that were read from the message.
"""


def is_reply(extra: Extra) -> bool:
    return REPLY in extra


def derived_id(*names: str) -> str:
    """Return a UUID for an object that needs an id in A2A, but has none in the log. The same names result in the same
    UUID."""
    return str(uuid5(NAMESPACE_URL, "/".join(names)))


class Status(msgspec.Struct, frozen=True):
    """Status of a task at one moment: its state, and a message."""

    state: TaskState
    at: int
    """Time at which the status began, in microseconds since 1970, UTC."""
    message: Message | None = None
    members: JsonObject = {}
    """Members that A2A does not define, from another server's status. Callers of A2A receive them unchanged."""

    @property
    def is_stop(self) -> bool:
        """True for a terminal or interrupted state: a blocking send waits for it, and a stream ends there."""
        return self.state in TERMINAL or self.state in WAITING


class Artifact(msgspec.Struct, frozen=True):
    """An artifact, or one piece of it."""

    artifact_id: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    description: str | None = None
    metadata: JsonObject = {}
    members: JsonObject = {}
    """Extensions, and members that A2A does not define, from another server's artifact. Callers of A2A receive them
    unchanged."""

    @property
    def text(self) -> str:
        return text_of(self.parts)


class TaskSnapshot(msgspec.Struct, frozen=True):
    """A whole task as of one moment."""

    task_id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: JsonObject = {}
    members: JsonObject = {}


class StatusUpdate(msgspec.Struct, frozen=True):
    """Update that changes the status of a task."""

    task_id: str
    context_id: str
    status: Status
    metadata: JsonObject = {}
    members: JsonObject = {}


class ArtifactUpdate(msgspec.Struct, frozen=True):
    """Update with a whole artifact, or with one piece. With `append`, the piece continues the artifact with the same
    id."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last: bool = False
    metadata: JsonObject = {}
    members: JsonObject = {}


Update = TaskSnapshot | StatusUpdate | ArtifactUpdate


def is_activity(part: Part) -> bool:
    """Return True if a part is a thought, or a call of the agent's own tools or its result. Such a part is not shown in
    an answer."""
    return isinstance(part, ReasoningPart | ToolResultPart) or (isinstance(part, ToolCallPart) and part.side == "agent")


def shown_part(part: Part) -> tuple[TextPart | DataPart | FilePart | None, Loss | None]:
    """Return a part in a form that A2A has, and the loss. Without such a form, the part is None. Without a loss, the
    loss is None."""
    if part.kind == "text" or part.kind == "data":
        return part, None
    if part.kind == "file":
        if part.inline is not None or part.blob is None or part.url is not None:
            return part, None
        # The part is shown with a URL of the gateway. The metadata tell other gateways that it is a stored file.
        stored = {"blob": part.blob, "size": part.size}
        return part.replace(metadata={**part.metadata, "babelgate": stored}), None
    match part:
        case RefusalPart():
            metadata = {**part.metadata, "babelgate": {"kind": "refusal"}}
            return TextPart(text=part.text, media_type=part.media_type, metadata=metadata), None
        # Parts are text, data and files (specification 1.0, 4.1.6): there are none for the output of models.
        case ReasoningPart():
            return None, Loss(feature=Feature.REASONING, how=NO_FORM)
        case AnnotationPart():
            return None, Loss(feature=Feature.CITATION, how=NO_FORM)
        case ToolCallPart(side="caller"):
            return None, Loss(feature=Feature.CALLER_TOOLS, how=NO_FORM)
        case ToolCallPart() | ToolResultPart():
            return None, Loss(feature=Feature.TOOL_ACTIVITY, how=NO_FORM)
