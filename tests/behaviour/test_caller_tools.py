"""Graphs that end on the call of a caller's tool: every protocol shows the call and accepts its result.

Tests of agents that ask for a tool are in `tests/pairs`.
"""

import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, TypedDict

import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph.message import add_messages  # pyright: ignore[reportMissingTypeStubs]

from babelgate.adapters.langchain.codec.caller_tools import DECLINED, decode_call, encode_tool_message, find_unanswered
from babelgate.canonical.event import InterruptAnswered
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

FUNCTION: Final = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
TOOL: Final = {"type": "function", "function": FUNCTION}


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    tools: list[Any]


async def end_on_call(state: State) -> State:
    """End the graph with the call, as AG-UI does. The graph runs again with the result."""
    last = state.get("messages", [])[-1]
    if last.type == "tool":
        return {"messages": [AIMessage(f"{last.name}: {last.content}")]}
    other: Any = {"name": "own", "args": {}, "id": "call_8"}
    return {"messages": [AIMessage("", tool_calls=[other, {"name": "weather", "args": {"city": "Paris"}, "id": "c9"}])]}


def ending() -> RegisteredAgent:
    builder: Any = StateGraph(State)
    builder.add_node("call", end_on_call)
    builder.add_edge(START, "call")
    builder.add_edge("call", END)
    return RegisteredAgent(*wrap_graph(builder.compile(), "ending"))


AGENTS: Final = ("ending", "ended")
"""Names of the agents: `ending` is the graph in the gateway's process, and `ended` the same graph on a LangGraph
server."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    behind, folder = tmp_path_factory.mktemp("behind"), tmp_path_factory.mktemp("front")
    async with running(behind, registered={"ending": ending()}) as server:
        ended = {"url": server.url, "protocol": "langgraph", "agent": "ending"}
        registry = await connect(Settings.model_validate({"agents": {"ended": ended}}))
        async with running(folder, registered={"ending": ending(), "ended": registry.get("ended")}) as front:
            yield front


@pytest.mark.parametrize("agent", AGENTS)
async def test_chat_completions_call_a_tool_and_take_its_result(gateway: Running, agent: str) -> None:
    body = {"model": agent, "messages": [{"role": "user", "content": "go"}], "tools": [TOOL], "store": True}
    (choice,) = (await gateway.http.post("/v1/chat/completions", json=body)).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("weather", {"city": "Paris"})
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    answer = await gateway.http.post("/v1/chat/completions", json={**body, "messages": [result]})
    assert answer.json()["choices"][0]["message"]["content"] == "weather: rain"


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_minimal_runtime_shows_the_call_as_a_part(gateway: Running, agent: str) -> None:
    run = (await gateway.http.post("/v1/runs", json={"assistant_id": agent, "input": "go", "tools": [FUNCTION]})).json()
    (question,) = run["interrupt_state"]
    (part,) = [each for each in question["message"]["parts"] if each["kind"] == "tool_call"]
    assert (part["name"], json.loads(part["arguments"]), part["side"]) == ("weather", {"city": "Paris"}, "caller")
    assert question["value"] == {"name": "weather", "arguments": {"city": "Paris"}, "call_id": part["call_id"]}
    done = await gateway.http.post(
        f"/v1/threads/{run['thread_id']}/resume", json={"input": "rain", "tools": [FUNCTION]}
    )
    assert done.json()["output"]["messages"][-1]["parts"][0]["text"] == "weather: rain"


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("agent", AGENTS)
async def test_langgraph_clients_receive_a_headless_tool(gateway: Running, agent: str, bare: bool) -> None:
    thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    body = {
        "assistant_id": agent,
        "input": {"messages": [{"role": "user", "content": "go"}]},
        "config": {"configurable": {"tools": [TOOL]}},
    }
    stopped = (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=body)).json()
    (question,) = stopped["__interrupt__"]
    called = question["value"]["tool_call"]
    assert question["value"] == {"type": "tool", "tool_call": {**called, "name": "weather", "args": {"city": "Paris"}}}
    answer: Any = "rain" if bare else {called["id"]: "rain"}
    resume = {"assistant_id": agent, "command": {"resume": answer}, "config": body["config"]}
    done = (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=resume)).json()
    assert done["messages"][-1]["content"].endswith(": rain")
    assert [each["content"] for each in done["messages"] if each["type"] == "human"] == ["go"]


async def test_a_graph_that_calls_an_undeclared_tool_has_ended(gateway: Running) -> None:
    thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    body = {"assistant_id": "ending", "input": {"messages": [{"role": "user", "content": "go"}]}}
    done = (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=body)).json()
    assert "__interrupt__" not in done
    assert [call["name"] for call in done["messages"][-1]["tool_calls"]] == ["own", "weather"]


async def test_a_declined_call_becomes_a_tool_error(gateway: Running) -> None:
    calls = find_unanswered([{"type": "ai", "tool_calls": [{"name": "weather", "args": {}, "id": "c9"}]}], {"weather"})
    assert [call.call_id for call in calls] == ["c9"]
    declined = InterruptAnswered(interrupt_id="call-c9", action="decline")
    message = encode_tool_message({"call_id": "c9", "name": "weather"}, declined)
    assert (message["tool_call_id"], message["status"], message["content"]) == ("c9", "error", DECLINED)


@pytest.mark.parametrize(
    "value", [{"type": "tool"}, {"type": "tool", "tool_call": {"id": 7, "name": "x"}}, {"type": "tool", "tool_call": 1}]
)
async def test_an_incomplete_call_is_an_ordinary_question(value: Any) -> None:
    assert decode_call(value) is None
