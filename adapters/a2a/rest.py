"""Descriptions of the REST operations of A2A. The paths of 1.0 begin right after the URL of an agent, those of 0.3 with
`/v1`."""

from typing import Any, Final

from babelgate.adapters.a2a.wire import SPEC, bodies, v0_3, v1_0
from babelgate.adapters.kit.server.rest import JsonType, RestDescription, RestOperation
from babelgate.canonical.value import JsonObject

_VERSION: Final[dict[str, JsonType]] = {"A2A-Version": "string"}
_SEND: Final = v1_0.SendMessageRequest | v0_3.MessageSendParams
_CONFIG: Final = v1_0.TaskPushNotificationConfig | v0_3.TaskPushNotificationConfig
_CARD: Final = RestOperation(returns=bodies.AgentCard, headers={**_VERSION, "If-None-Match": "string"})

REST: Final = RestDescription(
    official=SPEC,
    error=JsonObject,
    operations={
        "agent_card": _CARD,
        "agent_card_0_2": _CARD,
        "root_card": RestOperation(
            returns=bodies.AgentCard, query={"assistant_id": "string"}, headers={**_VERSION, "If-None-Match": "string"}
        ),
        "root_card_0_2": RestOperation(returns=bodies.AgentCard, query={"assistant_id": "string"}),
        "file": RestOperation(returns=bytes, media_type="application/octet-stream"),
        "extended_card": RestOperation(returns=bodies.AgentCard, headers=_VERSION),
        "call": RestOperation(
            body=bodies.JsonRpcRequest, returns=bodies.JsonRpcResponse, streams=bodies.JsonRpcResponse, headers=_VERSION
        ),
        "send": RestOperation(body=_SEND, returns=bodies.SendMessageResponse, headers=_VERSION),
        "stream": RestOperation(body=_SEND, streams=bodies.StreamResponse, is_stream_only=True, headers=_VERSION),
        "list_tasks": RestOperation(
            returns=bodies.ListTasksResponse,
            query={
                "contextId": "string",
                "status": "string",
                "pageSize": "integer",
                "pageToken": "string",
                "historyLength": "integer",
                "statusTimestampAfter": "string",
                "includeArtifacts": "boolean",
            },
            headers=_VERSION,
        ),
        "task": RestOperation(
            within={
                "get {task_id}": RestOperation(
                    returns=bodies.Task, query={"historyLength": "integer"}, headers=_VERSION
                ),
                "post {task_id}:cancel": RestOperation(returns=bodies.Task, headers=_VERSION),
                "get {task_id}:subscribe": RestOperation(
                    streams=bodies.StreamResponse, is_stream_only=True, headers=_VERSION
                ),
                "post {task_id}:subscribe": RestOperation(
                    streams=bodies.StreamResponse, is_stream_only=True, headers=_VERSION
                ),
            }
        ),
        "create_config": RestOperation(body=_CONFIG, returns=JsonObject, headers=_VERSION),
        "list_configs": RestOperation(returns=JsonObject, headers=_VERSION),
        "get_config": RestOperation(returns=JsonObject, headers=_VERSION),
        "delete_config": RestOperation(returns=dict[str, Any], headers=_VERSION),
    },
)
