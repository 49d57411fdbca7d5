"""LangChain's Agent Protocol, operation by operation, with a client like one generated from OpenAPI document 0.1.6.

Every response is validated against its schema.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import jsonschema
import pytest
import pytest_asyncio

from babelgate.gateway import demo
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN_ID: Final = "00000000-0000-4000-8000-000000000000"
SCHEMA: Final = json.loads(Path(__file__).with_name("agent_protocol.schema.json").read_text())
FORMATS: Final = jsonschema.FormatChecker(["uuid"])


@FORMATS.checks("date-time", ValueError)
def is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


GATE: Final = asyncio.Event()


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield one word, and the next when the gate opens."""
    yield "first"
    await GATE.wait()
    yield " second"


@pytest.fixture
def gate() -> asyncio.Event:
    GATE.clear()
    return GATE


class Client:
    """Client like a generated one: JSON requests and responses, with the statuses that each operation declares."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def call(self, operation: str, body: Any = None, *, answer: str | None = None, status: int = 200) -> Any:
        """Call an operation. `answer` names the schema of the response body; None means an empty body."""
        method, path = operation.split(" ")
        content = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json", **({"Content-Type": "application/json"} if body is not None else {})}
        response = await self._http.request(method, f"/agent-protocol{path}", content=content, headers=headers)
        assert response.status_code == status, response.text
        if answer is None:
            assert response.content == b""
            return None
        found = response.json()
        validate(found, answer)
        return found

    async def stream(self, operation: str, body: Any = None) -> list[tuple[str, Any]]:
        method, path = operation.split(" ")
        content = None if body is None else json.dumps(body)
        events: list[tuple[str, Any]] = []
        async with self._http.stream(method, f"/agent-protocol{path}", content=content) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            name = ""
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    events.append((name, json.loads(value)))
        return events

    async def new_thread(self) -> str:
        return (await self.call("POST /threads", {}, answer="Thread"))["thread_id"]

    async def refused(self, operation: str, body: Any = None, *, status: int) -> Any:
        return await self.call(operation, body, answer="ErrorResponse", status=status)


def validate(value: Any, name: str) -> None:
    schema = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    jsonschema.validate(value, schema, format_checker=FORMATS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    agents = {name: getattr(demo, name) for name in demo.__all__}
    folder = tmp_path_factory.mktemp("agent-protocol")
    async with running(folder, {**agents, "gated": gated}, default_agent="echo") as gateway:
        yield Client(gateway.http)


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def texts(messages: list[Any]) -> list[str]:
    return [message["content"] for message in messages]


async def test_agents_are_searched_and_described(client: Client) -> None:
    found = await client.call("POST /agents/search", {"limit": 100}, answer="Agents")
    assert {"echo", "ask", "json"} <= {agent["name"] for agent in found}
    assert len(await client.call("POST /agents/search", {"limit": 2, "offset": 1}, answer="Agents")) == 2
    [one] = await client.call("POST /agents/search", {"name": "json"}, answer="Agents")
    assert await client.call(f"GET /agents/{one['agent_id']}", answer="Agent") == one
    schemas = await client.call(f"GET /agents/{one['agent_id']}/schemas", answer="AgentSchema")
    assert schemas["agent_id"] == one["agent_id"]
    await client.refused(f"GET /agents/{UNKNOWN_ID}", status=404)


async def test_threads_are_created_changed_searched_and_deleted(client: Client) -> None:
    thread_id, mark = str(uuid4()), str(uuid4())
    request = {"thread_id": thread_id, "metadata": {"mark": mark}, "if_exists": "raise"}
    created = await client.call("POST /threads", request, answer="Thread")
    assert (created["thread_id"], created["metadata"], created["status"]) == (thread_id, {"mark": mark}, "idle")
    await client.refused("POST /threads", request, status=409)
    again = await client.call("POST /threads", {**request, "if_exists": "do_nothing"}, answer="Thread")
    assert again["created_at"] == created["created_at"]
    where = {"metadata": {"mark": mark}, "status": "idle", "limit": 10, "offset": 0}
    [found] = await client.call("POST /threads/search", where, answer="Threads")
    assert found["thread_id"] == thread_id
    assert await client.call("POST /threads/search", {**where, "status": "busy"}, answer="Threads") == []
    patched = await client.call(f"PATCH /threads/{thread_id}", {"metadata": {"more": 1}}, answer="Thread")
    assert patched["metadata"] == {"mark": mark, "more": 1}
    assert await client.call(f"GET /threads/{thread_id}", answer="Thread") == patched
    copied = await client.call(f"POST /threads/{thread_id}/copy", answer="Thread")
    assert copied["thread_id"] != thread_id
    await client.call(f"DELETE /threads/{thread_id}", status=204)
    await client.refused(f"GET /threads/{thread_id}", status=404)
    await client.refused("GET /threads/nope", status=422)


async def test_a_patch_with_values_or_messages_adds_a_checkpoint(client: Client) -> None:
    thread_id = await client.new_thread()
    body = {"values": {"mood": "good"}, "messages": user("Note")}
    patched = await client.call(f"PATCH /threads/{thread_id}", body, answer="Thread")
    assert (patched["values"]["mood"], texts(patched["messages"])) == ("good", ["Note"])
    [first] = await client.call(f"GET /threads/{thread_id}/history", answer="ThreadStates")
    assert (first["values"]["mood"], texts(first["messages"])) == ("good", ["Note"])
    await client.call(f"PATCH /threads/{thread_id}", {"values": {"mood": "bad"}}, answer="Thread")
    branch = {"checkpoint": first["checkpoint"], "values": {"other": 1}}
    branched = await client.call(f"PATCH /threads/{thread_id}", branch, answer="Thread")
    assert (branched["values"]["mood"], branched["values"]["other"]) == ("good", 1)
    newest = await client.call(f"GET /threads/{thread_id}/history?limit=1", answer="ThreadStates")
    assert newest[0]["values"] == branched["values"]
    before = newest[0]["checkpoint"]["checkpoint_id"]
    older = await client.call(f"GET /threads/{thread_id}/history?before={before}", answer="ThreadStates")
    assert len(older) == 2


async def test_runs_are_created_waited_for_and_found(client: Client) -> None:
    thread_id = await client.new_thread()
    mark = str(uuid4())
    body = {"thread_id": thread_id, "agent_id": "echo", "messages": user("Hello"), "metadata": {"mark": mark}}
    run = await client.call("POST /runs", body, answer="Run")
    assert (run["thread_id"], run["metadata"]["mark"]) == (thread_id, mark)
    at = f"/runs/{run['run_id']}"
    waited = await client.call(f"GET {at}/wait", answer="RunWaitResponse")
    assert (waited["run"]["status"], texts(waited["messages"])) == ("success", ["Hello", "Hello"])
    finished = await client.call(f"GET {at}", answer="Run")
    assert finished["status"] == "success"
    where = {"thread_id": thread_id, "status": "success", "metadata": {"mark": mark}, "limit": 10, "offset": 0}
    assert await client.call("POST /runs/search", where, answer="Runs") == [finished]
    assert await client.call("POST /runs/search", {**where, "status": "error"}, answer="Runs") == []
    by_agent = {"thread_id": thread_id, "agent_id": finished["agent_id"]}
    assert await client.call("POST /runs/search", by_agent, answer="Runs") == [finished]
    await client.call(f"DELETE {at}", status=204)
    await client.refused(f"GET {at}", status=404)


async def test_runs_without_an_agent_use_the_default_agent(client: Client) -> None:
    waited = await client.call("POST /runs/wait", {"messages": user("Hello")}, answer="RunWaitResponse")
    assert (texts(waited["messages"]), waited["run"]["status"]) == (["Hello", "Hello"], "success")
    by_input = await client.call("POST /runs/wait", {"input": {"message": "Hello"}}, answer="RunWaitResponse")
    assert texts(by_input["messages"])[-1] == "Hello"
    by_text = await client.call("POST /runs/wait", {"input": "Hello"}, answer="RunWaitResponse")
    assert texts(by_text["messages"])[-1] == "Hello"
    await client.call("POST /runs", {"input": {"message": "Hello"}}, answer="Run")


async def test_values_have_structured_output_but_no_messages(client: Client) -> None:
    body = {"agent_id": "json", "messages": user("a b")}
    waited = await client.call("POST /runs/wait", body, answer="RunWaitResponse")
    assert waited["values"]["words"] == 2
    assert "messages" not in waited["values"]


async def test_the_status_shows_a_question_and_a_failure(client: Client) -> None:
    paused = await client.call("POST /runs/wait", {"agent_id": "ask", "messages": user("x")}, answer="RunWaitResponse")
    assert paused["run"]["status"] == "interrupted"
    failed = await client.call("POST /runs/wait", {"agent_id": "fail", "input": "Boom"}, answer="RunWaitResponse")
    assert failed["run"]["status"] == "error"


@pytest.mark.parametrize("mode", ["values", "messages", "updates", "custom", ["values", "messages"]])
async def test_runs_are_streamed_and_joined(client: Client, mode: Any) -> None:
    thread_id = await client.new_thread()
    body = {"thread_id": thread_id, "agent_id": "stream", "messages": user("one two"), "stream_mode": mode}
    events = await client.stream("POST /runs/stream", body)
    assert all(name != "error" for name, _ in events)
    if mode != "custom":
        assert "two" in str(events)
    [run] = await client.call("POST /runs/search", {"thread_id": thread_id}, answer="Runs")
    assert isinstance(await client.stream(f"GET /runs/{run['run_id']}/stream"), list)


@pytest.mark.parametrize("query", ["", "?wait=true", "?wait=false&action=interrupt", "?wait=true&action=rollback"])
async def test_a_run_is_cancelled(client: Client, gate: asyncio.Event, query: str) -> None:
    thread_id = await client.new_thread()
    body = {"thread_id": thread_id, "agent_id": "gated", "messages": user("x")}
    run = await client.call("POST /runs", body, answer="Run")
    at = f"/runs/{run['run_id']}"
    await client.call(f"POST {at}/cancel{query}", status=204)
    if "rollback" in query:
        await client.refused(f"GET {at}", status=404)
    else:
        waited = await client.call(f"GET {at}/wait", answer="RunWaitResponse")
        assert waited["run"]["status"] == "interrupted"


async def test_runs_of_unknown_agents_or_threads_are_refused(client: Client) -> None:
    for path in ("/runs", "/runs/wait", "/runs/stream"):
        await client.refused(f"POST {path}", {"agent_id": "nope", "input": "x"}, status=404)
        await client.refused(f"POST {path}", {"thread_id": str(uuid4()), "input": "x"}, status=404)
        await client.refused(f"POST {path}", {"thread_id": "nope", "input": "x"}, status=422)
        created = {"thread_id": str(uuid4()), "if_not_exists": "create", "input": "x"}
        if path == "/runs/stream":
            assert await client.stream(f"POST {path}", created)
        else:
            await client.call(f"POST {path}", created, answer="Run" if path == "/runs" else "RunWaitResponse")


async def test_a_busy_thread_is_a_conflict(client: Client, gate: asyncio.Event) -> None:
    thread_id = await client.new_thread()
    body = {"thread_id": thread_id, "agent_id": "gated", "messages": user("x")}
    run = await client.call("POST /runs", body, answer="Run")
    assert (await client.call(f"GET /threads/{thread_id}", answer="Thread"))["status"] == "busy"
    for path in ("/runs", "/runs/wait", "/runs/stream"):
        await client.refused(f"POST {path}", body, status=409)
    gate.set()
    await client.call(f"GET /runs/{run['run_id']}/wait", answer="RunWaitResponse")


async def test_items_are_stored_searched_and_deleted(client: Client) -> None:
    top = f"t{uuid4().hex}"
    for key in ("a", "b"):
        body = {"namespace": [top, "n"], "key": key, "value": {"of": key}}
        await client.call("PUT /store/items", body, status=204)
    at = f"/store/items?key=a&namespace={top}&namespace=n"
    item = await client.call(f"GET {at}", answer="Item")
    assert (item["namespace"], item["key"], item["value"]) == ([top, "n"], "a", {"of": "a"})
    search = {"namespace_prefix": [top], "filter": {"of": "b"}, "limit": 10, "offset": 0}
    [found] = (await client.call("POST /store/items/search", search, answer="SearchItemsResponse"))["items"]
    assert found["key"] == "b"
    await client.call("POST /store/items/search", {"namespace_prefix": None}, answer="SearchItemsResponse")
    await client.call("POST /store/items/search", {}, answer="SearchItemsResponse")
    where = {"prefix": [top], "suffix": ["n"], "max_depth": 2, "limit": 100, "offset": 0}
    assert await client.call("POST /store/namespaces", where, answer="ListNamespaceResponse") == [[top, "n"]]
    await client.call("DELETE /store/items", {"namespace": [top, "n"], "key": "a"}, status=204)
    await client.refused(f"GET {at}", status=404)
