"""Dialect of A2A 0.2.5 to 0.3.0 in JSON-RPC. These versions have the same messages, parts, tasks and events."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from babelgate.adapters.a2a.codec.dialect import DataRule, Dialect, decode_context, decode_message, invalid
from babelgate.adapters.a2a.codec.v1_0 import decode_listing
from babelgate.adapters.a2a.wire import v0_3 as w
from babelgate.adapters.a2a.wire.requests import Get, Listing, Push, PushListing, PushName, Send
from babelgate.adapters.a2a.wire.task import StatusUpdate
from babelgate.adapters.kit.json import validate
from babelgate.canonical import DataPart, FilePart, TaskState, TextPart
from babelgate.canonical.value import JsonObject

STATES: Final = {
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.INPUT_REQUIRED: "input-required",
    TaskState.AUTH_REQUIRED: "auth-required",
    # A2A has no state between the request to cancel and the end.
    TaskState.CANCELLING: "working",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "canceled",
    TaskState.REJECTED: "rejected",
}


def object_data(part: DataPart) -> tuple[JsonObject, JsonObject]:
    """Return the data of a data part as an object, which 0.x requires, and metadata for the part.

    Data that is not an object is wrapped, and the metadata mark this, as a2a-sdk 1.3.0 does when it converts between
    the versions. Otherwise the metadata are empty.
    """
    if isinstance(part.data, dict):
        return part.data, {}
    return {"value": part.data}, {"data_part_compat": True}


class Codec(Dialect):
    """Dialect of A2A 0.3 in JSON-RPC."""

    name: ClassVar = "0.3"
    version: ClassVar = "0.3"
    webhook: ClassVar = "a2a-0.3"
    states: ClassVar = STATES
    roles: ClassVar = ("user", "agent")
    has_kind: ClassVar = True
    data_rule: ClassVar[DataRule] = "object"

    def encode_part(self, part: TextPart | DataPart | FilePart) -> JsonObject:
        match part:
            case TextPart():
                return {"kind": "text", "text": part.text}
            case DataPart():
                data, metadata = object_data(part)
                encoded: JsonObject = {"kind": "data", "data": data}
                return {**encoded, "metadata": metadata} if metadata else encoded
            case FilePart():
                file: JsonObject = (
                    {"uri": self.file_url(part)} if part.inline is None else {"bytes": self.encode_base64(part.inline)}
                )
                if part.name is not None:
                    file["name"] = part.name
                if part.media_type is not None:
                    file["mimeType"] = part.media_type
                return {"kind": "file", "file": file}

    def wrap(self, name: str, payload: JsonObject) -> JsonObject:
        return payload  # its `kind` names its type

    def _status_update(self, update: StatusUpdate) -> JsonObject:
        # The last event of a stream is marked; a stream closes on questions too.
        return {**super()._status_update(update), "final": update.status.is_stop}

    def encode_wait(self, wait: bool) -> JsonObject:
        return {"blocking": wait}

    def encode_push(self, push: Push) -> JsonObject:
        return {"taskId": push.task_id, "pushNotificationConfig": self.push_config(push)}

    @staticmethod
    def push_config(push: Push) -> JsonObject:
        # Specification 0.3, 6.8. `id` is optional there, but the other methods need it.
        config: JsonObject = {"id": push.config_id or "", "url": push.url}
        if push.token is not None:
            config["token"] = push.token
        if push.schemes:
            config["authentication"] = {"schemes": list(push.schemes)}
            if push.credentials is not None:
                config["authentication"] |= {"credentials": push.credentials}
        return config

    def encode_pushes(self, pushes: Sequence[Push], next_token: str) -> Any:
        # Specification 0.3, 7.7: a bare array, without pages.
        return [self.encode_push(push) for push in pushes]

    def decode_send(self, params: JsonObject) -> Send:
        request = validate(w.MessageSendParams, params)
        configuration = request.configuration or w.MessageSendConfiguration()
        # Specification 0.3, 7.1 (`MessageSendConfiguration`). 1.0 renamed the member.
        push = configuration.pushNotificationConfig
        return Send(
            message=decode_message(request.message, self.data_rule),
            context_id=decode_context(request.message.contextId),
            task_id=request.message.taskId or None,
            references=tuple(request.message.referenceTaskIds or ()),
            wait=self.is_blocking(request),
            history_length=_history(configuration.historyLength),
            output_modes=tuple(configuration.acceptedOutputModes or ()),
            push=None if push is None else decode_push_config(push, ""),
            metadata=request.metadata or {},
        )

    def is_blocking(self, request: w.MessageSendParams) -> bool:
        """Return True if the response to a send waits until the task stops: always, unless `blocking` is false. The
        specification names no default, and the official SDKs wait."""
        # a2a-sdk 0.3.26 and 1.3.0, over JSON-RPC.
        return request.configuration is None or request.configuration.blocking is not False

    def decode_get(self, params: JsonObject) -> Get:
        request = validate(w.TaskQueryParams, params)
        return Get(task_id=request.id, history_length=_history(request.historyLength))

    def decode_task_id(self, params: JsonObject) -> str:
        return validate(w.TaskIdParams, params).id

    def decode_list(self, params: JsonObject) -> Listing:
        return decode_listing(validate(w.ListTasksParams, params))

    def decode_push(self, params: JsonObject) -> Push:
        request = validate(w.TaskPushNotificationConfig, params)
        return decode_push_config(request.pushNotificationConfig, request.taskId)

    def decode_push_name(self, params: JsonObject) -> PushName:
        request = validate(w.GetTaskPushNotificationConfigParams, params)
        # Specification 0.3, 7.6: a get may omit the id of the config. Then any config will do.
        return PushName(task_id=request.id, config_id=request.pushNotificationConfigId or None)

    def decode_push_list(self, params: JsonObject) -> PushListing:
        return PushListing(task_id=validate(w.TaskIdParams, params).id)


def _history(length: int | None) -> int | None:
    """Return the maximum number of messages in the history, or None for no limit, which 0 means in 0.3. Raises invalid
    for a negative number."""
    if length is not None and length < 0:
        raise invalid("historyLength", "The number of messages must not be negative.")
    # `a2a.v1`, SendMessageConfiguration.history_length: 0 is unlimited. a2a-sdk 0.3.26 treats negative numbers so, too.
    return length if length is not None and length > 0 else None


def decode_push_config(config: w.PushNotificationConfig, task_id: str) -> Push:
    auth = config.authentication
    return Push(
        url=config.url,
        task_id=task_id,
        config_id=config.id or None,
        token=config.token or None,
        schemes=tuple(auth.schemes) if auth is not None else (),
        credentials=(auth.credentials or None) if auth is not None else None,
    )
