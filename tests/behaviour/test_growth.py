"""Storage growth of a long conversation: linear in the text, not quadratic."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from babelgate.gateway.agents.langgraph.agent import wrap_graph
from tests.gateway.graphs import State, builder
from tests.gateway.platform import Caller
from tests.running import running

pytestmark = pytest.mark.slow

TURNS: Final = 20
LINEAR: Final = 1.35
"""Maximum growth of a conversation's second half, relative to its first half.

The growth is stepped, because a growing value is stored in full from time to time. If each turn stored the whole text
again, the factor would be 3.
"""
QUESTION: Final = "What is there to be said of it? " * 20


def answering() -> Any:
    def answer(_: State, config: RunnableConfig) -> Any:
        return {"messages": [AIMessage(QUESTION)]}

    return builder(State, {"answer": answer})


def size(folder: Path) -> int:
    """Return the size of all values in the database, in bytes."""
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = 0
        for table in tables:
            columns = [name for (_, name, *_) in database.execute(f"PRAGMA table_info({table})")]
            lengths = " + ".join(f"coalesce(length(CAST({name} AS BLOB)), 0)" for name in columns)
            found += database.execute(f"SELECT coalesce(sum({lengths}), 0) FROM {table}").fetchone()[0]
        return found


async def converse(caller: Caller, measure: Callable[[], int], agent: str, **options: Any) -> tuple[list[int], Any]:
    """Return the growth during each half of a conversation, and the state at its end."""
    thread_id = await caller.thread()
    sizes = [measure()]
    for turn in range(2 * TURNS):
        message = {"messages": [{"role": "user", "content": f"{turn}: {QUESTION}"}]}
        await caller.wait(thread_id, agent, message, **options)
        if turn + 1 in (TURNS, 2 * TURNS):
            sizes.append(measure())
    state = await caller.get(f"/threads/{thread_id}/state")
    return [after - before for before, after in pairwise(sizes)], state


@pytest.mark.parametrize("options", [{}, {"durability": "exit"}, {"stream_mode": ["values", "tasks"]}], ids=str)
async def test_a_conversation_with_a_graph_grows_linearly(tmp_path: Path, options: dict[str, Any]) -> None:
    async with running(tmp_path, {"chat": wrap_graph(answering(), "chat")[1]}) as gateway:
        (first, second), state = await converse(Caller(gateway), lambda: size(tmp_path), "chat", **options)
        assert second < LINEAR * first
        assert len(state["values"]["messages"]) == 4 * TURNS


async def test_a_conversation_with_a_graph_server_grows_linearly(
    tmp_path: Path,
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    async with running(there, {"chat": wrap_graph(answering(), "chat")[1]}) as behind:
        configured = {"chat": {"protocol": "langgraph", "url": behind.url, "agent": "chat"}}
        async with running(here, configured=configured) as gateway:
            (first, second), state = await converse(Caller(gateway), lambda: size(here), "chat")
            assert second < LINEAR * first
            assert len(state["values"]["messages"]) == 4 * TURNS
