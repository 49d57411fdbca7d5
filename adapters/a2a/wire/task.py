"""A2A tasks in the spelling of no version: the task itself, and the two kinds of updates that follow it on a stream.

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
"""Loss of an event that A2A has no form for: only clients that read such metadata see it, for example a gateway."""
CHUNK: Final = "a2a.chunk"
"""Key in `extra` of an event that was read from a piece of another server's artifact, so that the same piece is shown.

The last event of a piece has its `append`, `lastChunk`, metadata and unknown members. The events before it have an
empty object. Like `REPLY`, the key is not within `a2a`, which holds unknown members of the wire format.
"""
REPLY: Final = "a2a.reply"
"""Key in `extra` of a message by which an agent answered without a task (specification 1.0, 3.1.1)."""
IN_STATUS: Final = "a2a.status"
"""Key in `extra` of an answer that comes in pieces, each the message of a status."""
GROWING: Final = "a2a.growing"
"""Key in `extra` of an answer in messages of the status, each of which contains the whole answer so far."""
DRAFT: Final = "a2a.draft"
"""Key in `extra` of an event of a message that arrives as changes to a draft: the message's id, and the numbers of
thoughts, tool calls and progress reports so far. Callers of A2A receive the changes unchanged, then the message."""
REPEATED: Final = "a2a.again"
"""Key in `extra` of an answer that repeats the task's progress, which is shown already."""
PROGRESS_ONLY: Final = "a2a.aside"
"""Key in `extra` of a message that the server declares to be progress: it is no answer, even of a task without one."""
SHOWN_IN_STATUS: Final = "a2a.shown"
"""Key in `extra` of a custom event that was read from a status, which callers of A2A receive unchanged."""
TYPED_RESULT: Final = "a2a.typed"
"""Key in `extra` of data that the server sends as the member `result` of an object, with a schema: fasta2a 2.1.1."""
STATUS: Final = "status"
TASK: Final = "task"
"""Names of `Native` events of A2A: parts of a status or a task that no other event carries.

Their `extra` has `metadata` and unknown members (`own`; those of a status in `status`). That of a status also has its
`state` and `message`, which is then shown instead of the events that were read from it.
"""


def is_reply(extra: Extra) -> bool:
    return REPLY in extra


def derived_id(*names: str) -> str:
    """Return an id that A2A requires and the log does not have. The same names give the same id."""
    return str(uuid5(NAMESPACE_URL, "/".join(names)))


class Status(msgspec.Struct, frozen=True):
    """Status of a task."""

    state: TaskState
    at: int
    """Microseconds since 1970, UTC."""
    message: Message | None = None
    members: JsonObject = {}
    """Unknown members that another A2A server sent; the other types have them too."""

    @property
    def is_stop(self) -> bool:
        """True for a terminal or interrupted state: a blocking send waits for it, and a stream ends there."""
        return self.state in TERMINAL or self.state in WAITING


class Artifact(msgspec.Struct, frozen=True):
    """An artifact, or a piece of one."""

    artifact_id: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    description: str | None = None
    metadata: JsonObject = {}
    members: JsonObject = {}
    """Extensions and unknown members that another A2A server sent."""

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
    """A new status of a task."""

    task_id: str
    context_id: str
    status: Status
    metadata: JsonObject = {}
    members: JsonObject = {}


class ArtifactUpdate(msgspec.Struct, frozen=True):
    """One piece of an artifact. With `append`, it belongs to the end of the artifact with the same id."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last: bool = False
    metadata: JsonObject = {}
    members: JsonObject = {}


Update = TaskSnapshot | StatusUpdate | ArtifactUpdate


def is_activity(part: Part) -> bool:
    """Return True if a part is a thought or a tool call of the agent, and no part of an answer."""
    return isinstance(part, ReasoningPart | ToolResultPart) or (isinstance(part, ToolCallPart) and part.side == "agent")


def shown_part(part: Part) -> tuple[TextPart | DataPart | FilePart | None, Loss | None]:
    """Return the part in a form that A2A has, or None, and the loss, if any."""
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
