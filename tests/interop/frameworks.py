"""Agents of other frameworks behind the gateway, and the check of what callers of every protocol receive from them.

Each agent thinks, calls its weather tool and answers with the result. `Agent` lists how much of that its framework
makes public.
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
"""One caller for each version of each protocol."""

THOUGHT: Final = "I should look."
ANSWER: Final = "It gave 21 degrees"


@dataclass(frozen=True)
class Agent:
    """An agent on the server of a framework, and the output expected from it."""

    name: str
    path: str
    """Path below the server's URL."""
    word: str = "weather"
    """Text of the request."""
    answer: str = ANSWER
    data: Any = None
    """Data of the answer, instead of text."""
    data_in_a2a: Any = None
    """Data of the answer as A2A callers receive it: unchanged."""
    thinks: bool = False
    calls: Sequence[str] = ()
    """Words that the agent's reports of its tool call contain."""
    counts: int | None = None
    """Number of input tokens that the agent reports. None if it reports no usage."""
    cites: str = ""
    question: str = ""
    """Question that the agent asks before it answers. Empty if it asks none."""
    a2a_question: str = ""
    """Text of that question for A2A callers, who also receive its data."""
    reply: str = "yes"
    """The caller's answer to the question."""
    in_status: Sequence[str] = ()
    """Pieces of an answer that it puts into status messages. A2A callers receive them there, and no artifact."""
    progress: str = ""
    """Text that arrives as progress, because the agent had not marked it as the answer yet."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def configured(self) -> dict[str, Any]:
        return {"protocol": "a2a", "headers": dict(self.headers)}


async def check(agent: Agent, caller: Caller) -> None:
    """Check the answer of the agent, and its thoughts, tool calls and usage. Use a stream if the protocol has one."""
    received = bytearray()
    async with recording(caller, received):
        if agent.question:
            paused = await caller.send(agent.word)
            _check_question(agent, caller, paused)
            outcomes = [await caller.answer(paused, agent.reply)]
        elif isinstance(caller, Chat):  # its stream has no usage unless the caller requests it
            outcomes = await caller.run_in_each_way(agent.word)
        else:
            outcomes = [await caller.run_to_end(agent.word)]
        if agent.calls and isinstance(caller, LangGraph):
            await _watch_tasks(caller, agent.word)
    for outcome in outcomes:
        _check_answer(agent, caller, outcome)
    expected = {
        Feature.TEXT: agent.in_status if isinstance(caller, A2A) else (),
        Feature.TOOL_ACTIVITY: agent.calls[:1] if isinstance(caller, Mcp) else agent.calls,
        Feature.USAGE: () if agent.counts is None else (str(agent.counts),),
        Feature.CITATION: (agent.cites,),
    }
    for feature, words in expected.items():
        if caller.carries[feature].level != "dropped":
            missing = [word for word in words if word.encode() not in received]
            assert not missing, (feature, missing, received.decode(errors="replace"))


def _check_question(agent: Agent, caller: Caller, paused: TaskView) -> None:
    assert paused.state == "input_required"
    words = [each.text for each in paused.questions]
    if isinstance(caller, A2A):
        assert words and (agent.a2a_question in words or not agent.a2a_question), words
    else:
        assert words == [agent.question]


async def _watch_tasks(caller: LangGraph, word: str) -> None:
    """Stream the debug events, where LangGraph shows a tool call as a task. The state does not contain it."""
    request = {"assistant_id": caller.agent, "input": {"messages": [{"role": "user", "content": word}]}}
    answer = await caller.http.post(f"{caller.prefix}/runs/stream", json={**request, "stream_mode": ["debug"]})
    assert answer.status_code == 200


def _check_answer(agent: Agent, caller: Caller, outcome: TaskView) -> None:
    assert outcome.state == "completed", outcome
    if isinstance(caller, A2A) and agent.in_status:
        assert (outcome.text, outcome.data) == ("", ()), outcome
        return
    data = agent.data_in_a2a if isinstance(caller, A2A) else agent.data
    expected = (agent.answer, ()) if data is None else ("", (data,))
    assert (outcome.text, outcome.data) == expected, outcome
    if isinstance(caller, A2A):
        assert not agent.thinks or agent.question or THOUGHT in outcome.asides, outcome
    elif not agent.question and caller.carries[Feature.REASONING].level != "dropped":
        asides = "".join(outcome.asides)
        assert asides == (THOUGHT if agent.thinks else "") or asides == agent.progress, outcome


class Stage:
    """Server of one framework at a time, with a gateway in front of it."""

    def __init__(self, tmp: pytest.TempPathFactory) -> None:
        self._tmp = tmp
        self._stack = AsyncExitStack()
        self._now: tuple[str, Running] | None = None

    async def open(self, peer: str, agents: Sequence[Agent]) -> Running:
        """Return the gateway in front of the peer's agents, and start it if another peer is running."""
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
