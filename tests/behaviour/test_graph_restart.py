"""Graphs interrupted by a restart: they continue from their checkpoint and repeat the unfinished nodes."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import START  # pyright: ignore[reportMissingTypeStubs]

from babelgate.canonical import Event, Scope
from babelgate.canonical.event import StepEnded
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.storage.short_form import lengthen
from tests.gateway.graphs import Model, State, new, words
from tests.gateway.hubs import follow, within
from tests.pairs.a2a import JsonRpc03, JsonRpc10
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.running import Running, running

PIECES: Final = sorted(("A", "plan.", "A", "look.", "one", "two"))


class Held(Model):
    """A model that emits its first piece at once, and the others when the test sets `go_on`."""

    go_on: Any = None
    begun: Any = None

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        first = True
        async for piece in super()._astream(*args, **kwargs):
            yield piece
            if first:
                self.begun.set()
                await self.go_on.wait()
            first = False


def says(model: Model) -> Any:
    async def node(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return node


def drafting(go_on: asyncio.Event, begun: asyncio.Event, writes: str) -> dict[str, RegisteredAgent]:
    """Return an idempotent graph that plans, and then looks up and writes in parallel."""

    builder = new(State)
    builder.add_node("plan", says(Model(answers=[words("A plan. ")])))
    builder.add_node("look", says(Model(answers=[words("A look. ")])))
    builder.add_node("write", says(Held(answers=[words("one ", writes)], go_on=go_on, begun=begun)))
    builder.add_edge(START, "plan")
    for node in ("look", "write"):
        builder.add_edge("plan", node)
    return {"draft": RegisteredAgent(*wrap_graph(builder, "draft"), idempotent=True)}


@pytest.mark.parametrize("is_behind", [False, True], ids=["", "checkpoint behind the log"])
async def test_a_restart_repeats_only_the_interrupted_node(tmp_path: Path, is_behind: bool) -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()
    async with running(tmp_path, registered=drafting(go_on, begun, "never said")) as gateway:
        caller = LangGraph(gateway.http, "draft")
        async with caller.stream("go") as feed:
            await within(begun.wait(), "the node that writes")
            await feed.until(lambda view: "A look." in view.text and "one" in view.text)
        task_id = feed.ids.task
    if is_behind:
        forget_checkpoint(tmp_path / "gateway.db")
    go_on.set()
    async with running(tmp_path, registered=drafting(go_on, begun, "two")) as gateway:
        caller.http = gateway.http
        async with caller.replay(task_id) as whole:
            assert (await whole.end()).state == "completed"
        for protocol in (Acp, JsonRpc10, JsonRpc03, LangGraph, AgentProtocol):
            other = protocol(gateway.http, "draft")
            view = await other.look(task_id)
            assert sorted(view.text.split()) == PIECES, protocol.name
            async with other.replay(task_id) as whole:
                # LangGraph's readers learn from the next state which earlier messages still count.
                assert sorted((await whole.end()).text) == sorted(view.text)
        aief = Aief(gateway.http, "draft")
        assert sorted((await aief.look(task_id)).text.split()) == PIECES


def forget_checkpoint(database: Path) -> None:
    """Delete the graph's newest checkpoint, as if the gateway had been killed before it was stored.

    Graphs store their checkpoints in the background.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        (newest,) = connection.execute("SELECT max(checkpoint_id) FROM checkpoint WHERE ns = ''").fetchone()
        for table in ("checkpoint_write", "checkpoint"):
            assert connection.execute(f"DELETE FROM {table} WHERE checkpoint_id = ?", (newest,)).rowcount


class After(Model):
    """A model that emits its pieces once the test sets `go_on`."""

    go_on: Any = None

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        await self.go_on.wait()
        async for piece in super()._astream(*args, **kwargs):
            yield piece


def looking(go_on: asyncio.Event, begun: asyncio.Event) -> dict[str, RegisteredAgent]:
    """Return a graph that looks up while it writes. The lookup is stored before the step is over."""

    builder = new(State)
    builder.add_node("look", says(After(answers=[words("A ", "look. ")], go_on=begun)))
    builder.add_node("write", says(Held(answers=[words("one ", "two ")], go_on=go_on, begun=begun)))
    for node in ("look", "write"):
        builder.add_edge(START, node)
    return {"draft": RegisteredAgent(*wrap_graph(builder, "draft"), idempotent=True)}


def is_end(event: Event, name: str) -> bool:
    return isinstance(event, StepEnded) and event.name == name


def forget_end(database: Path, task_id: str, kind: str, words: str) -> None:
    """Delete the last event of a kind that contains the words, and all that follow it.

    The log then looks as if the gateway had been killed before it stored that event.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        ((thread,),) = connection.execute("SELECT thread_pk FROM task WHERE task_id = ?", (task_id,))
        rows = connection.execute("SELECT seq, body FROM event WHERE thread_pk = ? ORDER BY seq", (thread,))
        log = [(seq, lengthen(body).decode()) for seq, body in rows]
        needle = "" if kind == "message_ended" else words
        ends = [seq for seq, body in log if body.partition(f'"kind":"{kind}"')[1] and needle in body]
        assert ends, f"there is no {kind} of {words}"
        last = ends[-1]
        connection.execute("DELETE FROM event WHERE thread_pk = ? AND seq >= ?", (thread, last))


@pytest.mark.parametrize("kind", ["step_ended", "message_ended", "part_delta", "message_started"])
async def test_a_message_missing_in_the_log_is_restored(tmp_path: Path, kind: str) -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()
    async with running(tmp_path, registered=looking(go_on, begun)) as gateway:
        caller = LangGraph(gateway.http, "draft")
        async with caller.stream("go") as feed:
            await feed.until(lambda view: "A look." in view.text and "one" in view.text)
        task = await gateway.hub.reads.task("default", feed.ids.task)
        await follow(gateway.hub, Scope.task(task), until=lambda each: is_end(each.event, "look"), owner="default")
    forget_end(tmp_path / "gateway.db", task.task_id, kind, "look")
    go_on.set()
    async with running(tmp_path, registered=looking(go_on, begun)) as gateway:
        for protocol in (LangGraph, Acp, JsonRpc10, JsonRpc03, AgentProtocol):
            other = protocol(gateway.http, "draft")
            async with other.replay(task.task_id) as whole:
                await whole.end()
            view = await other.look(task.task_id)
            assert sorted(view.text.split()) == sorted(("A", "look.", "one", "two")), protocol.name
        texts = await stream_texts(gateway, task.thread_id)
        assert sorted(text for text in texts.values() if text in ("A look. ", "one two ")) == ["A look. ", "one two "]


async def stream_texts(gateway: Running, thread_id: str) -> dict[str, str]:
    """Return the texts of a thread's event stream, by message."""
    texts: dict[str, str] = {}
    body: JsonObject = {"channels": ["messages", "lifecycle"]}
    async with gateway.http.stream("POST", f"/threads/{thread_id}/stream", json=body) as stream:
        async for line in stream.aiter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            data = event["params"]["data"]
            if event["method"] == "lifecycle" and not event["params"]["namespace"] and data["event"] == "completed":
                break
            if data["event"] == "content-block-delta":
                texts[data["id"]] = texts.get(data["id"], "") + data["delta"]["text"]
    return texts
