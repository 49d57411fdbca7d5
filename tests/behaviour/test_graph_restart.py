"""Graphs that a restart cuts off: they go on from what they kept, and do again what they had not finished."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import START  # pyright: ignore[reportMissingTypeStubs]

from gateway.agents.langgraph.agent import front
from gateway.fronted import Fronted
from tests.gateway.graphs import Model, State, new, words
from tests.gateway.hubs import within
from tests.pairs.a2a import JsonRpc03, JsonRpc10
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.running import running

SAID: Final = sorted(("A", "plan.", "A", "look.", "one", "two"))


class Held(Model):
    """Says its first piece, and the others when it is let go on."""

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


def drafting(go_on: asyncio.Event, begun: asyncio.Event, writes: str) -> dict[str, Fronted]:
    """Plans, then looks up and writes side by side, and is idempotent."""

    def says(model: Model) -> Any:
        async def node(state: State) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        return node

    made = new(State)
    made.add_node("plan", says(Model(answers=[words("A plan. ")])))
    made.add_node("look", says(Model(answers=[words("A look. ")])))
    made.add_node("write", says(Held(answers=[words("one ", writes)], go_on=go_on, begun=begun)))
    made.add_edge(START, "plan")
    for node in ("look", "write"):
        made.add_edge("plan", node)
    return {"draft": Fronted(*front(made, "draft"), idempotent=True)}


async def test_of_a_graph_that_goes_on_after_a_restart_only_the_node_that_was_cut_off_is_taken_back(
    tmp_path: Path,
) -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()
    async with running(tmp_path, fronted=drafting(go_on, begun, "never said")) as gateway:
        caller = LangGraph(gateway.http, "draft")
        async with caller.stream("go") as feed:
            await within(begun.wait(), "the node that writes")
            await feed.until(lambda seen: "A look." in seen.text and "one" in seen.text)
        task_id = feed.ids.task
    go_on.set()
    async with running(tmp_path, fronted=drafting(go_on, begun, "two")) as gateway:
        caller.http = gateway.http
        async with caller.replay(task_id) as whole:
            assert (await whole.end()).state == "completed"
        for protocol in (Acp, JsonRpc10, JsonRpc03, LangGraph, AgentProtocol):
            other = protocol(gateway.http, "draft")
            seen = await other.look(task_id)
            assert sorted(seen.text.split()) == SAID, protocol.name
            async with other.replay(task_id) as whole:
                # LangGraph's readers are told by the next state what stands of before.
                assert sorted((await whole.end()).text) == sorted(seen.text)
        aief = Aief(gateway.http, "draft")
        assert sorted((await aief.look(task_id)).text.split()) == SAID
