"""Graph that runs in a separate process: it stores its state in the gateway, and callers can read and change it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

from babelgate.canonical.agent import Invocation
from babelgate.canonical.event import Event, StateSaved
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.call_data import GraphData
from babelgate.gateway.agents.processes.agent import ProcessAgent
from babelgate.gateway.agents.processes.frames import (
    CallData,
    DescribeGraph,
    EventFrame,
    FirstFrame,
    GraphDescribed,
    UpdateState,
)

_ANSWER: Final = 60.0
"""Maximum duration of a state update or of a description, in seconds. Chosen: a graph that blocks its process must not
keep the caller waiting."""


class GraphProcess:
    """Agent that is a graph in a separate process (`babelgate.canonical.agent.Stateful` and `Introspectable`)."""

    def __init__(self, process: ProcessAgent) -> None:
        """Create the agent of a process that is open."""
        self._process = process

    def attach(self, data: GraphData) -> None:
        self._process.data = data

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the events of a run. Raises as `ProcessAgent.run` does."""
        return self._process.run(call)

    def forget(self, owner: str, task_id: str) -> None:
        """Do nothing: a paused graph has no state in its process."""

    async def aclose(self) -> None:
        await self._process.aclose()

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """Change the graph's state, and return the new revision. Raises invalid if the graph refuses the change, and
        agent_failed."""
        answer = await self._answer(UpdateState(CallData.of(call), tuple(removed_ids), as_node), call)
        if isinstance(answer, EventFrame) and isinstance(answer.event, StateSaved):
            return answer.event
        raise self._no_answer()

    async def draw(self, depth: int | bool) -> JsonObject | None:
        """Return the nodes and edges of the graph, or None if it cannot be drawn. Raises agent_failed."""
        return await self._describe(DescribeGraph(depth=depth))

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        """Return the schemas of the subgraphs by namespace, or None if the graph cannot list them. Raises
        agent_failed."""
        return await self._describe(DescribeGraph(namespace=namespace, recurse=recurse))

    async def _describe(self, request: DescribeGraph) -> JsonObject | None:
        answer = await self._answer(request)
        return answer.description if isinstance(answer, GraphDescribed) else None

    async def _answer(self, request: FirstFrame, call: Invocation | None = None) -> EventFrame | GraphDescribed | None:
        """Return the only answer of the process to a request. Raises agent_failed if it does not come in time."""
        try:
            async with asyncio.timeout(_ANSWER), aclosing(self._process.exchange(request, call)) as frames:
                answers = [frame async for frame in frames]
        except TimeoutError:
            raise self._no_answer() from None
        return answers[0] if answers else None

    def _no_answer(self) -> FaultError:
        name = self._process.name
        return FaultError(FaultCode.AGENT_FAILED, f"The process of agent {name} did not answer within {_ANSWER:g} s.")
