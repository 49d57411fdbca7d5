"""LangGraph's `RemoteGraph`: graphs and agents of the gateway, used like graphs in the caller's process."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.pregel.remote import RemoteGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command
from langgraph_sdk import get_client

from babelgate.gateway import demo
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.behaviour.test_graph_platform import asking
from tests.gateway.graphs import GRAPHS
from tests.gateway.hubs import within
from tests.interop.langgraph.talk import user
from tests.running import Running, running

Remote = Callable[[str], RemoteGraph]
DRAWN = ("ask", "chat", "within")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[Running]:
    graphs = {name: RegisteredAgent(*wrap_graph(GRAPHS[name](), name)) for name in DRAWN}
    graphs["asking"] = RegisteredAgent(*wrap_graph(asking(), "asking"))
    async with running(tmp_path, {"stream": demo.stream}, registered=graphs) as gateway:
        yield gateway


@pytest.fixture
async def remote(gateway: Running) -> AsyncGenerator[Remote]:
    # RemoteGraph would never close a client that it creates itself.
    async with get_client(url=gateway.url) as client:
        yield lambda name: RemoteGraph(name, client=client)


async def thread(gateway: Running) -> Any:
    response = await gateway.http.post("/threads", json={})
    return {"configurable": {"thread_id": response.json()["thread_id"]}}


@pytest.mark.parametrize("name", ["chat", "stream"])
async def test_a_remote_graph_is_invoked_and_keeps_its_messages(gateway: Running, remote: Remote, name: str) -> None:
    graph, config = remote(name), await thread(gateway)
    first = await within(graph.ainvoke(user("one"), config), "the first turn")
    again: Any = await within(graph.ainvoke(user("two"), config), "the second")
    assert [message["type"] for message in again["messages"]] == ["human", "ai", "human", "ai"]
    assert again["messages"][:2] == first["messages"]
    state = await within(graph.aget_state(config), "the state")
    assert (state.values, state.next) == (again, ())
    states = [each async for each in graph.aget_state_history(config, limit=2)]
    assert states[0].values == again
    assert len(states) == 2


@pytest.mark.parametrize("name", ["chat", "stream"])
async def test_a_remote_graph_is_streamed_in_each_mode(remote: Remote, name: str) -> None:
    graph: Any = remote(name)
    for mode, shape in (("values", dict), ("updates", dict), ("messages", tuple), ("debug", dict), ("tasks", dict)):
        parts = [each async for each in graph.astream(user("a b"), stream_mode=mode)]
        assert parts, mode
        assert all(isinstance(each, shape) for each in parts), (mode, parts)
    both = [part[0] async for part in graph.astream(user("a b"), stream_mode=["values", "updates"])]
    assert set(both) >= {"values", "updates"}


async def test_a_remote_graph_asks_and_is_answered(gateway: Running, remote: Remote) -> None:
    graph, config = remote("ask"), await thread(gateway)
    paused: Any = await within(graph.ainvoke({}, config), "the question")
    (question,) = paused["__interrupt__"]
    state = await within(graph.aget_state(config), "the state")
    assert state.next
    assert [each.id for task in state.tasks for each in task.interrupts] == [question["id"]]
    answered: Any = await within(graph.ainvoke(Command(resume="Ada"), config), "the answer")
    assert "Ada" in str(answered)
    assert "__interrupt__" not in answered


async def test_tasks_of_a_remote_graph_have_the_states_of_subgraphs(gateway: Running, remote: Remote) -> None:
    graph, config = remote("asking"), await thread(gateway)
    await within(graph.ainvoke({"run_config": "outside"}, config), "the question")
    state = await within(graph.aget_state(config, subgraphs=True), "the state")
    (task,) = state.tasks
    inner: Any = task.state
    assert (inner.values, inner.next) == ({"run_config": "inside"}, ("ask",))
    assert inner.config["configurable"]["checkpoint_ns"].startswith("inner:")
    whole = await within(graph.aget_state(inner.config), "the state of the subgraph")
    assert whole.values == inner.values
    assert await within(graph.ainvoke(Command(resume="yes"), config), "the answer") == {
        "run_config": "inside",
        "answer": "yes",
    }


async def test_the_state_of_a_remote_graph_is_changed(gateway: Running, remote: Remote) -> None:
    graph, config = remote("chat"), await thread(gateway)
    await within(graph.ainvoke(user("one"), config), "a turn")
    await within(graph.aupdate_state(config, user("told later")), "the update")
    state = await within(graph.aget_state(config), "the state")
    assert state.values["messages"][-1]["content"] == "told later"


async def test_a_remote_graph_is_drawn_like_the_local_one(remote: Remote) -> None:
    here, there = GRAPHS["within"](), remote("within")
    here = here.compile() if hasattr(here, "compile") else here
    for xray in (False, True, 1):
        expected = await here.aget_graph(xray=xray)
        drawn = await within(there.aget_graph(xray=xray), "the graph")
        assert set(drawn.nodes) == set(expected.nodes)
        assert {(e.source, e.target, e.conditional) for e in drawn.edges} == {
            (e.source, e.target, e.conditional) for e in expected.edges
        }
    assert "inner:middle:deepest" in (await within(there.aget_graph(xray=True), "the graph")).nodes


async def test_subgraphs_publish_their_schemas(gateway: Running) -> None:
    async with get_client(url=gateway.url) as client:
        (assistant,) = await client.assistants.search(graph_id="within")
        assistant_id = assistant["assistant_id"]
        outer: Any = await client.assistants.get_subgraphs(assistant_id)
        assert list(outer) == ["inner"]
        assert outer["inner"]["input_schema"]["properties"].keys() == {"items"}
        assert list(await client.assistants.get_subgraphs(assistant_id, recurse=True)) == ["inner", "inner|middle"]
        middle: Any = await client.assistants.get_subgraphs(assistant_id, namespace="inner|middle", recurse=True)
        assert list(middle) == ["inner|middle"]
        assert await client.assistants.get_subgraphs(assistant_id, namespace="nowhere") == {}
