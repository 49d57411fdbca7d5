"""Dialect of A2A 1.0 in every binding: all bindings have the JSON that ProtoJSON defines for the protocol buffer
`lf.a2a.v1`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from babelgate.adapters.a2a.codec.dialect import Dialect, decode_context, decode_message, invalid
from babelgate.adapters.a2a.wire import v1_0 as w
from babelgate.adapters.a2a.wire.requests import Get, Listing, Push, PushListing, PushName, Send
from babelgate.adapters.kit.json import validate
from babelgate.canonical import DataPart, FilePart, TaskState, TextPart
from babelgate.canonical.value import JsonObject

STATES: Final = {
    TaskState.SUBMITTED: "TASK_STATE_SUBMITTED",
    TaskState.WORKING: "TASK_STATE_WORKING",
    TaskState.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
    TaskState.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
    # A2A has no state between the request to cancel and the end.
    TaskState.CANCELLING: "TASK_STATE_WORKING",
    TaskState.COMPLETED: "TASK_STATE_COMPLETED",
    TaskState.FAILED: "TASK_STATE_FAILED",
    TaskState.CANCELLED: "TASK_STATE_CANCELED",
    TaskState.REJECTED: "TASK_STATE_REJECTED",
}
FROM_STATES: Final = {
    name: frozenset(state for state, spelling in STATES.items() if spelling == name) for name in STATES.values()
}

MIN_PAGE, DEFAULT_PAGE, MAX_PAGE = 1, 50, 100


class Codec(Dialect):
    """Dialect of A2A 1.0, for all of its bindings."""

    name: ClassVar = "1.0"
    version: ClassVar = "1.0"
    webhook: ClassVar = "a2a-1.0"
    states: ClassVar = STATES
    roles: ClassVar = ("ROLE_USER", "ROLE_AGENT")

    def encode_part(self, part: TextPart | DataPart | FilePart) -> JsonObject:
        encoded: JsonObject
        match part:
            case TextPart():
                encoded = {"text": part.text}
            case DataPart():
                encoded = {"data": part.data}
            case FilePart():
                encoded = (
                    {"url": self.file_url(part)} if part.inline is None else {"raw": self.encode_base64(part.inline)}
                )
                if part.name is not None:
                    encoded["filename"] = part.name
        if part.media_type is not None:
            encoded["mediaType"] = part.media_type
        return encoded

    def encode_wait(self, wait: bool) -> JsonObject:
        # Specification 1.0, 3.2.2: waiting is the default.
        return {} if wait else {"returnImmediately": True}

    def encode_push(self, push: Push) -> JsonObject:
        encoded: JsonObject = {"id": push.config_id or "", "taskId": push.task_id, "url": push.url}
        if push.token is not None:
            encoded["token"] = push.token
        if push.schemes:
            # `AuthenticationInfo` of 1.0 has one scheme, where 0.3 has a list.
            encoded["authentication"] = {"scheme": push.schemes[0]}
            if push.credentials is not None:
                encoded["authentication"]["credentials"] = push.credentials
        return encoded

    def encode_pushes(self, pushes: Sequence[Push], next_token: str) -> Any:
        return {"configs": [self.encode_push(push) for push in pushes], "nextPageToken": next_token}

    def decode_send(self, params: JsonObject) -> Send:
        request = validate(w.SendMessageRequest, params)
        configuration = request.configuration or w.SendMessageConfiguration()
        push = configuration.taskPushNotificationConfig
        return Send(
            message=decode_message(request.message),
            context_id=decode_context(request.message.contextId),
            task_id=request.message.taskId or None,
            references=tuple(request.message.referenceTaskIds or ()),
            # Specification 1.0, 3.2.2, which 3.1.1 ("MUST return immediately") contradicts; both SDKs wait.
            wait=not configuration.returnImmediately,
            history_length=_history(configuration.historyLength, "configuration.historyLength"),
            output_modes=tuple(configuration.acceptedOutputModes or ()),
            push=None if push is None else _push(push),
            metadata=request.metadata or {},
        )

    def decode_get(self, params: JsonObject) -> Get:
        request = validate(w.GetTaskRequest, params)
        return Get(task_id=request.id, history_length=_history(request.historyLength))

    def decode_task_id(self, params: JsonObject) -> str:
        return validate(w.SubscribeToTaskRequest, params).id

    def decode_list(self, params: JsonObject) -> Listing:
        return decode_listing(validate(w.ListTasksRequest, params))

    def decode_push(self, params: JsonObject) -> Push:
        """Decode a push notification config, which must name its task. Raises invalid for a malformed config, and for
        one without a task id."""
        request = validate(w.TaskPushNotificationConfig, params)
        # `TaskPushNotificationConfig.task_id` is required here. A config in a message has none.
        if not request.taskId:
            raise invalid("taskId", "The id of the task whose updates are to be pushed is missing.")
        return _push(request)

    def decode_push_name(self, params: JsonObject) -> PushName:
        request = validate(w.GetTaskPushNotificationConfigRequest, params)
        return PushName(task_id=request.taskId, config_id=request.id)

    def decode_push_list(self, params: JsonObject) -> PushListing:
        request = validate(w.ListTaskPushNotificationConfigsRequest, params)
        # ProtoJSON omits an unset integer, or writes 0.
        size = _page_size(request.pageSize or None, MAX_PAGE)
        return PushListing(task_id=request.taskId, page_size=size, page_token=request.pageToken or None)


def decode_listing(request: w.ListTasksRequest) -> Listing:
    """Decode the filters and the page of a request for a list of tasks. Raises invalid for an unknown state or a
    malformed time."""
    states: frozenset[TaskState] | None = None
    if request.status and request.status != "TASK_STATE_UNSPECIFIED":
        # a2a-sdk 1.3.0 ignores an unknown state. But without its filter the list would contain unrequested tasks.
        states = FROM_STATES.get(request.status)
        if states is None:
            raise invalid("status", f"Unknown task state {request.status[:100]!r}.")
    return Listing(
        context_id=request.contextId or None,
        states=states,
        changed_after=None if request.statusTimestampAfter is None else _micros(request.statusTimestampAfter),
        page_size=_page_size(request.pageSize, DEFAULT_PAGE),
        page_token=request.pageToken or None,
        history_length=_history(request.historyLength),
        artifacts=bool(request.includeArtifacts),
    )


def _page_size(size: int | None, default: int) -> int:
    if size is None:
        return default
    # Specification 1.0, 3.1.4: `pageSize` is from 1 to 100. Any other value is invalid.
    if not MIN_PAGE <= size <= MAX_PAGE:
        raise invalid("pageSize", f"The size of a page must be from {MIN_PAGE} to {MAX_PAGE}.")
    return size


def _history(length: int | None, field: str = "historyLength") -> int | None:
    if length is not None and length < 0:
        raise invalid(field, "The number of messages must not be negative.")
    # 0 means no messages, unlike in 0.3 (specification 1.0, 3.2.4).
    return length


def _micros(text: str) -> int:
    """Return an ISO 8601 time in microseconds since 1970. Raises invalid for any other text."""
    try:
        moment = datetime.fromisoformat(text)
        # `google.protobuf.Timestamp` ends with Z or an offset; without either it is read as UTC.
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        # Count with integers: a float of this size would lose the microseconds.
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise invalid("statusTimestampAfter", "The value must be an ISO 8601 time.") from error
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _push(config: w.TaskPushNotificationConfig) -> Push:
    auth = config.authentication
    return Push(
        url=config.url,
        task_id=config.taskId or "",
        config_id=config.id or None,
        token=config.token or None,
        schemes=(auth.scheme,) if auth is not None and auth.scheme else (),
        credentials=(auth.credentials or None) if auth is not None else None,
    )
