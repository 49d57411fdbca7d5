"""A caller at a limit: each protocol refuses the run in its own form, with the time of the next one."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS
from tests.adapters.agent_client.editor import RpcError, editing
from tests.behaviour.test_forbidden import INPUT, OLD, STEPS, V1, acp_run, message, rpc, tool
from tests.gateway.route import words_of
from tests.gateway.shape import check_error
from tests.gateway.valid import MCP
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSAL: Final = "The agent echo may start 1 run a day; the next in"
CASES: Final[list[Any]] = [
    # Protocol, path, headers, body, status.
    ("acp", "/acp/runs", {}, acp_run("echo", "hi"), 429),
    ("a2a", "/a2a/echo", V1, rpc("SendMessage", {"message": message()}), 200),
    ("a2a", "/a2a/echo", V1, rpc("SendStreamingMessage", {"message": message()}), 200),
    ("a2a", "/a2a/echo", {}, rpc("message/send", {"message": OLD}), 200),
    ("a2a", "/a2a/echo/message:send", V1, {"message": message()}, 429),
    ("aief", f"{STEPS}/{{steps}}/steps", {}, {"input": "hi"}, 429),
    ("langchain", "/runs/wait", {}, {"assistant_id": "echo", "input": INPUT}, 429),
    ("langchain", "/runs/stream", {}, {"assistant_id": "echo", "input": INPUT}, 429),
    ("langchain", "/agent-protocol/runs/wait", {}, {"agent_id": "echo", "input": {}}, 429),
    ("openai", "/v1/chat/completions", {}, {"model": "echo", "messages": INPUT["messages"]}, 429),
    ("openai", "/v1/responses", {}, {"model": "echo", "input": "hi", "stream": True}, 429),
    ("runtime", "/v1/runs", {}, {"assistant_id": "echo", "input": {"message": "hi"}}, 429),
    ("mcp", "/mcp", MCP, tool("echo", message="hi"), 200),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    rates = [{"per": "agent", "agent": "echo", "runs": 1, "every": "1d"}]
    async with running(tmp_path_factory.mktemp("limited"), limits={"rate": rates}) as gateway:
        response = await gateway.http.post("/v1/responses", json={"model": "echo", "input": "hi"})
        assert response.status_code == 200
        assert response.headers["RateLimit-Policy"] == '"agent";q=1;w=86400'
        assert response.headers["RateLimit"] == '"agent";r=0;t=86400'
        yield gateway


async def test_every_protocol_has_a_case() -> None:
    assert {protocol for protocol, *_ in CASES} | {"agent-client"} == {each.name for each in ADAPTERS}


async def test_a_limited_run_is_an_error_over_a_websocket(gateway: Running) -> None:
    async with editing(gateway.url, "echo") as editor:
        await editor.initialize()
        with pytest.raises(RpcError, match=REFUSAL) as caught:
            await editor.prompt(await editor.new_session(), "hi")
    assert caught.value.data["code"] == "limited" and 0 < caught.value.data["retry_after"] <= 86400


@pytest.mark.parametrize(("protocol", "path", "headers", "body", "status"), CASES)
async def test_a_limited_run_is_refused_in_the_protocols_form(
    gateway: Running, protocol: str, path: str, headers: dict[str, str], body: object, status: int
) -> None:
    if "{steps}" in path:
        path = path.replace("{steps}", (await gateway.http.post(STEPS, json={"input": "hi"})).json()["task_id"])
    response = await gateway.http.post(path, json=body, headers=headers)
    assert response.status_code == status, response.text
    assert REFUSAL in response.text
    check_error(words_of("POST", path), response)
    if protocol != "mcp":  # the response of MCP is a stream that begins before the run
        assert response.headers["RateLimit"].startswith('"agent";r=0;t=')
        assert 0 < int(response.headers["Retry-After"]) <= 86400
    _check_body(protocol, response)


def _check_body(protocol: str, response: httpx.Response) -> None:
    if protocol == "openai":
        assert response.json()["error"]["type"] == "rate_limit_error"
    if protocol == "mcp":
        facts = json.loads(response.text.partition("data: ")[2])["result"]["_meta"]["babelgate"]
        assert facts["fault"] == "limited" and facts["retryAfter"] > 0
    if protocol == "a2a" and response.status_code == 200 and "data" in response.text[:5]:
        assert json.loads(response.text.removeprefix("data: "))["error"]["code"] == -32603


async def test_a_repeat_and_a_refused_run_are_not_charged(tmp_path: Path) -> None:
    rates = [{"per": "key", "runs": 2, "every": "1d"}]
    async with running(tmp_path, limits={"rate": rates}) as gateway:
        run = acp_run("echo", "hi")
        answers = [
            await gateway.http.post("/v1/responses", json={"model": "nobody", "input": "hi"}),
            await gateway.http.post("/acp/runs", json={**run, "agent_name": "nobody"}),
            await gateway.http.post("/acp/runs", json=run),
            await gateway.http.get("/acp/agents"),
            await gateway.http.post("/acp/runs", json=run),
            await gateway.http.post("/acp/runs", json=run),
        ]
    assert [each.status_code for each in answers] == [404, 404, 200, 200, 200, 429]
    assert "ratelimit" not in answers[3].headers
