"""Decoding of A2A replies and parts. Their types are recognized by their members, because servers mix the forms of 0.x
and 1.0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.adapters.a2a.codec.dialect import DataRule, decode_part
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.a2a.wire.v1_0 import Part as WirePart
from babelgate.adapters.kit.json import validate
from babelgate.canonical import DataPart, FilePart, Part, ReasoningPart, RefusalPart, TaskState, TextPart
from babelgate.canonical.json import as_object
from babelgate.canonical.message import text_of
from babelgate.canonical.value import Extra, Json, JsonObject

_WRAPPERS: Final[Mapping[str, type[w.Reply]]] = {
    "task": w.Task,
    "message": w.Message,
    "msg": w.Message,  # in the protocol buffer before 0.3.0
    "statusUpdate": w.TaskStatusUpdateEvent,
    "status_update": w.TaskStatusUpdateEvent,
    "artifactUpdate": w.TaskArtifactUpdateEvent,
    "artifact_update": w.TaskArtifactUpdateEvent,
}
_KINDS: Final[Mapping[str, type[w.Reply]]] = {
    "task": w.Task,
    "message": w.Message,
    "status-update": w.TaskStatusUpdateEvent,
    "artifact-update": w.TaskArtifactUpdateEvent,
}
_STATES: Final = {
    "SUBMITTED": TaskState.SUBMITTED,
    "WORKING": TaskState.WORKING,
    "INPUT_REQUIRED": TaskState.INPUT_REQUIRED,
    "AUTH_REQUIRED": TaskState.AUTH_REQUIRED,
    "COMPLETED": TaskState.COMPLETED,
    "FAILED": TaskState.FAILED,
    "CANCELED": TaskState.CANCELLED,
    "CANCELLED": TaskState.CANCELLED,
    "REJECTED": TaskState.REJECTED,
}
_CONTENT: Final = ("text", "raw", "url", "data", "file")


def decode_state(state: str | None) -> TaskState:
    """Return the task state for its name in any version of A2A. An unknown name counts as working."""
    # 0.x writes `input-required`, 1.0 `TASK_STATE_INPUT_REQUIRED`, the protocol buffer of 0.3 `TASK_STATE_CANCELLED`:
    # langgraph-api 0.16.7 sends the names of 1.0 in the objects of 0.3.
    name = (state or "").upper().replace("-", "_").removeprefix("TASK_STATE_")
    return _STATES.get(name, TaskState.WORKING)


def decode_reply(value: Json) -> w.Reply | None:
    """Return the task, message or update in a reply. Return None for any other reply. Raises invalid for a malformed
    one."""
    if not isinstance(value, dict):
        return None
    for name, model in _WRAPPERS.items():
        # 1.0 wraps its replies. An object of 0.x may have a member of the same name, but it has a `kind`.
        if isinstance(value.get(name), dict) and "kind" not in value:
            return validate(model, value[name])
    model = _KINDS.get(str(value.get("kind"))) or _by_members(value)
    return None if model is None else validate(model, value)


def _by_members(value: JsonObject) -> type[w.Reply] | None:
    if isinstance(value.get("artifact"), dict):
        return w.TaskArtifactUpdateEvent
    if isinstance(value.get("status"), dict):
        return w.Task if "id" in value else w.TaskStatusUpdateEvent
    if "role" in value and ("parts" in value or "content" in value):
        return w.Message
    return None


@dataclass(frozen=True, slots=True)
class DecodedParts:
    """Canonical parts of one message or artifact of a server."""

    parts: tuple[Part, ...]
    unknown: int = 0
    """Number of parts that were left out, because they have no content that A2A defines."""

    @property
    def text(self) -> str:
        return text_of(self.parts)


def decode_parts(parts: Sequence[WirePart] | None, rule: DataRule = "any") -> DecodedParts:
    """Decode the parts of a message or artifact; None counts as no parts. `rule` is the form of data parts. Raises
    invalid for a part whose members contradict each other."""
    decoded: list[Part] = []
    unknown = 0
    for index, part in enumerate(parts or ()):
        if not any(name in part.model_fields_set for name in _CONTENT):
            # a2a-sdk 1.3.0 reads `{"foo": 1}` as an empty part.
            unknown += part.kind is not None or bool(part.model_extra)
            continue
        decoded.append(_restore(decode_part(part, f"parts.{index}", rule)))
    return DecodedParts(tuple(decoded), unknown)


def has_content(part: Part) -> bool:
    """Return False if a part is an empty text, refusal or thought."""
    return not isinstance(part, TextPart | RefusalPart | ReasoningPart) or bool(part.text)


def _restore(part: TextPart | DataPart | FilePart) -> Part:
    """Return the canonical part that another gateway has encoded as this part. Return any other part unchanged.

    The gateway's entry in the metadata marks a refusal, which A2A shows as text, or has the hash of a stored file.
    """
    value = part.metadata.get("babelgate")
    if not isinstance(value, dict):
        return part
    mark = cast("JsonObject", value)
    metadata = {name: value for name, value in part.metadata.items() if name != "babelgate"}
    if isinstance(part, TextPart) and mark == {"kind": "refusal"}:
        return RefusalPart(text=part.text, media_type=part.media_type, metadata=metadata, extra=part.extra)
    if isinstance(part, FilePart) and part.url is not None and isinstance(mark.get("blob"), str):
        return part.replace(blob=mark["blob"], url=None, metadata=metadata)
    return part


def is_from_caller(message: w.Message) -> bool:
    """Return True if the role of a message, in the form of any version, is that of the caller."""
    return (message.role or "").lower().removeprefix("role_") == "user"


def artifacts_of(reply: w.Reply | None) -> Sequence[w.Artifact]:
    """Return the artifacts in a task or artifact update. Return none for any other reply, and for None."""
    if isinstance(reply, w.TaskArtifactUpdateEvent):
        return (reply.artifact,)
    return (reply.artifacts or ()) if isinstance(reply, w.Task) else ()


def after_caller(history: Sequence[w.Message]) -> Sequence[w.Message]:
    """Return the messages of a history that follow the caller's last message."""
    messages: list[w.Message] = []
    for message in history:
        messages = [] if is_from_caller(message) else [*messages, message]
    return messages


def merge_replies(replies: Sequence[w.Message]) -> w.Message:
    """Return several messages of one stream as one message: their parts are joined, and adjacent texts become one.

    Specification 1.0, 3.1.2, allows exactly one message, with parts. The .NET hosting of Agent Framework sends a
    message for each update of the model, the first and the last one without parts.
    """
    messages = [message for message in replies if message.parts]
    if len(messages) < 2:
        return messages[0] if messages else replies[0]
    parts: list[WirePart] = []
    for part in (part for message in messages for part in message.parts or ()):
        last = parts[-1] if parts else None
        if last is not None and last.text is not None and last.model_copy(update={"text": part.text}) == part:
            parts[-1] = last.model_copy(update={"text": last.text + (part.text or "")})
        else:
            parts.append(part)
    metadata = {name: value for message in messages for name, value in (message.metadata or {}).items()}
    return messages[0].model_copy(update={"parts": parts, "metadata": metadata or None})


def a2a_members(extra: Extra) -> JsonObject:
    """Return the A2A members in the canonical `extra` of an event. Return an empty object if there are none."""
    return extra.get(PROTOCOL) or {}


def gateway_members(metadata: JsonObject | None) -> JsonObject:
    """Return the entry of another gateway (key `babelgate`) in the metadata. Return an empty object if there is
    none."""
    return as_object((metadata or {}).get("babelgate"))


def as_extra(message: w.Message | w.Artifact, **named: Any) -> JsonObject:
    """Return a canonical `extra` with the unknown members and the extensions of a message or artifact, and with the
    members `named` that are not empty."""
    members: JsonObject = dict(message.model_extra or {})
    if message.extensions:
        members["extensions"] = message.extensions
    members |= {name: value for name, value in named.items() if value}
    return {PROTOCOL: members} if members else {}
