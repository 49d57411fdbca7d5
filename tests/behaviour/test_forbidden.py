"""A caller who may not do something: each protocol refuses it in its own form, and nothing happens."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS
from babelgate.adapters.mcp.agents import RESUME
from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.agent import DEFAULT_OWNER
from babelgate.canonical.principal import Operation
from babelgate.canonical.value import JsonObject
from tests.adapters.agent_client.editor import RpcError, editing
from tests.gateway.owning import STEPS, acp_run, make, message
from tests.gateway.route import words_of
from tests.gateway.shape import check_error
from tests.gateway.valid import MCP, V1, rpc
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

_A2A_0_3: Final = re.compile('/v1/|"method": "(message|tasks)/')
"""Path or body of a request in A2A 0.3."""
REFUSAL: Final = "You may not do this."
INPUT: Final = {"messages": [{"role": "user", "content": "hi"}]}
OLD: Final[JsonObject] = {
    "messageId": "1",
    "role": "user",
    "kind": "message",
    "parts": [{"kind": "text", "text": "hi"}],
}
PUSH: Final = {"url": "http://127.0.0.1:9/"}


@dataclass
class Switch:
    """Policy that denies one operation."""

    denied: Operation | None = None
    protocols: set[str] = field(default_factory=set[str])
    """Protocols of the denied calls."""

    def has_rules_by_agent(self, principal: Principal, operation: Operation, protocol: str) -> bool:
        return False

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        if operation == self.denied:
            self.protocols.add(protocol)
            raise FaultError(FaultCode.FORBIDDEN, REFUSAL)


@dataclass(frozen=True)
class Denied:
    """Gateway with a policy, and with things that requests can name."""

    gateway: Running
    policy: Switch
    ids: Mapping[str, str]
    """Ids by their names in `tests.gateway.owning.OwnerIds`, and the `open_question` of the task `task_id`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def denied(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Denied]:
    policy = Switch()
    async with running(tmp_path_factory.mktemp("denied"), limits={"inline": 16}, policy=policy) as gateway:
        things = await make(gateway.http)
        (question,) = await gateway.hub.reads.open_interrupts(DEFAULT_OWNER, things.task_id)
        ids = {each.name: getattr(things, each.name) for each in fields(things) if each.name != "offered"}
        ids["anthropic_id"] = things.offered["anthropic"]["message_id"]
        yield Denied(gateway, policy, {**ids, "open_question": question.interrupt_id})


def tool(name: str, **arguments: object) -> Mapping[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


AG_UI: Final = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}
ANSWER: Final = {"messages": [], "resume": [{"interruptId": "{question}", "status": "resolved", "payload": "x"}]}
CASES: Final[list[Any]] = [
    # Protocol, denied operation, method and path, body, status.
    ("acp", "run", "POST /acp/runs", acp_run("echo", "hi"), 403),
    ("acp", "answer", "POST /acp/runs/{task_id}", {"run_id": "{task_id}", "await_resume": {}, "mode": "sync"}, 403),
    ("acp", "read", "GET /acp/runs/{ended}", None, 403),
    ("acp", "read", "GET /acp/sessions/{session_id}", None, 403),
    ("acp", "cancel", "POST /acp/runs/{task_id}/cancel", None, 403),
    ("a2a", "run", "POST /a2a/echo", rpc("SendMessage", {"message": message()}), 200),
    ("a2a", "run", "POST /a2a/echo", rpc("message/send", {"message": OLD}), 200),
    ("a2a", "run", "POST /a2a/echo/message:send", {"message": message()}, 403),
    ("a2a", "answer", "POST /a2a/ask/message:send", {"message": message(taskId="{task_id}")}, 403),
    ("a2a", "read", "POST /a2a/ask", rpc("GetTask", {"id": "{task_id}"}), 200),
    ("a2a", "read", "POST /a2a/ask", rpc("tasks/get", {"id": "{task_id}"}), 200),
    ("a2a", "read", "GET /a2a/ask/tasks/{task_id}", None, 403),
    ("a2a", "read", "GET /a2a/ask/v1/tasks/{task_id}", None, 403),
    ("a2a", "cancel", "POST /a2a/ask/tasks/{task_id}:cancel", {}, 403),
    ("a2a", "webhook", "POST /a2a/ask/tasks/{task_id}/pushNotificationConfigs", PUSH, 403),
    ("a2a", "webhook", "GET /a2a/ask/tasks/{task_id}/pushNotificationConfigs", None, 403),
    ("a2a", "webhook", "DELETE /a2a/ask/tasks/{task_id}/pushNotificationConfigs/p1", None, 403),
    ("aief", "write", f"POST {STEPS}", {"input": "hi"}, 403),
    ("aief", "run", f"POST {STEPS}/{{steps}}/steps", {"input": "hi"}, 403),
    ("aief", "read", f"GET {STEPS}/{{steps}}", None, 403),
    ("langchain", "write", "POST /threads", {}, 403),
    ("langchain", "run", "POST /runs/wait", {"assistant_id": "echo", "input": INPUT}, 403),
    ("langchain", "run", "POST /runs/stream", {"assistant_id": "echo", "input": INPUT}, 403),
    ("langchain", "answer", "POST /threads/{thread_id}/runs", {"assistant_id": "ask", "command": {"resume": "x"}}, 403),
    ("langchain", "read", "GET /threads/{thread_id}/state", None, 403),
    ("langchain", "cancel", "POST /threads/{later_thread}/runs/{later}/cancel", None, 403),
    ("langchain", "delete", "DELETE /threads/{thread_id}", None, 403),
    ("langchain", "write", "PUT /store/items", {"namespace": ["a"], "key": "k", "value": {}}, 403),
    ("langchain", "read", "GET /store/items?key=k&namespace={label}.notes", None, 403),
    ("langchain", "delete", "DELETE /assistants/{assistant_id}", None, 403),
    ("langchain", "delete", "DELETE /runs/crons/{cron_id}", None, 403),
    ("langchain", "run", "POST /agent-protocol/runs/wait", {"agent_id": "echo", "input": {}}, 403),
    ("langchain", "read", "GET /agent-protocol/threads/{thread_id}", None, 403),
    ("openai", "run", "POST /v1/chat/completions", {"model": "echo", "messages": INPUT["messages"]}, 403),
    ("openai", "run", "POST /v1/responses", {"model": "echo", "input": "hi"}, 403),
    ("openai", "read", "GET /v1/responses/{response_id}", None, 403),
    ("openai", "read", "GET /v1/chat/completions/{completion_id}", None, 403),
    ("openai", "write", "POST /v1/conversations", {}, 403),
    ("openai", "delete", "DELETE /v1/conversations/{conversation_id}", None, 403),
    ("openai", "delete", "DELETE /v1/responses/{response_id}", None, 403),
    ("runtime", "run", "POST /v1/runs", {"assistant_id": "echo", "input": {"message": "hi"}}, 403),
    ("runtime", "read", "GET /v1/runs/{asking_run}", None, 403),
    ("runtime", "cancel", "POST /v1/runs/{asking_run}/cancel", None, 403),
    ("agent-client", "read", "GET /agent-client/ask/sessions/{thread_id}", None, 403),
    ("vercel-ui", "run", "POST /vercel-ui/echo", {"prompt": "hi"}, 403),
    ("vercel-ui", "read", "GET /vercel-ui/ask/{thread_id}", None, 403),
    ("vercel-ui", "cancel", "POST /vercel-ui/ask/{thread_id}/stop", None, 403),
    ("mcp", "run", "POST /mcp", tool("echo", message="hi"), 200),
    ("ag-ui", "run", "POST /ag-ui/echo", AG_UI, 403),
    ("ag-ui", "answer", "POST /ag-ui/ask", {**AG_UI, **ANSWER, "threadId": "{thread_id}"}, 403),
    ("ag-ui", "read", "POST /ag-ui/ask/connect", {"threadId": "{thread_id}"}, 403),
    ("ag-ui", "cancel", "POST /ag-ui/ask/cancel", {"threadId": "{thread_id}"}, 403),
    ("anthropic", "run", "POST /v1/messages", {"model": "echo", "messages": INPUT["messages"]}, 403),
    ("anthropic", "read", "GET /v1/messages/{anthropic_id}", None, 403),
    ("anthropic", "cancel", "POST /v1/messages/{anthropic_id}/cancel", None, 403),
    ("mcp", "answer", "POST /mcp", tool(RESUME, run_id="{mcp_run}", answers={"{open_question}": "x"}), 200),
]
HIDDEN: Final[list[Any]] = [
    ("acp", "GET /acp/agents/echo", None, 404),
    ("acp", "POST /acp/runs", acp_run("echo", "hi"), 404),
    ("a2a", "GET /a2a/echo/.well-known/agent-card.json", None, 404),
    ("a2a", "POST /a2a/echo/message:send", {"message": message()}, 404),
    ("a2a", "POST /a2a/echo", rpc("SendMessage", {"message": message()}), 404),
    ("openai", "GET /v1/models/echo", None, 404),
    ("openai", "POST /v1/responses", {"model": "echo", "input": "hi"}, 404),
    ("langchain", "POST /runs/wait", {"agent_id": "echo", "input": {}}, 404),
    ("runtime", "POST /v1/runs", {"assistant_id": "echo", "input": {"message": "hi"}}, 404),
    ("vercel-ui", "POST /vercel-ui/echo", {"prompt": "hi"}, 404),
    ("ag-ui", "POST /ag-ui/echo", AG_UI, 404),
    ("anthropic", "POST /v1/messages", {"model": "echo", "messages": INPUT["messages"]}, 404),
]


async def send(denied: Denied, operation: Operation, route: str, body: object) -> httpx.Response:
    """Send a request while an operation is denied. Ids in braces are those of things that exist."""
    method, _, path = route.partition(" ")
    content = json.dumps(body)
    for name, value in denied.ids.items():
        path, content = path.replace(f"{{{name}}}", value), content.replace(f"{{{name}}}", value)
    headers = {"Content-Type": "application/json"} | (MCP if path == "/mcp" else {})
    if path.startswith("/a2a/") and not _A2A_0_3.search(path + content):
        headers |= V1
    denied.policy.denied = operation
    try:
        return await denied.gateway.http.request(
            method, path, content=None if body is None else content, headers=headers
        )
    finally:
        denied.policy.denied = None


@pytest.mark.parametrize(
    ("protocol", "operation", "route", "body", "status"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_denied_operation_is_refused_in_the_protocols_form(
    denied: Denied, protocol: str, operation: Operation, route: str, body: object, status: int
) -> None:
    denied.policy.protocols.clear()
    response = await send(denied, operation, route, body)
    assert response.status_code == status, response.text
    assert REFUSAL in response.text
    method, _, path = route.partition(" ")
    check_error(words_of(method, path.partition("?")[0]), response)
    assert denied.policy.protocols == {protocol}


@pytest.mark.parametrize(
    ("protocol", "route", "body", "status"), HIDDEN, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_a_hidden_agent_is_not_found(
    denied: Denied, protocol: str, route: str, body: object, status: int
) -> None:
    response = await send(denied, "discover", route, body)
    assert response.status_code == status, response.text
    assert REFUSAL not in response.text
    unknown = await send(
        denied, "admin", route.replace("echo", "nobody"), json.loads(json.dumps(body).replace('"echo"', '"nobody"'))
    )
    assert response.text.replace("echo", "nobody") == unknown.text


@pytest.mark.parametrize(
    ("path", "members"),
    [("/", "agents"), ("/acp/agents", "agents"), ("/v1/models", "data")],
)
async def test_a_list_has_no_hidden_agents(denied: Denied, path: str, members: str) -> None:
    assert (await send(denied, "admin", f"GET {path}", None)).json()[members]
    assert (await send(denied, "discover", f"GET {path}", None)).json()[members] == []


async def test_a_denied_run_is_tested_in_every_protocol() -> None:
    protocols = {protocol for protocol, operation, *_ in CASES if operation == "run"}
    assert protocols | {"agent-client"} == {each.name for each in ADAPTERS}


@pytest.mark.parametrize(("operation", "method"), [("run", "session/prompt"), ("read", "session/load")])
async def test_a_denied_operation_is_an_error_over_a_websocket(
    denied: Denied, operation: Operation, method: str
) -> None:
    denied.policy.protocols.clear()
    async with editing(denied.gateway.url, "echo") as editor:
        await editor.initialize()
        session_id = await editor.new_session()
        denied.policy.denied = operation
        try:
            with pytest.raises(RpcError, match=REFUSAL) as caught:
                await editor.call(method, sessionId=session_id, cwd="/", prompt=[{"type": "text", "text": "hi"}])
        finally:
            denied.policy.denied = None
    assert caught.value.data["code"] == "forbidden"
    assert denied.policy.protocols == {"agent-client"}
