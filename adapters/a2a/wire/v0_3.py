"""Types of the JSON requests of A2A 0.2.5 to 0.3.0.

They have the names of the JSON-RPC types or of the protocol buffer `a2a.v1`, which the REST binding under `/v1` uses.
Both bindings accept the names of both, because clients mix them.
"""

from typing import Any

from pydantic import AliasChoices, Field

from babelgate.adapters.a2a.wire import v1_0
from babelgate.adapters.a2a.wire.v1_0 import Part, Wire


class Message(v1_0.Message):
    kind: str | None = None
    # `content` in `a2a.v1`.
    parts: list[Part] = Field(min_length=1, validation_alias=AliasChoices("parts", "content"))


class PushNotificationAuthenticationInfo(Wire):
    # Required in 0.3; empty for a config that only has a token.
    schemes: list[str] = []
    credentials: str | None = None


class PushNotificationConfig(Wire):
    id: str | None = None
    url: str = Field(min_length=1)
    token: str | None = None
    authentication: PushNotificationAuthenticationInfo | None = None


class MessageSendConfiguration(Wire):
    acceptedOutputModes: list[str] | None = None
    blocking: bool | None = None
    historyLength: int | None = None
    pushNotificationConfig: PushNotificationConfig | None = Field(
        default=None,
        # `push_notification` in `a2a.v1`.
        validation_alias=AliasChoices("pushNotificationConfig", "pushNotification", "push_notification"),
    )


class MessageSendParams(Wire):
    # `request` in `a2a.v1`.
    message: Message = Field(validation_alias=AliasChoices("message", "request"))
    configuration: MessageSendConfiguration | None = None
    metadata: dict[str, Any] | None = None


class TaskIdParams(Wire):
    id: str
    metadata: dict[str, Any] | None = None


class TaskQueryParams(TaskIdParams):
    historyLength: int | None = None


class ListTasksParams(v1_0.ListTasksRequest):
    """Params of `GET /v1/tasks`. The specification of 0.3 defines none; the gateway accepts those of 1.0."""


class GetTaskPushNotificationConfigParams(TaskIdParams):
    pushNotificationConfigId: str | None = None


class TaskPushNotificationConfig(Wire):
    taskId: str
    pushNotificationConfig: PushNotificationConfig
