"""What A2A shows of a task, in no version's spelling: the task itself, and the two kinds of update that follow it on a
stream. `write.task_events` makes these of records; each dialect spells them (`codec.v0_3`, `codec.v0_3_rest`,
`codec.v1_0`)."""

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
NO_FORM: Final = "A2A has no form for it"
BESIDE: Final = "in the metadata of a status that changes nothing, and no part of a task"
"""How what A2A has no form for is told to who looks for it, such as a gateway."""
CHUNK: Final = "a2a.chunk"
"""The key in `extra` of an event that came as a piece of an artifact, and would be cut otherwise when it is shown: with
what came before it in the same piece, `append` and `lastChunk` as they were; empty for what another event completes.
Like `REPLY` not within `a2a`, which holds unknown members of what is on the wire."""
REPLY: Final = "a2a.reply"
"""The key in `extra` of a message that is the whole answer of an agent which made no task of it (specification 1.0,
3.1.1)."""
IN_STATUS: Final = "a2a.status"
"""The key in `extra` of an answer that comes in pieces, each the message of a status."""
GROWING: Final = "a2a.growing"
"""The key in `extra` of an answer that comes in messages of the status, each of which says all of it so far."""
DRAFT: Final = "a2a.draft"
"""The key in `extra` of what was read of a message that is told by changes of it: its id, and how much was told. To
callers of A2A the changes are shown as they came, and the message at the end."""
AGAIN: Final = "a2a.again"
"""The key in `extra` of an answer that says together what was said on the way."""
ASIDE: Final = "a2a.aside"
"""The key in `extra` of progress that the server marks as such: it is no answer, whatever else was said."""
SHOWN: Final = "a2a.shown"
"""The key in `extra` of a custom event that was read of a status: callers of A2A see it there as it came."""
TYPED: Final = "a2a.typed"
"""The key in `extra` of data that came, and is shown, as the member `result` of an object, beside its schema: fasta2a
2.1.1."""
STATUS: Final = "status"
TASK: Final = "task"
"""Names of `Native` events of A2A: what a server says of a status, or of its task, that other events do not tell. In
`extra`: `metadata`, unknown members (`own`; those of a status in `status`), and a status's `state` and `message`, which
is then shown instead of what was read of it."""


def is_reply(extra: Extra) -> bool:
    return REPLY in extra


def derived_id(*names: str) -> str:
    """An id for something that A2A wants an id of and the log has none for: the same for the same names."""
    return str(uuid5(NAMESPACE_URL, "/".join(names)))


class Status(msgspec.Struct, frozen=True):
    state: TaskState
    at: int
    """Microseconds since 1970, UTC."""
    message: Message | None = None
    own: JsonObject = {}
    """Members that nobody here knows, of another A2A server; so it is in the others."""

    @property
    def is_stop(self) -> bool:
        """Terminal, or interrupted: what a blocking send waits for and where a stream ends."""
        return self.state in TERMINAL or self.state in WAITING


class Artifact(msgspec.Struct, frozen=True):
    """An artifact, or a piece of one."""

    artifact_id: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    description: str | None = None
    metadata: JsonObject = {}
    own: JsonObject = {}
    """What another A2A server says of it beside these: extensions, and members that nobody here knows."""

    @property
    def text(self) -> str:
        return text_of(self.parts)


class TaskSnapshot(msgspec.Struct, frozen=True):
    task_id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: JsonObject = {}
    own: JsonObject = {}


class StatusUpdate(msgspec.Struct, frozen=True):
    task_id: str
    context_id: str
    status: Status
    metadata: JsonObject = {}
    own: JsonObject = {}


class ArtifactUpdate(msgspec.Struct, frozen=True):
    """One piece of an artifact: with `append` it goes to the end of what has the same id."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last: bool = False
    metadata: JsonObject = {}
    own: JsonObject = {}


Update = TaskSnapshot | StatusUpdate | ArtifactUpdate


def is_activity(part: Part) -> bool:
    """Whether it tells what the agent does, and is no part of what it says."""
    return isinstance(part, ReasoningPart | ToolResultPart) or (isinstance(part, ToolCallPart) and part.side == "agent")


def shown_part(part: Part) -> tuple[TextPart | DataPart | FilePart | None, Loss | None]:
    """The part as A2A can show it, None if it cannot, and what gets lost."""
    if part.kind == "text" or part.kind == "data":
        return part, None
    if part.kind == "file":
        if part.inline is not None or part.blob is None or part.url is not None:
            return part, None
        # Shown by a URL of the gateway's, of which others cannot tell that it is no page.
        stored = {"blob": part.blob, "size": part.size}
        return part.replace(metadata={**part.metadata, "babelgate": stored}), None
    match part:
        case RefusalPart():
            metadata = {**part.metadata, "babelgate": {"kind": "refusal"}}
            return TextPart(text=part.text, media_type=part.media_type, metadata=metadata), None
        # Parts are text, data and files (specification 1.0, 4.1.6): nothing of a model's is among them.
        case ReasoningPart():
            return None, Loss(feature=Feature.REASONING, how=NO_FORM)
        case AnnotationPart():
            return None, Loss(feature=Feature.CITATION, how=NO_FORM)
        case ToolCallPart(side="caller"):
            return None, Loss(feature=Feature.CALLER_TOOLS, how=NO_FORM)
        case ToolCallPart() | ToolResultPart():
            return None, Loss(feature=Feature.TOOL_ACTIVITY, how=NO_FORM)
