"""Base of the A2A dialects: encoding of messages, artifacts, tasks and updates, and decoding of parts.

A dialect is a form in which A2A writes JSON: its enum names, the keys of a part, wrappers and discriminators. There are
three: 1.0 in all bindings (`codec.v1_0`), 0.3 in JSON-RPC (`codec.v0_3`), and 0.3 in REST, which follows its protocol
buffer (`codec.v0_3_rest`).
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
"""Maximum length of a contextId, in characters. A longer one is rejected, not replaced (specification 1.0, 3.4.1).
Chosen."""

ROLES: Mapping[str, Role] = {"user": "user", "agent": "agent", "ROLE_USER": "user", "ROLE_AGENT": "agent"}
"""Roles by their names in 0.x and in 1.0. Every dialect accepts the names of both versions, because the tutorials of
1.0 still have those of 0.x."""


def file_path(agent: str, blob: str) -> str:
    """Return the path at which the gateway serves the file with the hash `blob`."""
    return f"/a2a/{agent}/files/{blob}"


def invalid(field: str, message: str) -> FaultError:
    return FaultError(FaultCode.INVALID, f"{field}: {message}", errors=[{"field": field, "description": message}])


def decode_base64(text: str, field: str) -> bytes:
    """Decode a text in base64, standard or URL-safe, with or without padding. Raises invalid; `field` names the member
    in the error."""
    # ProtoJSON, bytes: "standard or URL-safe base64 encoding with/without paddings are accepted"
    # (protobuf.dev/programming-guides/json).
    plain = text.translate(_URL_SAFE).rstrip("=")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (NoBase64, ValueError) as error:
        raise invalid(field, "The value must be base64.") from error


_URL_SAFE = str.maketrans("-_", "+/")


def _decode_again(data: bytes) -> bytes:
    """Decode bytes that are themselves valid base64, and return any other bytes unchanged.

    The official SDKs encode `fileWithBytes` twice, and callers that follow the specification once. A file whose own
    content is valid base64 cannot be distinguished.
    """
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
        # Accept the names of both encodings: `file.bytes` and `file.uri` are those of 0.3's JSON-RPC (0.3, 6.6), the
        # longer ones those of its protocol buffer. a2a-js up to 0.3.7 sends the former over REST, too.
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


def _extra_of(part: w.Part) -> Mapping[str, Any]:
    """Return the unknown members of a text or data part as canonical `extra`, with the file name that such a part may
    have in 1.0."""
    extra = _unknown(part, drop="kind")
    return {PROTOCOL: {**extra.get(PROTOCOL, {}), "filename": part.filename}} if part.filename else extra


def _unknown(model: w.Wire, *, drop: str = "") -> Mapping[str, Any]:
    """Return the members that A2A does not define as canonical `extra`. The member `drop` is omitted."""
    members = {name: value for name, value in (model.model_extra or {}).items() if name != drop}
    return {PROTOCOL: members} if members else {}


def decode_part(part: w.Part, field: str, data: "DataRule" = "any") -> TextPart | DataPart | FilePart:
    """Decode a part. Raises invalid unless it has exactly one content (text, data or a file), of the kind that it
    declares. `field` names the part in the error, and `data` is the form of its data."""
    present = [name for name in ("text", "raw", "url", "file") if getattr(part, name) is not None]
    # `data` may be null in 1.0, where it is any JSON value. So its presence counts, not its value.
    if "data" in part.model_fields_set and (part.data is not None or not present):
        present.append("data")
    if len(present) != 1:
        raise invalid(field, "A part has exactly one of text, data and a file (raw, url or file).")
    kind = {"raw": "file", "url": "file"}.get(present[0], present[0])
    if part.kind not in (None, "", kind):
        raise invalid(f"{field}.kind", f"The part has the kind {part.kind!r}, but contains {kind}.")
    if kind == "file":
        return _decode_file(part, field)
    if kind == "text":
        return TextPart(
            text=part.text or "",
            media_type=part.mediaType or None,
            metadata=part.metadata or {},
            extra=_extra_of(part),
        )
    return _decode_data(part, field, data)


def _decode_data(part: w.Part, field: str, rule: "DataRule") -> DataPart:
    value: Any = part.data
    metadata = dict(part.metadata or {})
    # `a2a.v1.DataPart` of 0.3 is an object with one member, `data`. Callers that send the JSON-RPC type over REST omit
    # that object.
    if rule == "wrapped" and part.kind is None and _is_only(value, "data"):
        value = value["data"]
    # Specification 0.3, 6.5.3: `data` is an object. In 1.0 it is a `google.protobuf.Value`.
    if rule != "any" and not _is_object(value):
        raise invalid(f"{field}.data", "The data of a part must be an object in A2A 0.x.")
    if metadata.get("data_part_compat") is True and _is_only(value, "value"):
        # Undo a2a-sdk 1.3.0's conversion of other values: in 0.x data must be an object.
        value = value["value"]
        del metadata["data_part_compat"]
    return DataPart(data=value, media_type=part.mediaType or None, metadata=metadata, extra=_extra_of(part))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_only(value: Any, name: str) -> bool:
    return isinstance(value, dict) and list(value) == [name]  # pyright: ignore[reportUnknownArgumentType]


DataRule = Literal["any", "object", "wrapped"]
"""Form of the data in a part: any JSON value (1.0), an object (0.3), or an object within an object (0.3 over REST)."""


def decode_message(message: w.Message, data: DataRule = "any") -> Message:
    """Decode a message. Raises invalid if the role or a part is invalid.

    The caller's messageId, extensions and references go to `extra`. Canonical ids are assigned by the gateway, because
    callers may repeat a messageId.
    """
    role = ROLES.get(message.role)
    if role is None:
        raise invalid("message.role", f"Unknown role {message.role!r}.")
    parts = tuple(decode_part(part, f"message.parts.{i}", data) for i, part in enumerate(message.parts))
    members: dict[str, Any] = {
        name: value for name, value in (message.model_extra or {}).items() if name not in ("kind", "content")
    }
    members["messageId"] = message.messageId
    if message.extensions:
        members["extensions"] = message.extensions
    if message.referenceTaskIds:
        members["referenceTaskIds"] = message.referenceTaskIds
    return Message(role=role, parts=parts, metadata=message.metadata or {}, extra={PROTOCOL: members})


def decode_context(context_id: str | None) -> str | None:
    """Return the contextId, or None if it is empty. Raises invalid if it is too long or contains NUL."""
    if context_id is not None and (len(context_id) > MAX_CONTEXT or "\0" in context_id):
        raise invalid("message.contextId", f"A context id has at most {MAX_CONTEXT} characters, and no NUL.")
    return context_id or None


class Dialect(ABC):
    """Converter between canonical types and one form of A2A's JSON."""

    name: ClassVar[str]
    version: ClassVar[Literal["0.3", "1.0"]]
    webhook: ClassVar[str]
    """Name of the webhook writer for push notifications that a caller of this dialect registers: a key of
    `Adapter.webhooks`."""
    states: ClassVar[Mapping[TaskState, str]]
    roles: ClassVar[tuple[str, str]]
    """Names of the roles in messages: that of the caller, and that of the agent."""
    parts_key: ClassVar[str] = "parts"
    has_kind: ClassVar[bool] = False
    """True if objects name their type in a member `kind`, such as `"kind": "task"`."""
    passes_unknown: ClassVar[bool] = True
    """True if members that A2A does not define are passed on to callers. False for a form that clients parse as strict
    ProtoJSON, which rejects such members."""

    def __init__(self, base_url: str, agent: str) -> None:
        self.base_url = base_url
        self.agent = agent

    # Encoding

    @abstractmethod
    def encode_part(self, part: TextPart | DataPart | FilePart) -> JsonObject: ...

    @abstractmethod
    def encode_wait(self, wait: bool) -> JsonObject:
        """Encode the configuration of a send. With `wait`, the server responds when the task stops; otherwise, it
        responds at once."""
        ...

    @abstractmethod
    def encode_push(self, push: Push) -> JsonObject: ...

    @abstractmethod
    def encode_pushes(self, pushes: Sequence[Push], next_token: str) -> Any: ...

    def file_url(self, part: FilePart) -> str:
        """Return the URL of a file: its own, or a URL of the gateway for a stored file that is too large to be sent in
        the message."""
        return part.url or self.base_url + file_path(self.agent, part.blob or "")

    def encode_parts(self, parts: Sequence[Any]) -> list[JsonObject]:
        """Encode the parts for which A2A has a form. If there are none, return one part with an empty text."""
        encodable = [each for each in (shown_part(part)[0] for part in parts) if each is not None]
        return [self._part(part) for part in encodable] or [self.encode_part(TextPart(text=""))]

    def _part(self, part: TextPart | DataPart | FilePart) -> JsonObject:
        if isinstance(part, DataPart) and TYPED_RESULT in part.extra:
            part = part.replace(data={"result": part.data})
        encoded = self.encode_part(part)
        if part.metadata:
            encoded["metadata"] = {**part.metadata, **encoded.get("metadata", {})}
        return {**(part.extra.get(PROTOCOL) or {}), **encoded} if self.passes_unknown and part.extra else encoded

    def encode_message(self, message: Message, context_id: str, task_id: str) -> JsonObject:
        members: JsonObject = message.extra.get(PROTOCOL) or {}
        encoded: JsonObject = {"kind": "message"} if self.has_kind else {}
        encoded["messageId"] = members.get("messageId") or message.message_id or ""
        encoded["contextId"] = context_id
        encoded["taskId"] = task_id
        encoded["role"] = self.roles[message.role == "agent"]
        encoded[self.parts_key] = self.encode_parts(message.parts)
        if message.metadata:
            encoded["metadata"] = message.metadata
        if members.get("extensions"):
            encoded["extensions"] = members["extensions"]
        if not self.passes_unknown:
            return encoded
        return {**members, **encoded} if members else encoded

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
        """Encode the params of a send that the gateway makes as a client. Optional values that are None or empty are
        omitted.

        `wait` is True if the server should respond when the task stops, False if at once, and None for a stream.
        `references` are the ids of earlier tasks of the context. Ids in the message itself belong to another server, so
        `context_id` and `task_id` replace them.
        """
        encoded_message = self.encode_message(message, context_id or "", task_id or "")
        for name in ("contextId", "taskId"):
            if not encoded_message[name]:
                del encoded_message[name]
        encoded_message.pop("referenceTaskIds", None)
        if references and self.passes_unknown:  # the protocol buffer of 0.3 has no field for them
            encoded_message["referenceTaskIds"] = list(references)
        # Over 0.3's REST a missing configuration means to wait, and an empty one does not (`is_blocking`).
        configuration = {} if wait is None else self.encode_wait(wait)
        if output_modes:
            configuration["acceptedOutputModes"] = list(output_modes)
        encoded: JsonObject = {"message": encoded_message}
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
        return self._with_unknown(artifact.members, encoded)

    def encode_status(self, view: TaskSnapshot | StatusUpdate) -> JsonObject:
        status = view.status
        encoded: JsonObject = {"state": self.states[status.state]}
        if status.message is not None:
            encoded["message"] = self.encode_message(status.message, view.context_id, view.task_id)
        # 0.3 does not specify the form, and its SDK 0.3.26 writes `+00:00`. The form of 1.0 is valid in both.
        encoded["timestamp"] = encode_time(status.at, "milliseconds")  # specification 1.0, 5.6.1
        return self._with_unknown(status.members, encoded)

    def _with_unknown(self, unknown: JsonObject, encoded: JsonObject) -> JsonObject:
        """Return the encoded object with the members `unknown`, which A2A does not define, if this dialect passes them
        on."""
        return {**unknown, **encoded} if self.passes_unknown and unknown else encoded

    def encode_task(
        self, task: TaskSnapshot, history_length: int | None = None, *, artifacts: bool = True
    ) -> JsonObject:
        """Encode a task, without empty fields. `history_length` is the maximum number of its newest messages (None:
        all). Without `artifacts`, the artifacts are left out."""
        encoded: JsonObject = {"kind": "task"} if self.has_kind else {}
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
            encoded["history"] = [self.encode_message(each, task.context_id, task.task_id) for each in history]
        # Never empty: it contains the gateway's ids, by which other protocols find the task.
        encoded["metadata"] = task.metadata
        return self._with_unknown(task.members, encoded)

    def encode_update(self, update: Update, history_length: int | None = None) -> JsonObject:
        """Encode one event of a stream. If it is a whole task, `history_length` is the maximum number of its newest
        messages (None: all)."""
        match update:
            case TaskSnapshot():
                return self.wrap("task", self.encode_task(update, history_length))
            case StatusUpdate():
                return self.wrap("statusUpdate", self._status_update(update))
            case ArtifactUpdate():
                return self.wrap("artifactUpdate", self._artifact_update(update))

    def _status_update(self, update: StatusUpdate) -> JsonObject:
        encoded: JsonObject = {"kind": "status-update"} if self.has_kind else {}
        encoded |= {"taskId": update.task_id, "contextId": update.context_id, "status": self.encode_status(update)}
        if update.metadata:
            encoded["metadata"] = update.metadata
        return self._with_unknown(update.members, encoded)

    def _artifact_update(self, update: ArtifactUpdate) -> JsonObject:
        encoded: JsonObject = {"kind": "artifact-update"} if self.has_kind else {}
        encoded |= {
            "taskId": update.task_id,
            "contextId": update.context_id,
            "artifact": self.encode_artifact(update.artifact),
            "append": update.append,
            "lastChunk": update.last,
        }
        if update.metadata:
            encoded["metadata"] = update.metadata
        return self._with_unknown(update.members, encoded)

    def wrap(self, name: str, payload: JsonObject) -> JsonObject:
        """Return the payload in an object whose only member, such as `task` or `statusUpdate`, names the type of the
        payload."""
        return {name: payload}

    def encode_sent(self, task: TaskSnapshot, history_length: int | None) -> JsonObject:
        """Encode the response to a send that created or continued a task. `history_length` is the maximum number of the
        task's newest messages (None: all)."""
        return self.wrap("task", self.encode_task(task, history_length))

    def encode_reply(self, message: Message, context_id: str) -> JsonObject:
        """Encode a message that is the whole response to a send, because the agent answers without a task."""
        encoded = self.encode_message(message, context_id, "")
        # Specification 1.0, 3.1.1: a message instead of a task. No task has this id.
        del encoded["taskId"]
        return self.wrap("message", encoded)

    def encode_page(self, tasks: Sequence[TaskSnapshot], listing: Listing, next_token: str, total: int) -> JsonObject:
        """Encode one page of a list of tasks. `nextPageToken` is empty on the last page (specification 1.0, 3.1.4)."""
        return {
            "tasks": [self.encode_task(task, listing.history_length, artifacts=listing.artifacts) for task in tasks],
            "nextPageToken": next_token,
            "pageSize": listing.page_size,
            "totalSize": total,
        }

    # Decoding

    @abstractmethod
    def decode_send(self, params: JsonObject) -> Send:
        """Decode the params of a request that sends a message to an agent. Raises invalid for malformed params."""
        ...

    @abstractmethod
    def decode_get(self, params: JsonObject) -> Get:
        """Decode a request for one task. Raises invalid for malformed params."""
        ...

    @abstractmethod
    def decode_task_id(self, params: JsonObject) -> str:
        """Decode a request that has only a task id, and return the id. Raises invalid for malformed params."""
        ...

    @abstractmethod
    def decode_list(self, params: JsonObject) -> Listing:
        """Decode a request for a list of tasks. Raises invalid for malformed params."""
        ...

    @abstractmethod
    def decode_push(self, params: JsonObject) -> Push:
        """Decode a push notification config. Raises invalid for malformed params."""
        ...

    @abstractmethod
    def decode_push_name(self, params: JsonObject) -> PushName:
        """Decode a request for one push notification config. Raises invalid for malformed params."""
        ...

    @abstractmethod
    def decode_push_list(self, params: JsonObject) -> PushListing:
        """Decode a request for a task's push notification configs. Raises invalid for malformed params."""
        ...

    @staticmethod
    def encode_base64(data: bytes) -> str:
        return b64encode(data).decode()
