"""Requests of LangSmith Studio and of LangGraph's chat front ends (`useStream`), in their order, for any agent."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.types import interrupt

from babelgate.gateway import demo
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.adapters.langchain.site import Site, events, opened, user_input
from tests.gateway.graphs import State, builder
from tests.running import running

# Studio's pages send JSON as text/plain, because another content type would need a CORS preflight.
PLAIN = {"Content-Type": "text/plain;charset=UTF-8"}
ORIGIN = {"Origin": "http://localhost:3000"}


def questions(_: State) -> Any:
    return {"messages": [{"role": "ai", "content": f"Hello, {interrupt('What is your name?')}"}]}


@asynccontextmanager
async def far_and_near(folder: Path) -> AsyncGenerator[Site]:
    """Serve a graph that asks, and an agent on another server that asks."""
    for name in ("far", "near"):
        (folder / name).mkdir()
    async with running(folder / "far", {"ask": demo.ask}) as far:
        upstream = {"url": f"{far.url}/agent/ask", "protocol": "a2a"}
        registry = await connect(Settings.model_validate({"agents": {"far": upstream}}))
        registered = {each.info.name: each for each in registry.all()}
        graph = wrap_graph(builder(State, {"questions": questions}), "graph")[1]
        async with opened(folder / "near", agents={"graph": graph}, registered=registered) as near:
            yield near


@pytest.fixture
async def site_of(agent: str, tmp_path: Path) -> AsyncGenerator[Site]:
    async with far_and_near(tmp_path) if agent in ("graph", "far") else opened(tmp_path) as site:
        yield site


async def ask(site: Site, method: str, path: str, body: Any = None) -> httpx.Response:
    content = None if body is None else json.dumps(body)
    answer = await site.http.request(method, path, content=content, headers={**PLAIN, **ORIGIN})
    assert answer.status_code < 300, (method, path, answer.status_code, answer.text)
    return answer


@pytest.mark.parametrize("agent", ["echo", "ask", "steps", "graph", "far"])
async def test_studio_can_show_run_and_edit_any_agent(site_of: Site, agent: str) -> None:
    site = site_of

    async def call(method: str, path: str, body: Any = None) -> Any:
        return (await ask(site, method, path, body)).json()

    assert (await call("GET", "/info"))["version"]
    assert (await call("GET", "/ok"))["ok"] is True
    (assistant,) = await call("POST", "/assistants/search", {"graph_id": agent, "limit": 1000, "offset": 0})
    at = f"/assistants/{assistant['assistant_id']}"
    assert await call("GET", at) == assistant
    graph = await call("GET", f"{at}/graph?xray=true")
    assert {"nodes", "edges"} <= graph.keys()
    assert "messages" in (await call("GET", f"{at}/schemas"))["input_schema"]["properties"]
    assert await call("GET", f"{at}/subgraphs?recurse=true") == {}
    assert await call("POST", f"{at}/versions", {"limit": 10})
    assert await call("POST", "/threads/search", {"limit": 10, "offset": 0, "metadata": {"graph_id": agent}}) == []

    thread_id = (await call("POST", "/threads", {"metadata": {}}))["thread_id"]
    state = await call("GET", f"/threads/{thread_id}/state?subgraphs=true")
    assert (state["values"], state["next"], state["checkpoint"]) == ({}, [], None)
    assert await call("POST", f"/threads/{thread_id}/history", {"limit": 1000}) == []

    body: dict[str, Any] = {
        "assistant_id": assistant["assistant_id"],
        "input": user_input("Hello"),
        "config": {"configurable": {}},
        "metadata": {},
        "stream_mode": ["debug", "messages"],
        "stream_subgraphs": True,
        "stream_resumable": True,
        "multitask_strategy": "rollback",
        "interrupt_before": [],
        "interrupt_after": [],
        "checkpoint": None,
        "if_not_exists": "create",
    }
    streamed = await ask(site, "POST", f"/threads/{thread_id}/runs/stream", body)
    run_at = streamed.headers["content-location"]
    assert "content-location" in streamed.headers["access-control-expose-headers"].lower()
    kinds = [kind for kind, _ in events(streamed.content)]
    assert kinds[0] == "metadata" and {"debug", "messages/complete"} & set(kinds)
    assert (await call("GET", run_at))["status"] == "success"
    assert len(await call("GET", f"/threads/{thread_id}/runs")) == 1

    history = await call("POST", f"/threads/{thread_id}/history", {"limit": 1000})
    assert history
    for past in history:
        checkpoint = past["checkpoint"]
        assert await call("GET", f"/threads/{thread_id}/state/{checkpoint['checkpoint_id']}?subgraphs=true") == past
        body_ = {"checkpoint": checkpoint, "subgraphs": True}
        assert await call("POST", f"/threads/{thread_id}/state/checkpoint", body_) == past

    if agent in ("ask", "graph", "far"):
        assert (await call("GET", f"/threads/{thread_id}"))["status"] == "interrupted"
        resumed: dict[str, Any] = {**body, "input": None, "command": {"resume": "Bob"}}
        await ask(site, "POST", f"/threads/{thread_id}/runs/stream", resumed)
    # An edit of a message, and a run from there.
    edit = {
        "values": {"messages": [{"role": "user", "content": "Other"}]},
        "as_node": "questions" if agent == "graph" else agent,
    }
    update = await call("POST", f"/threads/{thread_id}/state", {**edit, "checkpoint": history[-1]["checkpoint"]})
    fork: dict[str, Any] = {**body, "checkpoint": update["checkpoint"]}
    await ask(site, "POST", f"/threads/{thread_id}/runs/stream", fork)
    assert len(await call("POST", f"/threads/{thread_id}/history", {"limit": 1000})) > len(history)
    (listed,) = await call("POST", "/threads/search", {"metadata": {"graph_id": agent}})
    assert listed["thread_id"] == thread_id
    assert (await ask(site, "DELETE", f"/threads/{thread_id}")).status_code == 204


async def test_a_chat_front_end_can_stream_rejoin_and_stop(site: Site) -> None:
    """Make the requests of `useStream` of @langchain/langgraph-sdk."""
    thread_id = (await ask(site, "POST", "/threads", {})).json()["thread_id"]
    body: dict[str, Any] = {
        "assistant_id": "scripted",
        "input": user_input("Hello"),
        "stream_mode": ["values", "messages-tuple", "updates", "custom"],
        "stream_resumable": True,
        "on_disconnect": "continue",
    }
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body, {**PLAIN, **ORIGIN}) as stream:
        run_at = stream.response.headers["content-location"]
        activation = await site.agent.called()
        first = await stream.until("values")
    # After a reload, the page knows the run and the id of its last event.
    async with site.streaming("GET", f"{run_at}/stream", headers={"Last-Event-ID": first.id or ""}) as again:
        assert (await ask(site, "GET", f"/threads/{thread_id}")).json()["status"] == "busy"
        assert (await ask(site, "POST", f"{run_at}/cancel?wait=0&action=interrupt")).status_code == 202
        await again.rest()
    assert activation.call.text == "Hello"
    assert (await ask(site, "GET", run_at)).json()["status"] == "interrupted"
    history = (await ask(site, "POST", f"/threads/{thread_id}/history", {"limit": 10})).json()
    assert history[0]["values"]["messages"][0]["content"] == "Hello"
