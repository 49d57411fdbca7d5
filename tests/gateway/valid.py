"""A request that each route takes, and each method of JSON-RPC: what bad ones are made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from canonical.value import Json, JsonObject
from tests.gateway.hostile import UNKNOWN
from tests.gateway.route import Route

__all__ = ("MESSAGE", "MESSAGE_0_3", "PUSH", "PUSH_0_3", "RPC", "V1", "VALID", "Rpc", "rpc")

V1: Final = {"A2A-Version": "1.0"}

ACP_MESSAGE: Final[JsonObject] = {
    "role": "user",
    "parts": [{"name": None, "content_type": "text/plain", "content": "hello", "metadata": {"kind": "trajectory"}}],
    "created_at": "2026-01-01T00:00:00Z",
}
MESSAGE: Final[JsonObject] = {
    "messageId": "m1",
    "role": "ROLE_USER",
    "parts": [{"text": "hello", "metadata": {"a": 1}}, {"data": {"a": [1]}, "mediaType": "application/json"}],
    "referenceTaskIds": [UNKNOWN],
    "extensions": ["urn:x"],
    "metadata": {"a": 1},
}
MESSAGE_0_3: Final[JsonObject] = {
    "kind": "message",
    "messageId": "m1",
    "role": "user",
    "parts": [{"kind": "text", "text": "hello"}, {"kind": "data", "data": {"a": 1}}],
    "metadata": {"a": 1},
}
PUSH: Final[JsonObject] = {
    "id": "p1",
    "url": "http://127.0.0.1:9/",
    "token": "t",
    "authentication": {"scheme": "Bearer", "credentials": "c"},
}
PUSH_0_3: Final[JsonObject] = {**PUSH, "authentication": {"schemes": ["Bearer"], "credentials": "c"}}

SEND: Final[JsonObject] = {
    "message": MESSAGE,
    "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 1, "returnImmediately": False},
    "metadata": {"a": 1},
}
SEND_0_3: Final[JsonObject] = {
    "message": MESSAGE_0_3,
    "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 1, "blocking": True},
    "metadata": {"a": 1},
}
SEND_0_3_REST: Final[JsonObject] = {
    "message": {
        "messageId": "m1",
        "role": "ROLE_USER",
        "content": [{"text": "hello"}, {"data": {"data": {"a": 1}}}],
    },
    "configuration": {"blocking": True},
}

VALID: Final[Mapping[str, JsonObject]] = {
    "POST /acp/runs": {
        "agent_name": "echo",
        "input": [ACP_MESSAGE],
        "mode": "sync",
        "session": {"id": "5d0b2c6a-8f0e-4f7e-9c39-0d3f3a1f7a10", "history": [], "state": None},
    },
    "POST /acp/runs/{run_id}": {"await_resume": {"type": "message", "message": ACP_MESSAGE}, "mode": "async"},
    "POST /a2a/{agent}/message:send": SEND,
    "POST /a2a/{agent}/message:stream": SEND,
    "POST /a2a/{agent}/tasks/{task_id}/pushNotificationConfigs": PUSH,
    "POST /a2a/{agent}/v1/message:send": SEND_0_3_REST,
    "POST /a2a/{agent}/v1/message:stream": SEND_0_3_REST,
    "POST /a2a/{agent}/v1/tasks/{task_id}/pushNotificationConfigs": {
        "configId": "p1",
        "config": {"pushNotificationConfig": PUSH_0_3},
    },
}
"""A request that each route with a body takes. JSON-RPC has a table of its own."""


def rpc(method: Json, params: Json, reply_id: Json = 7) -> JsonObject:
    return {"jsonrpc": "2.0", "id": reply_id, "method": method, "params": params}


@dataclass(frozen=True)
class Rpc:
    name: str
    valid: JsonObject
    """`$task` stands for a task that has ended, `$open` for one that waits."""
    bare: bool = False
    """Whether it can be called without params."""

    @property
    def old(self) -> bool:
        return "/" in self.name

    @property
    def route(self) -> Route:
        return Route("POST", "/a2a/{agent}")


RPC: Final = (
    Rpc("SendMessage", SEND),
    Rpc("SendStreamingMessage", {"message": MESSAGE}),
    Rpc("GetTask", {"id": "$open", "historyLength": 1}),
    Rpc("ListTasks", {"contextId": "routes", "status": "TASK_STATE_COMPLETED", "pageSize": 1}, bare=True),
    Rpc("CancelTask", {"id": "$open", "metadata": {"a": 1}}),
    Rpc("SubscribeToTask", {"id": "$task"}),
    Rpc("CreateTaskPushNotificationConfig", {"taskId": "$open", **PUSH}),
    Rpc("GetTaskPushNotificationConfig", {"taskId": "$open", "id": "p1"}),
    Rpc("ListTaskPushNotificationConfigs", {"taskId": "$open", "pageSize": 1, "pageToken": "0"}),
    Rpc("DeleteTaskPushNotificationConfig", {"taskId": "$open", "id": "p1"}),
    Rpc("GetExtendedAgentCard", {"tenant": "x"}, bare=True),
    Rpc("message/send", SEND_0_3),
    Rpc("message/stream", {"message": MESSAGE_0_3}),
    Rpc("tasks/get", {"id": "$open", "historyLength": 1}),
    Rpc("tasks/cancel", {"id": "$open"}),
    Rpc("tasks/resubscribe", {"id": "$task"}),
    Rpc("tasks/pushNotificationConfig/set", {"taskId": "$open", "pushNotificationConfig": PUSH_0_3}),
    Rpc("tasks/pushNotificationConfig/get", {"id": "$open", "pushNotificationConfigId": "p1"}),
    Rpc("tasks/pushNotificationConfig/list", {"id": "$open"}),
    Rpc("tasks/pushNotificationConfig/delete", {"id": "$open", "pushNotificationConfigId": "p1"}),
    Rpc("agent/getAuthenticatedExtendedCard", {"metadata": {}}, bare=True),
)
"""Every method of both generations (A2A 1.0, 9.4; A2A 0.3.0, 3.5.6 and 7)."""
