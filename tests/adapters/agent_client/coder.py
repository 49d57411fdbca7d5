"""Client for the scripted coding agent in processes, without a gateway in front of it."""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from babelgate.adapters.agent_client.client import Client
from babelgate.canonical import Event, FilePart, InterruptAnswered, InterruptRaised, Invocation, Message, RunInput
from babelgate.canonical.event import PartDelta, UpstreamBound
from babelgate.gateway.agents.processes.programs import ProgramProcesses, ProgramSpec, rules_of
from babelgate.gateway.settings.model import AgentSettings
from tests.adapters.agent_client import scripted


def settings_of(folder: Path, *arguments: str, **settings: Any) -> dict[str, Any]:
    """Return the settings of the scripted agent in a folder."""
    command = [sys.executable, "-I", "-S", scripted.__file__, *arguments]
    return {"protocol": "agent-client", "command": command, "cwd": str(folder)} | settings


@dataclass
class Coder:
    """Caller of an agent, which stores what a gateway would store of each thread."""

    client: Client
    upstream: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """Id of the newest task of each thread."""

    def call(self, text: str | Message, thread: str = "t", **members: Any) -> Invocation:
        """Return the invocation for the next input of a thread."""
        self.tasks[thread] = str(uuid4())
        message = Message.of(text, "user") if isinstance(text, str) else text
        return self._call(thread, input=RunInput(messages=(message,)), **members)

    def _call(self, thread: str, **members: Any) -> Invocation:
        upstream = self.upstream.get(thread, {})
        ids: Mapping[str, Any] = {"thread_id": thread, "task_id": self.tasks[thread], "run_id": str(uuid4())}
        return Invocation(agent="coder", upstream=upstream, **{**ids, **members})

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        async with aclosing(self.client.run(call)) as events:
            async for event in events:
                if isinstance(event, UpstreamBound):
                    self.upstream[call.thread_id] = event.ids
                yield event

    async def say(self, text: str | Message, thread: str = "t", **members: Any) -> list[Event]:
        """Return the events of a run with an input."""
        return [event async for event in self.run(self.call(text, thread, **members))]

    async def answer(self, questions: Sequence[InterruptRaised], *values: Any, thread: str = "t") -> list[Event]:
        """Return the events of the run that answers questions with these values, in the order of the questions. The
        value `DECLINED` declines a question."""
        answers = tuple(
            InterruptAnswered(interrupt_id=each.interrupt_id or "", action="decline")
            if value is DECLINED
            else InterruptAnswered(interrupt_id=each.interrupt_id or "", value=value)
            for each, value in zip(questions, values, strict=True)
        )
        call = self._call(thread, cause="answer", answers=answers)
        return [event async for event in self.run(call)]


DECLINED = object()
"""Value for `Coder.answer` that declines a question."""


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, PartDelta))


def of_kind(kind: Any, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def file_message(name: str, media_type: str, content: bytes) -> Message:
    return Message(role="user", parts=(FilePart(name=name, media_type=media_type, inline=content),))


@asynccontextmanager
async def coding(folder: Path, *arguments: str, **settings: Any) -> AsyncGenerator[Coder]:
    """Open a scripted agent with these settings."""
    agent = AgentSettings.model_validate(settings_of(folder, *arguments, **settings))
    client = Client("coder", ProgramProcesses("coder", ProgramSpec.of(agent)), rules_of(agent))
    try:
        yield Coder(client)
    finally:
        await client.aclose()
