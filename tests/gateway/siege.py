"""Helpers that send bad requests to a gateway, many at once, and check the responses."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote
from uuid import uuid4

import httpx

from babelgate.canonical.value import Json
from tests.gateway.hostile import LIMIT, UNKNOWN
from tests.gateway.hubs import check_invariants
from tests.gateway.knowledge import knowledge_of
from tests.gateway.log_capture import capture_log
from tests.gateway.route import PAGE, PAGE_SLOT, Route, protocol_of, words_of
from tests.gateway.shape import check_error, error_of, is_endless
from tests.gateway.valid import CALL, MCP, PUSH, V1, VALID, command, rpc
from tests.running import Running, running


class Reachable(Protocol):
    """Gateway in this process or in another one."""

    @property
    def http(self) -> httpx.AsyncClient: ...


Case = tuple[str, Callable[[], Awaitable[httpx.Response]]]


@asynccontextmanager
async def besieged(folder: Path) -> AsyncGenerator[Running]:
    with capture_log(logging.ERROR) as log:
        async with running(folder, limits={"body": LIMIT}) as gateway:
            yield gateway
            await check_invariants(gateway.hub)
    # Errors in the middle of a stream, or after a response, are only in the log.
    assert log.errors == []


# Resources


async def create_targets(gateway: Reachable, path: str) -> Mapping[str, str]:
    """Create resources of the protocol of this path, most of them paused, and return values of path parameters."""
    if (knowledge := knowledge_of(path)) is not None:
        return await knowledge.make(gateway.http)
    match protocol_of(path):
        case "aief":
            return await _aief(gateway.http)
        case "langchain" | "runtime":
            return await _langchain(gateway.http)
        case "openai":
            return await _openai(gateway.http)
        case "own":
            thread = await _langchain(gateway.http)
            ids = {name: thread[name] for name in ("thread_id", "run_id")}
            return {
                **await _waiting(gateway.http),
                **ids,
                "number": "1",
                "job_id": UNKNOWN,
                "key_id": UNKNOWN,
                PAGE_SLOT: PAGE,
            }
        case _:
            return await _waiting(gateway.http)


async def _waiting(http: httpx.AsyncClient) -> Mapping[str, str]:
    """Create a paused task of the agent `ask`, with its session and a push config."""
    paused = await http.post(
        "/acp/runs", json={"agent_name": "ask", "input": [{"role": "user", "parts": [{"content": "hi"}]}]}
    )
    run_id, session_id = paused.json()["run_id"], paused.json()["session_id"]
    push = await http.post(f"/a2a/ask/tasks/{run_id}/pushNotificationConfigs", headers=V1, json=PUSH)
    assert push.status_code == 200, push.text
    return {
        "agent": "ask",
        "name": "ask",
        "run_id": run_id,
        "task_id": run_id,
        "session_id": session_id,
        "resource_id": f"{run_id}.0",
        "config_id": "p1",
        "blob": "0" * 64,
    }


async def _aief(http: httpx.AsyncClient) -> Mapping[str, str]:
    """Create a task with one completed step and a file."""
    tasks = "/ap/v1/agent/tasks"
    task_id = (await http.post(tasks, json={"input": "hi"})).json()["task_id"]
    step = (await http.post(f"{tasks}/{task_id}/steps")).json()
    file = (await http.post(f"{tasks}/{task_id}/artifacts", files={"file": ("a.txt", b"hi")})).json()
    return {"task_id": task_id, "step_id": step["step_id"], "artifact_id": file["artifact_id"]}


async def _langchain(http: httpx.AsyncClient) -> Mapping[str, str]:
    """Create an interrupted thread, with an assistant, a stored item and a cron."""
    thread_id = (await http.post("/threads", json={})).json()["thread_id"]
    waited = await http.post(f"/threads/{thread_id}/runs/wait", json={"assistant_id": "ask", "input": "hi"})
    assert "__interrupt__" in waited.json(), waited.text
    state = (await http.get(f"/threads/{thread_id}/state")).json()
    assistant = (await http.post("/assistants", json={"graph_id": "ask"})).json()
    await http.put("/store/items", json={"namespace": ["siege"], "key": "k", "value": {"a": 1}})
    # All tests share one cron: an owner may have at most a thousand.
    crons = (await http.post("/runs/crons/search", json={"limit": 1})).json()
    cron = crons[0] if crons else await _cron(http)
    return {
        "cron_id": cron["cron_id"],
        "thread_id": thread_id,
        "run_id": waited.headers["content-location"].rpartition("/")[2],
        "question": waited.json()["__interrupt__"][0]["id"],
        "checkpoint_id": state["checkpoint_id"],
        "agent_id": "ask",
        "assistant_id": assistant["assistant_id"],
        "namespace": "a",
        "labels": "siege",
        "key": "k",
        "blob": "0" * 64,
    }


async def _cron(http: httpx.AsyncClient) -> Mapping[str, str]:
    return (await http.post("/runs/crons", json={"assistant_id": "ask", "schedule": "0 0 1 1 *"})).json()


async def _openai(http: httpx.AsyncClient) -> Mapping[str, str]:
    """Create a stored completion and a response that ask a question, and a conversation with an item."""
    body = {"model": "ask", "messages": [{"role": "user", "content": "hi"}], "store": True}
    completion = await http.post("/v1/chat/completions", json=body)
    assert completion.status_code == 200, completion.text
    found = {"model": "ask", "completion_id": completion.json()["id"], "response_id": await _response(http)}
    items_body = {"items": [{"role": "user", "content": "hi"}]}
    conversation = (await http.post("/v1/conversations", json=items_body)).json()["id"]
    items = (await http.get(f"/v1/conversations/{conversation}/items")).json()["data"]
    return {"blob": "0" * 64, **found, "conversation_id": conversation, "item_id": items[0]["id"]}


async def _response(http: httpx.AsyncClient) -> str:
    """Create a background response that asks a question."""
    response = await http.post("/v1/responses", json={"model": "ask", "input": "hi", "background": True})
    assert response.status_code == 200, response.text
    return response.json()["id"]


def spared(route: Route, slots: Mapping[str, str]) -> Mapping[str, str]:
    """Return the path values, but with another value on a route that would otherwise stream without an end, or list all
    resources of the tests."""
    if route.path.endswith(":subscribe"):  # the stream of a waiting task continues until the question is answered
        return {**slots, "task_id": UNKNOWN}
    if route.method != "POST" and route.path.endswith("/{thread_id}/stream"):  # the stream ends with the thread
        return {**slots, "thread_id": UNKNOWN}
    return {**slots, "agent": "json"} if route.path.endswith("/tasks") else slots


# Requests


def dumped(value: Json) -> bytes:
    return json.dumps(value).encode()


def headers_for(route: Route) -> dict[str, str]:
    if route.words == "mcp":
        return dict(MCP)
    if route.path.startswith("/console/") and route.method == "DELETE":
        return {"Content-Type": "application/json"}  # which each write of the console needs
    return dict(V1) if route.words in ("rest", "rpc") else {}


def body_for(route: Route, slots: Mapping[str, str]) -> Json:
    """Return a valid body, so that the outcome depends only on the ids in the path."""
    match route.words:
        case "rpc":
            return rpc("GetTask", {"id": slots["task_id"]})
        case "langgraph-command" | "agent-protocol-command":
            return command("state.get", {})  # `run.start` would create the thread
        case _:
            return VALID.get(str(route))


async def ask(client: httpx.AsyncClient, method: str, path: str, **request: Any) -> httpx.Response:
    """Return the whole response, or only the head of a stream that does not end."""
    async with client.stream(method, path, **request) as response:
        if not is_endless(response):
            await response.aread()
            return response
    return httpx.Response(response.status_code, headers=response.headers, request=response.request)


def sending(gateway: Running, route: Route, path: str, **request: Any) -> Callable[[], Awaitable[httpx.Response]]:
    headers = {**headers_for(route), **request.pop("headers", {})}
    return lambda: ask(gateway.http, route.method, path, headers=headers, **request)


async def check_works(gateway: Running, path: str) -> None:
    """Assert that the agent `echo` still answers, in ACP and in the protocol of this path."""
    http, words = gateway.http, "still here"
    run = await http.post(
        "/acp/runs", json={"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": words}]}]}
    )
    assert run.json()["output"][0]["parts"][0]["content"] == words
    if (knowledge := knowledge_of(path)) is not None:
        assert await knowledge.echo(http, words) == words
    match protocol_of(path):
        case "a2a":
            message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": words}]}
            sent = await http.post("/a2a/echo/message:send", headers=V1, json={"message": message})
            assert sent.json()["task"]["artifacts"][0]["parts"][0]["text"] == words
        case "aief":
            tasks = "/agent/echo/ap/v1/agent/tasks"
            task_id = (await http.post(tasks, json={"input": words})).json()["task_id"]
            assert (await http.post(f"{tasks}/{task_id}/steps")).json()["output"] == words
        case "langchain":
            waited = await http.post("/runs/wait", json={"assistant_id": "echo", "input": words})
            assert waited.json()["messages"][-1]["content"] == words
        case "runtime":
            output = (await http.post("/v1/runs", json={"assistant_id": "echo", "input": words})).json()["output"]
            assert output["messages"][0]["parts"][0]["text"] == words
        case "mcp":
            params = {"name": "echo", "arguments": {"message": words}}
            called = await http.post("/mcp", json={**CALL, "params": params}, headers=MCP)
            result = json.loads(called.text.partition("data: ")[2])["result"]
            assert result["content"] == [{"type": "text", "text": words}]
        case "ag-ui":
            body = {"threadId": str(uuid4()), "runId": "r", "messages": [{"id": "m", "role": "user", "content": words}]}
            ran = await http.post("/ag-ui/echo", json=body)
            assert words in ran.text
        case "openai":
            body = {"model": "echo", "messages": [{"role": "user", "content": words}]}
            completed = await http.post("/v1/chat/completions", json=body)
            assert completed.json()["choices"][0]["message"]["content"] == words
        case _:
            pass


async def problems(gateway: Running, route: Route, cases: Iterable[Case], *, refused: bool) -> list[str]:
    """Send all requests, return the problems of their responses, and check that the gateway still works.

    With `refused`, every response must be an error.
    """
    found: list[str] = []
    gate = asyncio.Semaphore(8)

    async def one(name: str, send: Callable[[], Awaitable[httpx.Response]]) -> None:
        async with gate:
            response = await send()
        # Use the path as the gateway decodes it: an encoded slash may lead to a path of another binding.
        words = words_of(route.method, unquote(response.request.url.raw_path.decode().partition("?")[0]))
        try:
            if refused or error_of(words, response):
                assert error_of(words, response), f"{response.status_code}: {response.text[:200]}"
                check_error(words, response)
        except (AssertionError, KeyError, IndexError, ValueError) as error:
            found.append(f"{route} with {name}: {type(error).__name__}: {error}")

    await asyncio.gather(*(one(name, send) for name, send in cases))
    await check_works(gateway, route.path)
    return found
