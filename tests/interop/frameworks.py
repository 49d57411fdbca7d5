"""What agents of other frameworks say behind the gateway, and what the callers of every protocol are told of it.

Each agent thinks, looks at the weather with a tool of its own and says what it gave. `Agent` says how much of that its
framework lets anybody outside know.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from babelgate.canonical import Feature
from tests.interop.driver import start_server
from tests.pairs.a2a import A2A, JsonRpc03, JsonRpc10
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.caller import Caller, TaskView, recording
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.pairs.mcp import Mcp
from tests.pairs.openai import Chat, Responses
from tests.pairs.runtime import Runtime
from tests.running import Running, running

CALLERS: Final[tuple[type[Caller], ...]] = (
    *(Acp, JsonRpc03, JsonRpc10, Aief, LangGraph, AgentProtocol, Runtime, Chat, Responses, Mcp),
)
"""One of each protocol, in each of its generations."""

THOUGHT: Final = "I should look."
ANSWER: Final = "It gave 21 degrees"


@dataclass(frozen=True)
class Agent:
    """One on the server of a framework, and what of its doings it tells."""

    name: str
    path: str
    """Below the server's URL."""
    word: str = "weather"
    """What it is asked."""
    answer: str = ANSWER
    data: Any = None
    """In the place of the words."""
    data_in_a2a: Any = None
    """As callers of A2A are shown it: as it came."""
    thinks: bool = False
    calls: Sequence[str] = ()
    """Words of what it tells of its tool."""
    counts: int | None = None
    """How many tokens it read."""
    cites: str = ""
    asks: str = ""
    """What it wants to know first."""
    own_words: str = ""
    """As which callers of A2A are shown that, beside what is no text."""
    gets: str = "yes"
    """The answer to that."""
    in_status: Sequence[str] = ()
    """The pieces of an answer in the messages of its status: so callers of A2A are shown it, and as no artifact."""
    on_the_way: str = ""
    """What is told as progress, because nothing marked it as the answer yet."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def configured(self) -> dict[str, Any]:
        return {"protocol": "a2a", "headers": dict(self.headers)}


async def check(agent: Agent, caller: Caller) -> None:
    """By a stream where there is one: what is thought, done and cost is told there, or with the answer."""
    told = bytearray()
    async with recording(caller, told):
        if agent.asks:
            asked = await caller.send(agent.word)
            _check_question(agent, caller, asked)
            seen = [await caller.answer(asked, agent.gets)]
        elif isinstance(caller, Chat):  # a stream of which tells no usage, if nobody asks for it
            seen = await caller.run_in_each_way(agent.word)
        else:
            seen = [await caller.run_to_end(agent.word)]
        if agent.calls and isinstance(caller, LangGraph):
            await _watch_tasks(caller, agent.word)
    for each in seen:
        _check_answer(agent, caller, each)
    expected = {
        Feature.TEXT: agent.in_status if isinstance(caller, A2A) else (),
        Feature.TOOL_ACTIVITY: agent.calls[:1] if isinstance(caller, Mcp) else agent.calls,
        Feature.USAGE: () if agent.counts is None else (str(agent.counts),),
        Feature.CITATION: (agent.cites,),
    }
    for feature, words in expected.items():
        if caller.carries[feature].level != "dropped":
            missing = [word for word in words if word.encode() not in told]
            assert not missing, (feature, missing, told.decode(errors="replace"))


def _check_question(agent: Agent, caller: Caller, asked: TaskView) -> None:
    assert asked.state == "input_required"
    words = [each.text for each in asked.questions]
    if isinstance(caller, A2A):
        assert words and (agent.own_words in words or not agent.own_words), words
    else:
        assert words == [agent.asks]


async def _watch_tasks(caller: LangGraph, word: str) -> None:
    """A tool is a task there, and no part of the state."""
    asked = {"assistant_id": caller.agent, "input": {"messages": [{"role": "user", "content": word}]}}
    answer = await caller.http.post(f"{caller.prefix}/runs/stream", json={**asked, "stream_mode": ["debug"]})
    assert answer.status_code == 200


def _check_answer(agent: Agent, caller: Caller, seen: TaskView) -> None:
    assert seen.state == "completed", seen
    if isinstance(caller, A2A) and agent.in_status:
        assert (seen.text, seen.data) == ("", ()), seen
        return
    data = agent.data_in_a2a if isinstance(caller, A2A) else agent.data
    expected = (agent.answer, ()) if data is None else ("", (data,))
    assert (seen.text, seen.data) == expected, seen
    if isinstance(caller, A2A):
        assert not agent.thinks or agent.asks or THOUGHT in seen.asides, seen
    elif not agent.asks and caller.carries[Feature.REASONING].level != "dropped":
        asides = "".join(seen.asides)
        assert asides == (THOUGHT if agent.thinks else "") or asides == agent.on_the_way, seen


class Stage:
    """The server of one framework at a time, and a gateway in front of it."""

    def __init__(self, tmp: pytest.TempPathFactory) -> None:
        self._tmp = tmp
        self._stack = AsyncExitStack()
        self._now: tuple[str, Running] | None = None

    async def of(self, peer: str, agents: Sequence[Agent]) -> Running:
        if self._now is None or self._now[0] != peer:
            await self.close()
            server = await self._stack.enter_async_context(start_server(peer, gated=False))
            configured = {each.name: {**each.configured, "url": server.url + each.path} for each in agents}
            gateway = running(self._tmp.mktemp("gateway"), configured=configured)
            self._now = peer, await self._stack.enter_async_context(gateway)
        return self._now[1]

    async def close(self) -> None:
        self._now = None
        await self._stack.aclose()
