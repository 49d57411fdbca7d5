"""Forks through a second gateway: a graph behind it continues from an older state, with all members of that state."""

import pytest

from tests.pairs.graph import REMEMBER
from tests.pairs.house import HOUSES, House
from tests.pairs.langgraph import LangGraph

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("caller", [(LangGraph, REMEMBER)], indirect=True, ids=["langgraph"])
@pytest.mark.parametrize("house", [name for name in HOUSES if name.endswith("-extended")], indirect=True)
async def test_a_graph_behind_continues_from_an_older_state(house: House, caller: LangGraph) -> None:
    first = await caller.send("one")
    assert first.text == "1 messages, , "
    assert (await caller.send("two")).text == "3 messages, one, "
    await caller.branch(first)
    assert (await caller.send("three")).text == "3 messages, one, "
    assert (await caller.send("four")).text == "5 messages, one,three, "
    await caller.change({"note": "noted"})
    assert (await caller.send("five")).text == "7 messages, one,three,four, noted"
