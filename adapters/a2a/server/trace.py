"""Operations of A2A in traces. An operation has one name for all versions and bindings (semantic conventions,
docs/gen-ai/a2a.md)."""

from collections.abc import Mapping
from typing import Any, Final, cast

from babelgate.adapters.kit.tracing import TracedOperation
from babelgate.canonical.value import JsonObject

from . import card, operation, push
from .call import Operation

METHODS_1_0: Final[dict[str, Operation]] = {
    "SendMessage": operation.send,
    "SendStreamingMessage": operation.stream,
    "GetTask": operation.get,
    "ListTasks": operation.list_tasks,
    "CancelTask": operation.cancel,
    "SubscribeToTask": operation.subscribe,
    "CreateTaskPushNotificationConfig": push.create,
    "GetTaskPushNotificationConfig": push.get,
    "ListTaskPushNotificationConfigs": push.list_configs,
    "DeleteTaskPushNotificationConfig": push.delete,
    "GetExtendedAgentCard": card.get_extended_card,
}
_NAMES: Final[Mapping[Operation, str]] = {operate: name for name, operate in METHODS_1_0.items()}


def describe(operate: Operation, version: str, params: object) -> TracedOperation:
    """Return the name and the attributes of a request's span: its operation, the protocol's version and the
    message id in its params."""
    name = _NAMES[operate]
    attributes = {"a2a.method.name": name, "a2a.protocol.version": version}
    sent: Any = cast("JsonObject", params).get("message") if isinstance(params, dict) else None
    message_id: Any = cast("JsonObject", sent).get("messageId") if isinstance(sent, dict) else None
    if isinstance(message_id, str):
        attributes["a2a.message.id"] = message_id[:_ID_LENGTH]
    return TracedOperation(name, attributes)


_ID_LENGTH: Final = 200
"""Maximum length of a message id in a span, in characters. Chosen: most ids are UUIDs."""
