"""A2A 0.2.5 to 0.3.0 as JSON: the requests of its JSON-RPC types, and of its protocol buffer `a2a.v1`, which the REST
binding under `/v1` uses. The two differ in a few names; both are taken in both places, because clients mix them."""

from typing import Any

from pydantic import AliasChoices, Field

from babelgate.adapters.a2a.wire import v1_0
from babelgate.adapters.a2a.wire.v1_0 import Part, Wire


class Message(v1_0.Message):
    kind: str | None = None
    # `content` in `a2a.v1`, which REST of 0.3 is made of.
    parts: list[Part] = Field(min_length=1, validation_alias=AliasChoices("parts", "content"))


class PushNotificationAuthenticationInfo(Wire):
    # Required in 0.3. A config without any is one with a token alone.
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
    """`GET /v1/tasks`: the 0.3 document's table of methods has it, without parameters; those of 1.0 are taken."""


class GetTaskPushNotificationConfigParams(TaskIdParams):
    pushNotificationConfigId: str | None = None


class TaskPushNotificationConfig(Wire):
    taskId: str
    pushNotificationConfig: PushNotificationConfig
