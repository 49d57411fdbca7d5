"""Types of the REST responses to callers in both versions, for OpenAPI documents. The responses themselves are written
key by key (`codec.dialect`)."""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from babelgate.canonical.value import JsonObject


class Status(TypedDict):
    state: str
    timestamp: NotRequired[str]
    message: NotRequired[JsonObject]


class Task(TypedDict):
    id: str
    contextId: str
    status: Status
    artifacts: NotRequired[list[JsonObject]]
    history: NotRequired[list[JsonObject]]
    metadata: NotRequired[JsonObject]


class SendMessageResponse(TypedDict):
    """Response to a send: either a task or a message. Exactly one member is present."""

    task: NotRequired[Task]
    message: NotRequired[JsonObject]


class StreamResponse(TypedDict):
    """One event of a stream. Exactly one member is present."""

    task: NotRequired[Task]
    message: NotRequired[JsonObject]
    statusUpdate: NotRequired[JsonObject]
    artifactUpdate: NotRequired[JsonObject]


class ListTasksResponse(TypedDict):
    tasks: list[Task]
    nextPageToken: str
    pageSize: NotRequired[int]
    totalSize: NotRequired[int]


class JsonRpcRequest(TypedDict):
    jsonrpc: str
    id: NotRequired[str | int | None]
    method: str
    params: NotRequired[JsonObject]


class JsonRpcResponse(TypedDict):
    """Response of JSON-RPC. Exactly one of `result` and `error` is present."""

    jsonrpc: str
    id: str | int | None
    result: NotRequired[Any]
    error: NotRequired[JsonObject]


class AgentCard(TypedDict):
    name: str
    description: str
    version: str
    capabilities: JsonObject
    skills: list[JsonObject]
    defaultInputModes: list[str]
    defaultOutputModes: list[str]
