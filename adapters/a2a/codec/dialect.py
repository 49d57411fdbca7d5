"""What every dialect of A2A does alike: the shape of messages, artifacts, tasks and updates, and the decoding of parts.

A dialect spells it: enum names, the keys of a part, wrappers and discriminators. There are three: 1.0 in all bindings
(`codec.v1_0`), 0.3 in JSON-RPC (`codec.v0_3`), and 0.3 in REST, which follows its protocol buffer (`codec.v0_3_rest`).
"""

from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from babelgate.adapters.a2a.wire import v1_0 as w
from babelgate.adapters.a2a.wire.requests import Get, Listing, Push, PushListing, PushName, Send
from babelgate.adapters.a2a.wire.task import (
    PROTOCOL,
    TYPED_RESULT,
    Artifact,
    ArtifactUpdate,
    StatusUpdate,
    TaskSnapshot,
    Update,
    shown_part,
)
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import DataPart, FaultCode, FaultError, FilePart, Message, TaskState, TextPart
from babelgate.canonical.message import Role
from babelgate.canonical.value import JsonObject

MAX_CONTEXT = 256
"""Characters of a contextId: what cannot be accepted must be rejected, not replaced (specification 1.0, 3.4.1)."""

ROLES: Mapping[str, Role] = {"user": "user", "agent": "agent", "ROLE_USER": "user", "ROLE_AGENT": "agent"}
"""The tutorials of 1.0 still write the role of 0.x, so either spelling is taken everywhere."""


def file_path(agent: str, blob: str) -> str:
    return f"/a2a/{agent}/files/{blob}"


def invalid(field: str, message: str) -> FaultError:
    return FaultError(FaultCode.INVALID, f"{field}: {message}", errors=[{"field": field, "description": message}])


def decode_base64(text: str, field: str) -> bytes:
    """Standard and URL-safe, with padding and without: ProtoJSON parsers accept them all. Raises invalid."""
    # ProtoJSON, bytes: "standard or URL-safe base64 encoding with/without paddings are accepted"
    # (protobuf.dev/programming-guides/json).
    plain = text.translate(_URL_SAFE).rstrip("=")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (NoBase64, ValueError) as error:
        raise invalid(field, "The value must be base64.") from error


_URL_SAFE = str.maketrans("-_", "+/")


def _decode_again(data: bytes) -> bytes:
    """`fileWithBytes` of the official SDKs is base64 twice; of a caller that takes the specification at its word, once.
    Only a file that is itself whole base64 could be taken for the other."""
    if not data or len(data) % 4:
        return data
    try:
        return b64decode(data, validate=True)
    except NoBase64:
        return data


def _decode_file(part: w.Part, field: str) -> FilePart:
    file = part.file
    name, media_type = part.filename, part.mediaType
    raw, url, twice = part.raw, part.url, False
    if file is not None:
        name, media_type = file.name or name, file.mimeType or media_type
        # Both generations' names, in every version: `file.bytes` and `file.uri` are 0.3's JSON-RPC (0.3, 6.6), the
        # longer ones its protocol buffer; a2a-js up to 0.3.7 sends the first over REST, too.
        raw, twice = (file.bytes, False) if file.bytes is not None else (file.fileWithBytes, True)
        url = file.uri if file.uri is not None else file.fileWithUri
        field = f"{field}.file"
    if (raw is None) == (not url):
        raise invalid(field, "A file has either bytes or a URL.")
    inline = None if raw is None else decode_base64(raw, field)
    if inline is not None and twice:
        inline = _decode_again(inline)
    return FilePart(
        name=name or None,
        media_type=media_type or None,
        url=url or None,
        inline=inline,
        size=None if inline is None else len(inline),
        metadata=part.metadata or {},
        extra=_unknown(part, drop="kind"),
    )


def _beside_content(part: w.Part) -> Mapping[str, Any]:
    """Of text and data, whose parts may have the name of a file in 1.0."""
    more = _unknown(part, drop="kind")
    return {PROTOCOL: {**more.get(PROTOCOL, {}), "filename": part.filename}} if part.filename else more


def _unknown(model: w.Wire, *, drop: str = "") -> Mapping[str, Any]:
    more = {name: value for name, value in (model.model_extra or {}).items() if name != drop}
    return {PROTOCOL: more} if more else {}


def decode_part(part: w.Part, field: str, data: "DataRule" = "any") -> TextPart | DataPart | FilePart:
    """Raises invalid for a part that holds nothing or several things, or something else than it says."""
    given = [name for name in ("text", "raw", "url", "file") if getattr(part, name) is not None]
    # `data` may be null in 1.0, where it is any JSON value; there its presence counts.
    if "data" in part.model_fields_set and (part.data is not None or not given):
        given.append("data")
    if len(given) != 1:
        raise invalid(field, "A part has exactly one of text, data and a file (raw, url or file).")
    kind = {"raw": "file", "url": "file"}.get(given[0], given[0])
    if part.kind not in (None, "", kind):
        raise invalid(f"{field}.kind", f"The part has the kind {part.kind!r}, but contains {kind}.")
    if kind == "file":
        return _decode_file(part, field)
    if kind == "text":
        return TextPart(
            text=part.text or "",
            media_type=part.mediaType or None,
            metadata=part.metadata or {},
            extra=_beside_content(part),
        )
    return _decode_data(part, field, data)


def _decode_data(part: w.Part, field: str, rule: "DataRule") -> DataPart:
    value: Any = part.data
    metadata = dict(part.metadata or {})
    # `a2a.v1.DataPart` of 0.3 is an object with one member, `data`; callers who send the JSON-RPC type over REST leave
    # that out.
    if rule == "wrapped" and part.kind is None and _is_only(value, "data"):
        value = value["data"]
    # Specification 0.3, 6.5.3: `data` is an object. In 1.0 it is a `google.protobuf.Value`.
    if rule != "any" and not _is_object(value):
        raise invalid(f"{field}.data", "The data of a part must be an object in A2A 0.x.")
    if metadata.get("data_part_compat") is True and _is_only(value, "value"):
        # 0.x has only objects as data: a2a-sdk 1.3.0's conversion of other values, undone.
        value = value["value"]
        del metadata["data_part_compat"]
    return DataPart(data=value, media_type=part.mediaType or None, metadata=metadata, extra=_beside_content(part))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_only(value: Any, name: str) -> bool:
    return isinstance(value, dict) and list(value) == [name]  # pyright: ignore[reportUnknownArgumentType]


DataRule = Literal["any", "object", "wrapped"]


def decode_message(message: w.Message, data: DataRule = "any") -> Message:
    """The caller's messageId, extensions and references travel in `extra`: canonical ids are the gateway's, and callers
    are free to repeat theirs. Raises invalid."""
    role = ROLES.get(message.role)
    if role is None:
        raise invalid("message.role", f"Unknown role {message.role!r}.")
    parts = tuple(decode_part(part, f"message.parts.{i}", data) for i, part in enumerate(message.parts))
    more: dict[str, Any] = {
        name: value for name, value in (message.model_extra or {}).items() if name not in ("kind", "content")
    }
    more["messageId"] = message.messageId
    if message.extensions:
        more["extensions"] = message.extensions
    if message.referenceTaskIds:
        more["referenceTaskIds"] = message.referenceTaskIds
    return Message(role=role, parts=parts, metadata=message.metadata or {}, extra={PROTOCOL: more})


def decode_context(context_id: str | None) -> str | None:
    """Raises invalid."""
    if context_id is not None and (len(context_id) > MAX_CONTEXT or "\0" in context_id):
        raise invalid("message.contextId", f"A context id has at most {MAX_CONTEXT} characters, and no NUL.")
    return context_id or None


class Dialect(ABC):
    name: ClassVar[str]
    version: ClassVar[Literal["0.3", "1.0"]]
    webhook: ClassVar[str]
    """The dialect in which pushes go to whoever registers in this one."""
    states: ClassVar[Mapping[TaskState, str]]
    roles: ClassVar[tuple[str, str]]
    """Of the caller, of the agent."""
    parts_key: ClassVar[str] = "parts"
    kinds: ClassVar[bool] = False
    """Whether objects say what they are in `kind`."""
    unknown: ClassVar[bool] = True
    """Whether fields that nobody here knows are passed on; strict ProtoJSON parsers refuse them."""

    def __init__(self, base_url: str, agent: str) -> None:
        self.base_url = base_url
        self.agent = agent

    # Going out

    @abstractmethod
    def encode_part(self, part: TextPart | DataPart | FilePart) -> JsonObject: ...

    @abstractmethod
    def encode_wait(self, wait: bool) -> JsonObject:
        """The configuration of a send that is to be answered when the task stops, or at once."""
        ...

    @abstractmethod
    def encode_push(self, push: Push) -> JsonObject: ...

    @abstractmethod
    def encode_pushes(self, pushes: Sequence[Push], next_token: str) -> Any: ...

    def file_url(self, part: FilePart) -> str:
        """Where the file is: its own URL, or where the gateway serves what is too large to be sent along."""
        return part.url or self.base_url + file_path(self.agent, part.blob or "")

    def encode_parts(self, parts: Sequence[Any]) -> list[JsonObject]:
        shown = [shown for shown in (shown_part(part)[0] for part in parts) if shown is not None]
        return [self._part(part) for part in shown] or [self.encode_part(TextPart(text=""))]

    def _part(self, part: TextPart | DataPart | FilePart) -> JsonObject:
        if isinstance(part, DataPart) and TYPED_RESULT in part.extra:
            part = part.replace(data={"result": part.data})
        encoded = self.encode_part(part)
        if part.metadata:
            encoded["metadata"] = {**part.metadata, **encoded.get("metadata", {})}
        return {**(part.extra.get(PROTOCOL) or {}), **encoded} if self.unknown and part.extra else encoded

    def encode_message(self, message: Message, context_id: str, task_id: str) -> JsonObject:
        own: JsonObject = message.extra.get(PROTOCOL) or {}
        encoded: JsonObject = {"kind": "message"} if self.kinds else {}
        encoded["messageId"] = own.get("messageId") or message.message_id or ""
        encoded["contextId"] = context_id
        encoded["taskId"] = task_id
        encoded["role"] = self.roles[message.role == "agent"]
        encoded[self.parts_key] = self.encode_parts(message.parts)
        if message.metadata:
            encoded["metadata"] = message.metadata
        if own.get("extensions"):
            encoded["extensions"] = own["extensions"]
        if not self.unknown:
            return encoded
        return {**own, **encoded} if own else encoded

    def encode_send(
        self,
        message: Message,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        references: Sequence[str] = (),
        wait: bool | None = None,
        output_modes: Sequence[str] = (),
        metadata: JsonObject | None = None,
    ) -> JsonObject:
        """What a client asks with; `wait` = None for a stream. Ids in the message itself are those of its caller's
        server: they mean nothing to another one."""
        said = self.encode_message(message, context_id or "", task_id or "")
        for name in ("contextId", "taskId"):
            if not said[name]:
                del said[name]
        said.pop("referenceTaskIds", None)
        if references and self.unknown:  # the protocol buffer of 0.3 has no field for them
            said["referenceTaskIds"] = list(references)
        # No configuration is not the same as an empty one: over 0.3's REST it means to wait (`waits`).
        configuration = {} if wait is None else self.encode_wait(wait)
        if output_modes:
            configuration["acceptedOutputModes"] = list(output_modes)
        encoded: JsonObject = {"message": said}
        if configuration:
            encoded["configuration"] = configuration
        if metadata:
            encoded["metadata"] = metadata
        return encoded

    def encode_artifact(self, artifact: Artifact) -> JsonObject:
        encoded: JsonObject = {"artifactId": artifact.artifact_id}
        if artifact.name is not None:
            encoded["name"] = artifact.name
        if artifact.description is not None:
            encoded["description"] = artifact.description
        encoded["parts"] = self.encode_parts(artifact.parts)
        if artifact.metadata:
            encoded["metadata"] = artifact.metadata
        if artifact.members.get("extensions"):
            encoded["extensions"] = artifact.members["extensions"]
        return self._beside(artifact.members, encoded)

    def encode_status(self, view: TaskSnapshot | StatusUpdate) -> JsonObject:
        status = view.status
        encoded: JsonObject = {"state": self.states[status.state]}
        if status.message is not None:
            encoded["message"] = self.encode_message(status.message, view.context_id, view.task_id)
        # 0.3 leaves the form open, and its SDK 0.3.26 writes `+00:00`; the form of 1.0 is legal in both.
        encoded["timestamp"] = encode_time(status.at, "milliseconds")  # specification 1.0, 5.6.1
        return self._beside(status.members, encoded)

    def _beside(self, unknown: JsonObject, encoded: JsonObject) -> JsonObject:
        return {**unknown, **encoded} if self.unknown and unknown else encoded

    def encode_task(
        self, task: TaskSnapshot, history_length: int | None = None, *, artifacts: bool = True
    ) -> JsonObject:
        """`history_length` (`historyLength`) newest messages, None = all; fields that would be empty are left out."""
        encoded: JsonObject = {"kind": "task"} if self.kinds else {}
        encoded["id"] = task.task_id
        encoded["contextId"] = task.context_id
        encoded["status"] = self.encode_status(task)
        if artifacts and task.artifacts:
            encoded["artifacts"] = [self.encode_artifact(artifact) for artifact in task.artifacts]
        history = task.history
        if history_length is not None:
            # Specification 1.0, 3.2.4: the most recent messages, and none at all for 0.
            history = history[max(0, len(history) - history_length) :]
        if history:
            encoded["history"] = [self.encode_message(said, task.context_id, task.task_id) for said in history]
        # Never empty: it holds the gateway's own ids, by which a task is found in other protocols.
        encoded["metadata"] = task.metadata
        return self._beside(task.members, encoded)

    def encode_update(self, update: Update, history_length: int | None = None) -> JsonObject:
        """One event of a stream."""
        match update:
            case TaskSnapshot():
                return self.wrap("task", self.encode_task(update, history_length))
            case StatusUpdate():
                return self.wrap("statusUpdate", self._status_update(update))
            case ArtifactUpdate():
                return self.wrap("artifactUpdate", self._artifact_update(update))

    def _status_update(self, update: StatusUpdate) -> JsonObject:
        encoded: JsonObject = {"kind": "status-update"} if self.kinds else {}
        encoded |= {"taskId": update.task_id, "contextId": update.context_id, "status": self.encode_status(update)}
        if update.metadata:
            encoded["metadata"] = update.metadata
        return self._beside(update.members, encoded)

    def _artifact_update(self, update: ArtifactUpdate) -> JsonObject:
        encoded: JsonObject = {"kind": "artifact-update"} if self.kinds else {}
        encoded |= {
            "taskId": update.task_id,
            "contextId": update.context_id,
            "artifact": self.encode_artifact(update.artifact),
            "append": update.append,
            "lastChunk": update.last,
        }
        if update.metadata:
            encoded["metadata"] = update.metadata
        return self._beside(update.members, encoded)

    def wrap(self, name: str, payload: JsonObject) -> JsonObject:
        """A payload of several possible ones, under its name."""
        return {name: payload}

    def encode_sent(self, task: TaskSnapshot, history_length: int | None) -> JsonObject:
        return self.wrap("task", self.encode_task(task, history_length))

    def encode_reply(self, message: Message, context_id: str) -> JsonObject:
        """The answer to a send, or the only event of its stream, where the agent made no task of it."""
        encoded = self.encode_message(message, context_id, "")
        # Specification 1.0, 3.1.1: a message instead of a task; an id would lead nowhere.
        del encoded["taskId"]
        return self.wrap("message", encoded)

    def encode_page(self, tasks: Sequence[TaskSnapshot], listing: Listing, next_token: str, total: int) -> JsonObject:
        """`nextPageToken` is always there and empty at the end (specification 1.0, 3.1.4)."""
        return {
            "tasks": [self.encode_task(task, listing.history_length, artifacts=listing.artifacts) for task in tasks],
            "nextPageToken": next_token,
            "pageSize": listing.page_size,
            "totalSize": total,
        }

    # Coming in

    @abstractmethod
    def decode_send(self, params: JsonObject) -> Send:
        """Raises invalid."""
        ...

    @abstractmethod
    def decode_get(self, params: JsonObject) -> Get:
        """Raises invalid."""
        ...

    @abstractmethod
    def decode_task_id(self, params: JsonObject) -> str:
        """Raises invalid."""
        ...

    @abstractmethod
    def decode_list(self, params: JsonObject) -> Listing:
        """Raises invalid."""
        ...

    @abstractmethod
    def decode_push(self, params: JsonObject) -> Push:
        """Raises invalid."""
        ...

    @abstractmethod
    def decode_push_name(self, params: JsonObject) -> PushName:
        """Raises invalid."""
        ...

    @abstractmethod
    def decode_push_list(self, params: JsonObject) -> PushListing:
        """Raises invalid."""
        ...

    @staticmethod
    def encode_base64(data: bytes) -> str:
        return b64encode(data).decode()
