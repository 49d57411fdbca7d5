"""Types of the JSON requests of A2A 1.0: those of the protocol buffer `lf.a2a.v1` in its ProtoJSON form, with verbatim
names.

Like ProtoJSON parsers, they accept each field by its lowerCamelCase name and by its name in the .proto file, and null
for "not set". There are no types of responses: `codec.dialect` writes them key by key, because absent, null and empty
differ there.
"""

from typing import Any

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_snake


def _either(name: str) -> AliasChoices:
    return AliasChoices(name, to_snake(name))


class Wire(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=AliasGenerator(validation_alias=_either))


class FileContent(Wire):
    """The file in a part of 0.x. The names are `bytes` and `uri` in the JSON-RPC types, and the longer names in the
    protocol buffer."""

    bytes: str | None = None
    fileWithBytes: str | None = None
    uri: str | None = None
    fileWithUri: str | None = None
    name: str | None = None
    mimeType: str | None = None


class Part(Wire):
    """One part in the form of any version.

    All versions accept both forms of files, with and without `kind`: clients of one version are known to send the
    other's.
    """

    kind: str | None = None
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    file: FileContent | None = None
    metadata: dict[str, Any] | None = None
    filename: str | None = None
    mediaType: str | None = None


class Message(Wire):
    # Specification 1.0, 4.1.4: `message_id`, `role` and `parts` are REQUIRED.
    messageId: str = Field(min_length=1)
    contextId: str | None = None
    taskId: str | None = None
    role: str
    # a2a-sdk 0.3.26 accepts an empty list, too.
    parts: list[Part] = Field(min_length=1)
    metadata: dict[str, Any] | None = None
    extensions: list[str] | None = None
    referenceTaskIds: list[str] | None = None


class AuthenticationInfo(Wire):
    scheme: str | None = None
    credentials: str | None = None


class TaskPushNotificationConfig(Wire):
    tenant: str | None = None
    id: str | None = None
    taskId: str | None = None
    url: str = Field(min_length=1)
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(Wire):
    acceptedOutputModes: list[str] | None = None
    taskPushNotificationConfig: TaskPushNotificationConfig | None = None
    historyLength: int | None = None
    returnImmediately: bool | None = None


class SendMessageRequest(Wire):
    tenant: str | None = None
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: dict[str, Any] | None = None


class GetTaskRequest(Wire):
    tenant: str | None = None
    id: str
    historyLength: int | None = None


class ListTasksRequest(Wire):
    tenant: str | None = None
    contextId: str | None = None
    status: str | None = None
    pageSize: int | None = None
    pageToken: str | None = None
    historyLength: int | None = None
    statusTimestampAfter: str | None = None
    includeArtifacts: bool | None = None


class CancelTaskRequest(Wire):
    tenant: str | None = None
    id: str
    metadata: dict[str, Any] | None = None


class SubscribeToTaskRequest(Wire):
    tenant: str | None = None
    id: str


class GetTaskPushNotificationConfigRequest(Wire):
    tenant: str | None = None
    taskId: str
    id: str


class DeleteTaskPushNotificationConfigRequest(Wire):
    tenant: str | None = None
    taskId: str
    id: str


class ListTaskPushNotificationConfigsRequest(Wire):
    tenant: str | None = None
    taskId: str
    pageSize: int | None = None
    pageToken: str | None = None


class GetExtendedAgentCardRequest(Wire):
    tenant: str | None = None
