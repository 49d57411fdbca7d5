"""Spans of requests, operations, runs, tools and calls: their names, their parents, and what they contain."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from babelgate.canonical import FaultError, Invocation
from babelgate.canonical.event import Event, InterruptRaised, RunEnded, ToolEnded, ToolStarted
from babelgate.canonical.fault import FaultCode
from babelgate.canonical.message import Message
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.bridge import BOUND, client
from tests.gateway.telemetry.spans import SENT, SPAN, TRACE, Spans
from tests.opened import opened

KEY = "alice-key-1234567890"
SIGNED = {"x-api-key": KEY, **SENT}
A2A: dict[str, Any] = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
A2A_0_3: dict[str, Any] = {
    "messageId": "1",
    "role": "user",
    "kind": "message",
    "parts": [{"kind": "text", "text": "Hi"}],
}
ACP: dict[str, Any] = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
CHAT: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "Hello"}]}
LANGGRAPH: dict[str, Any] = {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": "Hi"}]}}

CONTENT = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
}
"""Attributes that contain what callers and agents say."""


def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


REQUESTS: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("/a2a/echo", call("SendMessage", {"message": A2A}), "POST /a2a/{agent}", "SendMessage"),
    ("/a2a/echo", call("SendStreamingMessage", {"message": A2A}), "POST /a2a/{agent}", "SendStreamingMessage"),
    ("/a2a/echo", call("message/send", {"message": A2A_0_3}), "POST /a2a/{agent}", "SendMessage"),
    ("/a2a/echo/message:send", {"message": A2A}, "POST /a2a/{agent}/message:send", "SendMessage"),
    ("/acp/runs", ACP, "POST /acp/runs", None),
    ("/agent/echo/acp/runs", ACP, "POST /agent/{agent}/acp/runs", None),
    ("/v1/chat/completions", CHAT, "POST /v1/chat/completions", None),
    ("/v1/responses", {"model": "echo", "input": "Hello"}, "POST /v1/responses", None),
    ("/runs/wait", LANGGRAPH, "POST /runs/wait", None),
    ("/v1/runs", {"assistant_id": "echo", "input": "Hello"}, "POST /v1/runs", None),
    ("/mcp", call("tools/call", {"name": "echo", "arguments": {"message": "Hi"}}), "POST /mcp", "tools/call echo"),
]


@pytest.mark.parametrize(("path", "body", "name", "operation"), REQUESTS, ids=lambda each: str(each)[:40])
async def test_request_operation_and_run_are_one_trace(
    tmp_path: Path, path: str, body: Any, name: str, operation: str | None
):
    spans = Spans()
    headers = {**SIGNED, "Accept": "application/json, text/event-stream"}
    headers |= {} if "message/send" in str(body) else {"A2A-Version": "1.0"}
    async with opened(tmp_path, observer=spans, keys={"alice": KEY}) as gateway, client(gateway.app) as http:
        response = await http.post(path, json=body, headers=headers)
        assert response.status_code in (200, 201), response.text
        await gateway.hub.engine.idle()
    request, parent = spans.one(name), SPAN
    assert (request.kind, request.trace, request.parent) == ("SERVER", TRACE, parent)
    assert request.attributes["http.response.status_code"] == response.status_code
    parent = request.id
    if operation is not None:
        inner = spans.one(operation)
        assert (inner.kind, inner.trace, inner.parent) == ("SERVER", TRACE, parent)
        parent = inner.id
    run = spans.one("invoke_agent echo")
    assert (run.kind, run.trace, run.parent) == ("INTERNAL", TRACE, parent)
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.agent.name"] == "echo"
    assert not CONTENT & set(run.attributes)
    assert "blue" not in str([each.attributes for each in spans.ended])


async def test_the_run_of_a_step_is_below_its_request(tmp_path: Path):
    spans = Spans()
    async with opened(tmp_path, observer=spans, keys={"alice": KEY}) as gateway, client(gateway.app) as http:
        url = "/agent/echo/ap/v1/agent/tasks"
        task = (await http.post(url, json={"input": "Hello"}, headers={"x-api-key": KEY})).json()
        response = await http.post(f"{url}/{task['task_id']}/steps", json={}, headers=SIGNED)
        assert response.status_code == 200, response.text
    request = spans.one("POST /agent/{agent}/ap/v1/agent/tasks/{task_id}/steps")
    run = spans.one("invoke_agent echo")
    assert (request.trace, request.parent, run.trace, run.parent) == (TRACE, SPAN, TRACE, request.id)


async def test_a_stream_has_one_span_until_its_last_byte(tmp_path: Path):
    spans = Spans()

    async def count(call: Any) -> AsyncGenerator[str]:
        for number in range(20):
            yield str(number)

    body = {**ACP, "agent_name": "count", "mode": "stream"}
    async with (
        opened(tmp_path, {"count": count}, observer=spans) as gateway,
        client(gateway.app) as http,
        http.stream("POST", "/acp/runs", json=body) as response,
    ):
        assert spans.named("POST /acp/runs") == []
        await response.aread()
    assert [each.name for each in spans.ended if each.kind == "SERVER"] == ["POST /acp/runs"]
    assert len(spans.ended) == 2


TRUST: list[tuple[dict[str, Any], dict[str, str], int, bool]] = [
    ({"keys": {"alice": KEY}}, SIGNED, 200, True),
    ({"keys": {"alice": KEY}}, SENT, 401, False),
    ({"keys": {"alice": KEY}}, {**SIGNED, "x-api-key": "of-a-stranger-123456"}, 401, False),
    ({}, SENT, 200, False),
]


@pytest.mark.parametrize(("settings", "headers", "status", "is_trusted"), TRUST)
async def test_only_an_authenticated_caller_is_the_parent(
    tmp_path: Path, settings: dict[str, Any], headers: dict[str, str], status: int, is_trusted: bool
):
    spans = Spans()
    async with opened(tmp_path, observer=spans, **settings) as gateway, client(gateway.app) as http:
        assert (await http.post("/acp/runs", json=ACP, headers=headers)).status_code == status
    (request,) = (each for each in spans.ended if each.kind == "SERVER")
    if is_trusted:
        assert (request.trace, request.parent, request.links) == (TRACE, SPAN, [])
    else:
        assert request.trace != TRACE
        assert (request.parent, request.links) == (None, [SPAN])


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_context_in_the_meta_of_mcp_is_the_parent(tmp_path: Path, is_trusted: bool):
    spans = Spans()
    settings: dict[str, Any] = {"keys": {"alice": KEY}} if is_trusted else {}
    meta = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    body = call("tools/call", {"name": "echo", "arguments": {"message": "Hi"}, "_meta": meta})
    headers = {"Accept": "application/json, text/event-stream", **({"x-api-key": KEY} if is_trusted else {})}
    async with opened(tmp_path, observer=spans, **settings) as gateway, client(gateway.app) as http:
        assert (await http.post("/mcp", json=body, headers=headers)).status_code == 200
    request, operation = spans.one("POST /mcp"), spans.one("tools/call echo")
    assert operation.attributes["mcp.method.name"] == "tools/call"
    assert operation.attributes["jsonrpc.request.id"] == "7"
    if is_trusted:
        assert (operation.trace, operation.parent, operation.links) == (TRACE, SPAN, [request.id])
    else:
        assert (operation.trace, operation.parent, operation.links) == (request.trace, request.id, [SPAN])
    assert spans.one("invoke_agent echo").parent == operation.id


async def work(call: Any) -> AsyncGenerator[Event | str]:
    yield ToolStarted(call_id="1", name="search", input={"query": "q" * 9000})
    yield ToolEnded(call_id="1", name="search", output={"found": 3})
    yield ToolStarted(call_id="2", name="fetch")
    yield ToolEnded(call_id="2", name="fetch", fault=FaultError(FaultCode.AGENT_FAILED, "no").fault)
    yield "x" * 9000
    yield RunEnded(usage={"input_tokens": 12, "output_tokens": 3})


@pytest.mark.parametrize("has_content", [True, False])
async def test_tools_and_content_are_recorded_if_set(tmp_path: Path, has_content: bool):
    spans = Spans(has_content=has_content)
    async with opened(tmp_path, {"work": work}, observer=spans) as gateway, client(gateway.app) as http:
        response = await http.post("/acp/runs", json={**ACP, "agent_name": "work"})
        assert response.json()["status"] == "completed", response.text
    run, search, fetch = (
        spans.one("invoke_agent work"),
        spans.one("execute_tool search"),
        spans.one("execute_tool fetch"),
    )
    assert run.attributes["gen_ai.usage.input_tokens"] == 12
    assert run.attributes["gen_ai.usage.output_tokens"] == 3
    assert (search.parent, fetch.parent) == (run.id, run.id)
    assert (search.has_failed, fetch.has_failed) == (False, True)
    assert fetch.attributes["error.type"] == "agent_failed"
    found = {name: value for each in spans.ended for name, value in each.attributes.items() if name in CONTENT}
    if not has_content:
        assert found == {}
        return
    assert set(found) == CONTENT
    (message,) = json.loads(found["gen_ai.output.messages"])
    assert message == {"role": "assistant", "parts": [{"type": "text", "content": "x" * 8192}]}
    assert len(found["gen_ai.tool.call.arguments"]) == 8192
    assert json.loads(found["gen_ai.tool.call.result"]) == {"found": 3}


async def test_questions_and_answers_are_never_recorded(tmp_path: Path):
    spans = Spans(has_content=True)

    async def login(call: Invocation) -> AsyncGenerator[Event | str]:
        yield InterruptRaised(ask="auth", message=Message.of("Visit https://login.example/?code=SECRET", "agent"))
        yield "Welcome"

    async with opened(tmp_path, {"login": login}, observer=spans) as gateway, client(gateway.app) as http:
        run = (await http.post("/acp/runs", json={**ACP, "agent_name": "login"})).json()
        answer = {
            "run_id": run["run_id"],
            "mode": "sync",
            "await_resume": {"type": "message", "message": {"role": "user", "parts": [{"content": "SECRET"}]}},
        }
        response = await http.post(f"/acp/runs/{run['run_id']}", json=answer)
        assert response.json()["status"] == "completed", response.text
    assert len(spans.named("invoke_agent login")) == 2
    assert "Welcome" in str([each.attributes for each in spans.ended])
    assert "SECRET" not in str([each.attributes for each in spans.ended])


async def test_a_failed_run_has_its_fault_as_error_type(tmp_path: Path):
    spans = Spans()
    async with opened(tmp_path, observer=spans) as gateway, client(gateway.app) as http:
        await http.post("/acp/runs", json={**ACP, "agent_name": "fail"})
        missing = call("GetTask", {"id": "01a22600-0960-7071-98f7-7b38a900f19c"})
        await http.post("/a2a/echo", json=missing, headers={"A2A-Version": "1.0"})
        await http.get(f"/a2a/echo/tasks/{missing['params']['id']}", headers={"A2A-Version": "1.0"})
        headers = {"Accept": "application/json, text/event-stream"}
        await http.post(
            "/mcp", json=call("tools/call", {"name": "fail", "arguments": {"message": "x"}}), headers=headers
        )
        await http.post("/mcp", json=call("tools/call", {"name": "nobody", "arguments": {}}), headers=headers)
    assert [each.attributes["error.type"] for each in spans.named("invoke_agent fail")] == ["agent_failed"] * 2
    assert [each.attributes["error.type"] for each in spans.named("GetTask")] == ["not_found"] * 2
    assert spans.one("tools/call fail").attributes["error.type"] == "tool_error"
    assert spans.one("tools/call nobody").has_failed


async def test_a_run_continues_its_trace_after_a_restart(tmp_path: Path):
    is_first, begun = True, asyncio.Event()

    async def slow(call: Invocation) -> AsyncGenerator[str]:
        begun.set()
        if is_first:
            await asyncio.Event().wait()
        yield "Done"

    info, agent = wrap(slow, "slow")
    registered = {"slow": RegisteredAgent(info, agent, idempotent=True)}
    first, second = Spans(), Spans()
    async with opened(tmp_path, registered=registered, observer=first) as gateway, client(gateway.app) as http:
        body = {**ACP, "agent_name": "slow", "mode": "async"}
        await http.post("/acp/runs", json=body)
        async with asyncio.timeout(BOUND):
            await begun.wait()
    is_first = False
    async with opened(tmp_path, registered=registered, observer=second):
        await second.wait_for("invoke_agent slow")
    request, cut, whole = first.one("POST /acp/runs"), first.one("invoke_agent slow"), second.one("invoke_agent slow")
    assert (cut.trace, cut.parent, cut.attributes["error.type"]) == (request.trace, request.id, "cancelled")
    assert (whole.trace, whole.parent, whole.has_failed) == (request.trace, request.id, False)
    assert [each.attributes["babelgate.run.attempt"] for each in (cut, whole)] == [1, 2]


async def test_an_unsampled_request_records_nothing(tmp_path: Path):
    spans = Spans(sampler=ALWAYS_OFF, has_content=True)
    async with opened(tmp_path, observer=spans) as gateway, client(gateway.app) as http:
        assert (await http.post("/acp/runs", json=ACP)).status_code == 200
    assert spans.ended == []


async def test_probes_of_an_orchestrator_are_not_traced(tmp_path: Path):
    spans = Spans()
    async with opened(tmp_path, observer=spans) as gateway, client(gateway.app) as http:
        await http.get("/healthz")
        await http.get("/readyz")
        await http.get("/nothing")
    assert [each.name for each in spans.ended] == ["GET"]
