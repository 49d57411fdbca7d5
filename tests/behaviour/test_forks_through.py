"""Forks through a chain of gateways, over each protocol.

A LangGraph caller continues from an older state of a graph behind another gateway. The graph itself continues from
there, with its full state.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _add(before: list[str] | None, now: list[str]) -> list[str]:
    return [*(before or []), *now]


class State(MessagesState):
    texts: Annotated[list[str], _add]
    note: str


def _remembering() -> RegisteredAgent:
    """Return a graph whose state holds values that are in no message."""

    def node(state: State) -> dict[str, Any]:
        words = str(state["messages"][-1].content)
        summary = f"{len(state['messages'])} messages, {','.join(state.get('texts') or [])}, {state.get('note', '')}"
        return {"messages": [AIMessage(summary, id=str(uuid4()))], "texts": [words]}

    builder: Any = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return RegisteredAgent(*wrap_graph(builder, "g"))


HOPS: Final = {
    "a2a": "/a2a/g",
    "acp": "/acp",
    "aief": "/agent/g",
    "langgraph": "",
    "agent-protocol": "/agent-protocol",
    "openai": "/v1",
}


@dataclass(frozen=True)
class Chain:
    front: httpx.AsyncClient
    behind: httpx.AsyncClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chain]:
    async with running(tmp_path_factory.mktemp("behind"), registered={"g": _remembering()}) as behind:
        agents = {
            name: {
                "url": f"{behind.url}{path}",
                "protocol": name,
                **({} if name in ("a2a", "aief") else {"agent": "g"}),
            }
            for name, path in HOPS.items()
        }
        async with running(tmp_path_factory.mktemp("front"), configured=agents) as front:
            yield Chain(front.http, behind.http)


async def _say(chain: Chain, hop: str, thread_id: str, words: str, **more: Any) -> str:
    body = {"assistant_id": hop, "input": {"messages": [{"role": "user", "content": words}]}, **more}
    values = (await chain.front.post(f"/threads/{thread_id}/runs/wait", json=body)).raise_for_status().json()
    return str(values["messages"][-1]["content"])


@pytest.mark.parametrize("hop", HOPS)
async def test_a_graph_behind_continues_from_an_older_state(chain: Chain, hop: str) -> None:
    thread_id = (await chain.front.post("/threads", json={})).json()["thread_id"]
    assert await _say(chain, hop, thread_id, "one") == "1 messages, , "
    history = (await chain.front.get(f"/threads/{thread_id}/history")).json()
    checkpoint = history[0]["checkpoint"]["checkpoint_id"]
    assert await _say(chain, hop, thread_id, "two") == "3 messages, one, "
    assert await _say(chain, hop, thread_id, "three", checkpoint_id=checkpoint) == "3 messages, one, "
    assert await _say(chain, hop, thread_id, "four") == "5 messages, one,three, "
    change = {"values": {"note": "noted"}}
    (await chain.front.post(f"/threads/{thread_id}/state", json=change)).raise_for_status()
    assert await _say(chain, hop, thread_id, "five") == "7 messages, one,three,four, noted"
