"""A caller at a limit: each protocol refuses the run in its own form, with the time of the next one."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS
from babelgate.canonical import Fault, FaultCode
from tests.adapters.agent_client.editor import RpcError, editing
from tests.behaviour.test_forbidden import INPUT, OLD, STEPS, V1, acp_run, message, rpc, tool
from tests.gateway.hubs import ends, submit
from tests.gateway.route import words_of
from tests.gateway.shape import check_error
from tests.gateway.valid import MCP
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

AG_UI: Final = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}
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
    ("vercel-ui", "/vercel-ui/echo", {}, {"prompt": "hi"}, 429),
    ("ag-ui", "/ag-ui/echo", {}, AG_UI, 429),
    ("anthropic", "/v1/messages", {}, {"model": "echo", "messages": INPUT["messages"]}, 429),
    ("mcp", "/mcp", MCP, tool("echo", message="hi"), 200),
]


RATES: Final = [{"per": "agent", "agent": "echo", "runs": 1, "every": "1d"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("limited"), limits={"rate": RATES}) as gateway:
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


# An agent's server at a limit

UPSTREAMS: Final[dict[str, dict[str, Any]]] = {
    "a2a": {"protocol": "a2a", "url": "/a2a/{agent}"},
    "acp": {"protocol": "acp", "url": "/acp"},
    "aief": {"protocol": "aief", "url": "/agent/{agent}"},
    "chat": {"protocol": "openai", "url": "/v1", "options": {"api": "chat"}},
    "langgraph": {"protocol": "langgraph", "url": ""},
    "responses": {"protocol": "openai", "url": "/v1"},
}
"""Kinds of agents on servers, with the path of a gateway that speaks their protocol."""
FRONTS: Final[list[Any]] = [
    # Path, headers, body, mark of the fault, and whether the response has Retry-After.
    ("/acp/runs", {}, acp_run("acp", "hi"), '"babelgate":{"code":"limited"}', False),
    ("/a2a/acp", V1, rpc("SendMessage", {"message": message()}), '"babelgate":{"fault":"limited"}', False),
    ("/runs/wait", {}, {"assistant_id": "acp", "input": INPUT}, '"error":"LimitedError"', False),
    ("/v1/chat/completions", {}, {"model": "acp", "messages": INPUT["messages"]}, '"type":"rate_limit_error"', True),
    ("/v1/responses", {}, {"model": "acp", "input": "hi"}, '"type":"rate_limit_error"', True),
    ("/v1/runs", {}, {"assistant_id": "acp", "input": {"message": "hi"}}, '"code":"limited"', False),
    ("/mcp", MCP, tool("acp", message="hi"), '"fault":"limited","retryAfter":', False),
]


def agents_at(url: str, agent: str) -> dict[str, dict[str, Any]]:
    """Return the settings of an agent of each kind, which are all the same agent of a gateway."""
    return {
        name: {**kind, "url": url + kind["url"].format(agent=agent), "agent": agent} for name, kind in UPSTREAMS.items()
    }


@asynccontextmanager
async def behind_a_limit(folder: Path, **limits: Any) -> AsyncGenerator[Running]:
    """Serve a gateway with an agent of each kind, at another gateway whose limit is used up."""
    far = folder / "far"
    far.mkdir()
    async with running(far, **limits) as upstream:
        used = await upstream.http.post("/v1/responses", json={"model": "echo", "input": "hi"})
        assert used.status_code == 200
        async with running(folder, configured=agents_at(upstream.url, "echo")) as gateway:
            yield gateway


async def fault_of(gateway: Running, agent: str) -> Fault:
    """Run an agent that fails, and return its fault."""
    receipt = await submit(gateway.hub, agent, owner="default")
    fault = (await ends(gateway.hub, receipt, owner="default")).fault
    assert fault is not None, agent
    return fault


@pytest.mark.parametrize(
    ("limits", "words", "limit"),
    [
        ({"limits": {"rate": RATES}}, REFUSAL, None),
        (
            {"budgets": {"few": {"per": "agent", "runs": 1, "every": "month"}}},
            "The budget few of echo is used up",
            "budget",
        ),
    ],
    ids=["rate", "budget"],
)
async def test_a_refusal_by_an_agents_server_is_a_limit(
    tmp_path: Path, limits: dict[str, Any], words: str, limit: str | None
) -> None:
    async with behind_a_limit(tmp_path, **limits) as gateway:
        for agent in UPSTREAMS:
            fault = await fault_of(gateway, agent)
            assert (fault.code, words in fault.message) == (FaultCode.LIMITED, True), (agent, fault)
            assert 0 < fault.details["retry_after"] <= 31 * 86400, agent
            # The other protocols have no place for it.
            expected = limit if agent in ("a2a", "chat", "responses") else None
            assert fault.details.get("limit") == expected, agent


async def test_callers_see_the_limit_of_an_agents_server(tmp_path: Path) -> None:
    async with behind_a_limit(tmp_path, limits={"rate": RATES}) as gateway:
        for path, headers, body, mark, has_header in FRONTS:
            response = await gateway.http.post(path, json=body, headers=headers)
            assert REFUSAL in response.text and mark in response.text, (path, response.text)
            assert (0 < int(response.headers.get("retry-after", "0")) <= 86400) is has_header, path
        last = tmp_path / "last"
        last.mkdir()
        async with running(last, configured=agents_at(gateway.url, "acp")) as third:
            for agent in UPSTREAMS:
                fault = await fault_of(third, agent)
                assert (fault.code, REFUSAL in fault.message) == (FaultCode.LIMITED, True), (agent, fault)
