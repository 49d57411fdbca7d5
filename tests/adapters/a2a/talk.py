"""Dialogues with agents that need the upstream ids of the task and the context."""

from dataclasses import replace
from typing import Any

from babelgate.canonical import Agent, Invocation, Message
from babelgate.canonical.event import Cause, UpstreamBound
from babelgate.conformance.contract import Dialogue


class Talk(Dialogue):
    """A dialogue whose calls carry the upstream ids."""

    def call(self, content: str | Message | dict[str, Any] = "", cause: Cause = "input") -> Invocation:
        call = super().call(content, cause)
        ids: dict[str, str] = {}
        for record in self.records:
            if isinstance(record.event, UpstreamBound):
                ids |= record.event.ids
        if cause == "input":
            ids.pop("task", None)
        return replace(call, upstream=ids, history=())


class Reminded:
    """An agent that reads the upstream ids from the log, so that a plain dialogue can call it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def run(self, call: Invocation) -> Any:
        ids: dict[str, str] = {}
        for record in await call.past():
            if isinstance(record.event, UpstreamBound):
                ids |= record.event.ids
        events: Any = self._agent.run(replace(call, upstream=ids, history=()))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
