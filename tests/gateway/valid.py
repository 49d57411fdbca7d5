"""Valid request of each route and of each JSON-RPC method. Tests derive bad requests from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from babelgate.canonical.value import Json, JsonObject
from tests.gateway.hostile import UNKNOWN
from tests.gateway.knowledge import knowledge
from tests.gateway.route import Route

V1: Final = {"A2A-Version": "1.0"}
MCP: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

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
    "message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "hello"}, {"data": {"data": {"a": 1}}}]},
    "configuration": {"blocking": True},
}

AG_UI_RUN: Final[JsonObject] = {
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
    "parentRunId": None,
    "state": {"a": 1},
    "messages": [
        {"id": "m", "role": "user", "content": [{"type": "text", "text": "hello"}], "metadata": {"a": 1}},
    ],
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    "context": [{"description": "d", "value": "v"}],
    "forwardedProps": {"a": 1, "babelgate": {"onDisconnect": "cancel", "strategy": "enqueue", "metadata": {"a": 1}}},
    "resume": [],
}

STEP: Final[JsonObject] = {"input": "hello", "additional_input": {"a": [1]}}

UPLOAD: Final = "POST /ap/v1/agent/tasks/{task_id}/artifacts"
"""The one route that reads a form."""

LANGCHAIN_MESSAGE: Final[JsonObject] = {"id": "m1", "role": "user", "content": "hello"}
INPUT: Final[JsonObject] = {"messages": [LANGCHAIN_MESSAGE], "a": [1]}
RUN: Final[JsonObject] = {
    "assistant_id": "echo",
    "input": INPUT,
    "metadata": {"a": 1},
    "config": {"tags": ["a"], "recursion_limit": 5, "configurable": {"a": 1}},
    "interrupt_before": ["a"],
    "stream_mode": ["values", "messages-tuple"],
    "stream_subgraphs": False,
    "feedback_keys": ["a"],
    "on_disconnect": "continue",
    "on_completion": "delete",
    "durability": "async",
}
LATER: Final[JsonObject] = {**RUN, "webhook": "http://127.0.0.1:9/", "after_seconds": 0, "stream_resumable": True}
CRON: Final[JsonObject] = {
    "assistant_id": "echo",
    "schedule": "0 0 1 1 *",
    "timezone": "Europe/Berlin",
    "end_time": "2100-01-01T00:00:00Z",
    "enabled": True,
    "input": INPUT,
    "metadata": {"a": 1},
    "config": {"tags": ["a"], "recursion_limit": 5, "configurable": {"a": 1}},
    "webhook": "http://127.0.0.1:9/",
    "interrupt_before": ["a"],
    "stream_mode": ["values", "messages-tuple"],
    "durability": "async",
    "on_run_completed": "delete",
}
THREAD_RUN: Final[JsonObject] = {**RUN, "multitask_strategy": "enqueue", "if_not_exists": "reject"}
AGENT_RUN: Final[JsonObject] = {
    "agent_id": "echo",
    "input": {"a": 1},
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}], "id": "m1", "metadata": {"a": 1}}],
    "metadata": {"a": 1},
    "config": {"tags": ["a"], "recursion_limit": 5, "configurable": {"a": 1}},
    "stream_mode": ["values", "messages"],
    "on_disconnect": "continue",
}
START: Final[JsonObject] = {
    "assistant_id": "echo",
    "input": INPUT,
    "config": {"tags": ["a"], "recursion_limit": 5, "configurable": {"a": 1}},
    "metadata": {"a": 1},
    "multitask_strategy": "enqueue",
}
EVENTS: Final[JsonObject] = {
    "channels": ["values", "messages", "custom:x"],
    "namespaces": [["a"]],
    "depth": 1,
    "since": 5,
}
STATE: Final[JsonObject] = {"values": {"messages": [LANGCHAIN_MESSAGE], "a": {"b": 1}}, "as_node": "echo"}

BLOCKS: Final[Mapping[str, JsonObject]] = {
    "text": {
        "type": "text",
        "text": "hello",
        "annotations": [{"type": "citation", "url": "http://x", "start_index": 0}],
    },
    "reasoning": {"type": "reasoning", "reasoning": "because", "id": "r1"},
    "thinking": {"type": "thinking", "thinking": "because", "signature": "s"},
    "refusal": {"type": "refusal", "refusal": "no"},
    "json": {"type": "json", "json": {"a": 1}},
    "non_standard": {"type": "non_standard", "value": {"a": 1}},
    "image": {"type": "image", "base64": "aGk=", "mime_type": "image/png", "extras": {"filename": "a.png"}},
    "file by URL": {"type": "file", "url": "http://127.0.0.1:9/a", "mime_type": "text/plain"},
    "file by id": {"type": "file", "file_id": "0" * 64},
    "an older file": {"type": "file", "source_type": "base64", "data": "aGk=", "mime_type": "text/plain"},
    "image_url": {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
    "OpenAI's file": {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    "Anthropic's document": {
        "type": "document",
        "source": {"type": "base64", "media_type": "text/plain", "data": "aGk="},
    },
    "tool_call": {"type": "tool_call", "id": "c1", "name": "f", "args": {"a": 1}},
    "server_tool_call": {"type": "server_tool_call", "id": "c1", "name": "f", "args": {"a": 1}},
    "server_tool_result": {"type": "server_tool_result", "tool_call_id": "c1", "status": "success", "output": "1"},
    "unknown": {"type": "nope", "a": {"b": 1}},
}
"""Parts of a message that LangGraph's messages may have (docs/protocols/langgraph.md, Messages)."""

LANGCHAIN: Final[Mapping[str, Json]] = {
    "POST /threads": {
        "thread_id": "7e3c7d6b-8f0e-4f7e-9c39-0d3f3a1f7a10",
        "metadata": {"a": 1},
        "if_exists": "do_nothing",
        "ttl": {"ttl": 5, "strategy": "delete"},
        "supersteps": [{"updates": [{"values": {"a": 1}, "as_node": "echo"}]}],
    },
    "POST /threads/search": {
        "metadata": {"a": 1},
        "values": {"a": 1},
        "status": "busy",
        "ids": [UNKNOWN],
        "limit": 5,
        "offset": 0,
        "sort_by": "updated_at",
        "sort_order": "desc",
        "select": ["thread_id", "values"],
        "extract": {"last": "values.messages[-1].content"},
    },
    "POST /threads/count": {"metadata": {"a": 1}, "values": {"a": 1}, "status": "busy"},
    "POST /threads/prune": {"thread_ids": [UNKNOWN], "strategy": "delete"},
    "PATCH /threads/{thread_id}": {
        "metadata": {"a": 1},
        "ttl": 5,
        "values": {"a": {"b": 1}},
        "messages": [{"role": "user", "content": "hello"}],
    },
    "POST /threads/{thread_id}/history": {
        "limit": 5,
        "metadata": {"a": 1},
        "checkpoint": {"checkpoint_ns": ""},
        "select": ["values"],
    },
    "POST /threads/{thread_id}/state": STATE,
    "POST /threads/{thread_id}/state/checkpoint": {
        "checkpoint": {"checkpoint_id": UNKNOWN, "checkpoint_ns": "", "checkpoint_map": {"": "a"}},
        "select": ["values"],
    },
    "POST /threads/{thread_id}/runs": THREAD_RUN,
    "POST /threads/{thread_id}/runs/wait": THREAD_RUN,
    "POST /threads/{thread_id}/runs/stream": THREAD_RUN,
    "POST /threads/{thread_id}/stream": EVENTS,
    "POST /threads/{thread_id}/stream/events": EVENTS,
    "POST /threads/{thread_id}/commands": {"id": 1, "method": "run.start", "params": START},
    "POST /runs": LATER,
    "POST /runs/wait": RUN,
    "POST /runs/stream": RUN,
    "POST /runs/batch": [{"assistant_id": "echo", "input": INPUT}],
    "POST /runs/cancel": {"thread_id": UNKNOWN, "run_ids": [UNKNOWN]},
    "POST /runs/search": {
        "metadata": {"a": 1},
        "status": "success",
        "thread_id": UNKNOWN,
        "agent_id": "echo",
        "limit": 5,
        "offset": 0,
    },
    "POST /agents/search": {"name": "echo", "metadata": {"a": 1}, "limit": 5, "offset": 0},
    "PUT /store/items": {"namespace": ["a", "b"], "key": "k", "value": {"a": [1]}, "index": ["a"], "ttl": 5},
    "DELETE /store/items": {"namespace": ["a", "b"], "key": "k"},
    "POST /store/items/search": {
        "namespace_prefix": ["a"],
        "filter": {"a": {"$gt": 1, "$ne": "x"}, "b": [1]},
        "query": "hello",
        "limit": 5,
        "offset": 0,
        "refresh_ttl": False,
    },
    "POST /store/{labels}/{key}": {"a": [1]},
    "POST /store/namespaces": {"prefix": ["a", "*"], "suffix": ["b"], "max_depth": 2, "limit": 5, "offset": 0},
}
"""Requests of routes that exist at the root and below `/agent-protocol`."""

CHAT: Final[JsonObject] = {
    "model": "echo",
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hi", "name": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
            ],
        },
    ],
    "stream": False,
    "stream_options": {"include_usage": True},
    "n": 1,
    "store": False,
    "metadata": {"a": "1"},
    "response_format": {"type": "text"},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "temperature": 1,
    "max_completion_tokens": 100,
}

RESPONSE: Final[JsonObject] = {
    "model": "echo",
    "input": [
        {"role": "developer", "content": "Be brief."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
                {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
            ],
        },
    ],
    "instructions": "Be kind.",
    "store": False,
    "background": False,
    "stream": False,
    "metadata": {"a": "b"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "tool_choice": "auto",
    "temperature": 0.5,
    "reasoning": {"effort": "low"},
    "max_output_tokens": 100,
}

RUNTIME_INPUT: Final[JsonObject] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "parts": [{"kind": "tool_call", "call_id": "c1", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "parts": [{"kind": "tool_result", "call_id": "c1", "output": 1, "error": False}]},
        {
            "role": "user",
            "name": "x",
            "metadata": {"a": 1},
            "parts": [
                {"kind": "text", "text": "hello", "media_type": "text/plain", "metadata": {"a": 1}},
                {"kind": "data", "data": {"a": [1]}},
                {"kind": "file", "name": "a.txt", "media_type": "text/plain", "inline": "aGk="},
                {"kind": "file", "url": "http://127.0.0.1:9/a"},
                {"kind": "reasoning", "text": "because"},
                {"kind": "refusal", "text": "no"},
            ],
        },
    ],
    "a": [1],
}
RUNTIME_RUN: Final[JsonObject] = {
    "assistant_id": "echo",
    "input": RUNTIME_INPUT,
    "metadata": {"a": 1},
    "config": {"a": 1},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "multitask_strategy": "enqueue",
    "on_completion": "keep",
    "background": False,
}

CALL: Final[JsonObject] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {
            "message": "hello",
            "data": {"a": [1]},
            "files": [{"name": "a.txt", "mime_type": "text/plain", "data": "aGk="}],
            "thread_id": "routes",
        },
        "_meta": {"progressToken": 1},
    },
}

_OFFERED: Final = {route: body for each in knowledge().values() for route, body in each.valid.items()}

VALID: Final[Mapping[str, Json]] = {
    "POST /grants": {
        "thread_id": UNKNOWN,
        "grantee": "owner:bob",
        "level": "write",
        "expires": "2100-01-01T00:00:00Z",
    },
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
    "POST /ap/v1/agent/tasks": STEP,
    "POST /ap/v1/agent/tasks/{task_id}/steps": STEP,
    **LANGCHAIN,
    **{name.replace(" /", " /agent-protocol/"): body for name, body in LANGCHAIN.items()},
    **dict.fromkeys(("POST /agent-protocol/runs", "POST /agent-protocol/runs/wait"), AGENT_RUN),
    **dict.fromkeys(("POST /agent-protocol/runs/stream", "POST /agent-protocol/threads/{thread_id}/runs"), AGENT_RUN),
    **{f"POST /agent-protocol/threads/{{thread_id}}/runs/{how}": AGENT_RUN for how in ("wait", "stream")},
    "POST /agent-protocol/threads/{thread_id}/commands": {
        "id": 1,
        "method": "run.start",
        "params": {"assistantId": "echo", "input": INPUT, "multitaskStrategy": "enqueue"},
    },
    "POST /runs/crons": CRON,
    "POST /threads/{thread_id}/runs/crons": CRON,
    "POST /runs/crons/search": {
        "assistant_id": "echo",
        "thread_id": UNKNOWN,
        "enabled": True,
        "metadata": {"a": 1},
        "limit": 5,
        "offset": 0,
        "sort_by": "next_run_date",
        "sort_order": "asc",
        "select": ["cron_id"],
    },
    "POST /runs/crons/count": {"assistant_id": "echo", "thread_id": UNKNOWN, "metadata": {"a": 1}},
    "PATCH /runs/crons/{cron_id}": {name: value for name, value in CRON.items() if name != "assistant_id"},
    "POST /assistants": {
        "graph_id": "echo",
        "assistant_id": "7e3c7d6b-8f0e-4f7e-9c39-0d3f3a1f7a11",
        "config": {"tags": ["a"], "recursion_limit": 5, "configurable": {"a": 1}},
        "metadata": {"a": 1},
        "name": "mine",
        "description": "an assistant",
        "if_exists": "do_nothing",
    },
    "PATCH /assistants/{assistant_id}": {
        "graph_id": "echo",
        "context": {"a": 1},
        "metadata": {"a": 1},
        "name": "mine",
        "description": "an assistant",
    },
    "POST /assistants/{assistant_id}/latest": {"version": 1},
    "POST /assistants/search": {
        "metadata": {"created_by": "system"},
        "graph_id": "echo",
        "name": "echo",
        "limit": 5,
        "offset": 0,
        "sort_by": "name",
        "sort_order": "asc",
        "select": ["name"],
    },
    "POST /assistants/count": {"metadata": {"created_by": "system"}, "graph_id": "echo", "name": "echo"},
    "POST /assistants/{assistant_id}/versions": {"metadata": {"created_by": "system"}, "limit": 5, "offset": 0},
    "POST /v1/threads": {
        "thread_id": "0b8e7a52-8f0e-4f7e-9c39-0d3f3a1f7a10",
        "metadata": {"a": 1},
        "if_exists": "return",
    },
    "PATCH /v1/threads/{thread_id}": {"metadata": {"a": 1}, "values": {"a": {"b": 1}}},
    **{f"POST /v1{path}": RUNTIME_RUN for path in ("/runs", "/threads/{thread_id}/runs")},
    **{f"POST /v1{path}/stream": RUNTIME_RUN for path in ("/runs", "/threads/{thread_id}/runs")},
    "POST /v1/threads/{thread_id}/resume": {
        "input": {"a": 1},
        "decline": False,
        "config": {"a": 1},
        "tools": [{"name": "f"}],
        "background": False,
        "stream": False,
    },
    "POST /v1/chat/completions": CHAT,
    "POST /v1/chat/completions/{completion_id}": {"metadata": {"a": "c"}},
    "POST /v1/responses": RESPONSE,
    "POST /v1/responses/compact": {"model": "echo", "input": [{"role": "user", "content": "hi"}]},
    "POST /v1/conversations": {"metadata": {"a": "b"}, "items": [{"role": "user", "content": "hi"}]},
    "POST /v1/conversations/{conversation_id}": {"metadata": {"a": "c"}},
    "POST /v1/conversations/{conversation_id}/items": {"items": [{"role": "user", "content": "hi"}]},
    "POST /mcp": CALL,
    **{f"POST {path}": AG_UI_RUN for path in ("/ag-ui", "/ag-ui/{agent}")},
    "POST /ag-ui/{agent}/connect": {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "after": "1-0"},
    "POST /ag-ui/{agent}/cancel": {"threadId": "t", "runId": "r"},
    **_OFFERED,
}
"""Valid body of each route that has one. JSON-RPC has a separate table."""

_NEEDED: Final = (
    "/prune",
    "/runs/batch",
    "/runs/cancel",
    "/state/checkpoint",
    "/assistants",
    "/latest",
    "/crons",
    "/crons/{cron_id}",
    "/store/items",
    "/{thread_id}/stream",
    "/stream/events",
    "/commands",
)

LENIENT: Final = frozenset(
    name
    for name in VALID.keys() - _OFFERED
    if name in ("POST /v1/threads", "POST /v1/conversations")
    or (
        not name.startswith(("POST /acp/", "POST /a2a/", "POST /v1/", "PATCH /v1/", "POST /mcp", "POST /ag-ui"))
        and not name.endswith(_NEEDED)
    )
)
"""Routes whose body has no required member."""


def rpc(method: Json, params: Json, reply_id: Json = 7) -> JsonObject:
    return {"jsonrpc": "2.0", "id": reply_id, "method": method, "params": params}


@dataclass(frozen=True)
class Rpc:
    name: str
    valid: JsonObject
    """Valid params. `$task` is replaced by the id of an ended task, `$open` by that of a waiting one."""
    bare: bool = False
    """True if it can be called without params."""

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


def command(method: Json, params: Json, command_id: Json = 7) -> JsonObject:
    return {"id": command_id, "method": method, "params": params}


def filled(value: Json, slots: Mapping[str, str]) -> Any:
    """Return the value with each string `$name` replaced by the slot of that name."""
    if isinstance(value, dict):
        return {name: filled(member, slots) for name, member in value.items()}
    if isinstance(value, list):
        return [filled(each, slots) for each in value]
    return slots[value[1:]] if isinstance(value, str) and value.startswith("$") else value


@dataclass(frozen=True)
class Command:
    """Command of the Agent Protocol's event streaming."""

    method: str
    valid: JsonObject
    """Valid params. `$question`, `$checkpoint_id` and `$run_id` are replaced by ids of an interrupted thread."""
    bare: bool = False
    """True if it can be called without params."""
    refused: str | None = None
    """Error code with which the gateway always refuses the command."""

    @property
    def once(self) -> bool:
        """True if a thread accepts the command only once."""
        return self.method == "input.respond"

    def __str__(self) -> str:
        return f"{self.method}, several" if "responses" in self.valid else self.method


_RESPONSE: Final[JsonObject] = {"namespace": [], "interrupt_id": "$question", "response": {"a": [1]}}
_FOR_THE_RUN: Final[JsonObject] = {
    "config": {"tags": ["a"], "configurable": {"a": 1}},
    "metadata": {"a": 1},
    "update": {},
    "goto": [],
}

COMMANDS: Final = (
    Command("run.start", {**START, "input": "hello"}),
    Command("input.respond", {**_RESPONSE, **_FOR_THE_RUN}),
    Command("input.respond", {"responses": [_RESPONSE]}),
    Command(
        "input.inject",
        {"namespace": [], "message": {"role": "user", "content": "hello", "name": "x"}},
        refused="not_supported",
    ),
    Command("agent.getTree", {"run_id": "$run_id"}, bare=True),
    Command("state.get", {"namespace": [], "keys": ["messages", "a"]}, bare=True),
    Command("state.listCheckpoints", {"namespace": [], "limit": 5, "before": "$checkpoint_id"}, bare=True),
    Command("state.fork", {"checkpoint_id": "$checkpoint_id", "input": "hello", "config": {"tags": ["a"]}}),
)
SUBSCRIPTIONS: Final = (
    Command("subscription.subscribe", {**EVENTS, "subscription_id": "s"}),
    Command("subscription.unsubscribe", {"subscription_id": "s"}),
    Command(
        "subscription.reconnect",
        {**EVENTS, "run_id": UNKNOWN, "last_event_id": "1-1", "subscriptions": ["s"], "subscription_id": "s"},
    ),
)
"""Commands that exist only on a WebSocket. Over HTTP, the request for a stream is itself the subscription."""
