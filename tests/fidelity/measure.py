"""How much of a feature arrives: an agent says it behind a real server, and the same protocol's client reads it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

import msgspec

from babelgate.adapters import ADAPTERS
from babelgate.adapters.a2a.agents.interface import Interface
from babelgate.adapters.a2a.client import Client as A2a
from babelgate.adapters.acp.carries import EXTENDED as ACP
from babelgate.adapters.acp.client import Client as Acp
from babelgate.adapters.aief.carries import EXTENDED as AIEF
from babelgate.adapters.aief.client import Client as Aief
from babelgate.adapters.kit.upstream import Client
from babelgate.adapters.langchain.client import Client as LangChain
from babelgate.adapters.openai.client import Client as OpenAI
from babelgate.canonical import (
    FULL,
    AgentInfo,
    Event,
    Fault,
    FaultError,
    Feature,
    FilePart,
    Invocation,
    Message,
    RunInput,
    RunReason,
    RunStatus,
    TextPart,
)
from babelgate.canonical.event import ArtifactAdded, PartAdded, PartDelta, RunEnded, UpstreamBound
from babelgate.gateway.registered_agent import RegisteredAgent
from docs.pairing import AGENTS, EXTENDED_SERVERS, SERVERS, Side
from tests.fidelity.probe import PROBES, TRACES, Heard, Probe
from tests.fidelity.unserved import McpReader, RuntimeReader
from tests.running import Running, running

BOUND: Final = 60.0
"""Seconds for one run."""
SHORT: Final = 0.5
"""Seconds that an agent waits to be heard where that is declared not to happen before it is done."""

Level = Literal["full", "lossy", "dropped"]


@dataclass(frozen=True)
class Way:
    """A protocol, there and back."""

    client: Callable[[str, str], Client]
    """Of an agent of the gateway at the URL."""
    server: Side
    reader: Side | None = None
    """What is declared of agents behind such a server, where that is another table."""

    def declared(self, feature: Feature) -> Level:
        levels = {self.server.carries[feature].level, (self.reader or self.server).carries[feature].level}
        return "dropped" if "dropped" in levels else "lossy" if "lossy" in levels else "full"


def _a2a(version: Literal["0.3", "1.0"], url: str, agent: str, *, extended: bool = False) -> Client:
    return A2a("", agent, interface=Interface(f"{url}/a2a/{agent}", version, extended=extended))


def _openai(api: Literal["chat", "responses"], extension: Literal["on", "off"], url: str, agent: str) -> Client:
    return OpenAI(f"{url}/v1", agent, api=api, extension=extension)


def _langchain(
    dialect: Literal["langgraph", "agent-protocol"], path: str, extension: Literal["on", "off"], url: str, agent: str
) -> Client:
    return LangChain(url + path, agent, dialect=dialect, extension=extension)


_MODELS: Final = AGENTS["openai"].carries
_SENT: Final = Side("OpenAI", {**dict.fromkeys(Feature, FULL), Feature.METADATA: _MODELS[Feature.METADATA]})
"""What is declared of OpenAI agents is of models on any server of that API: of a gateway's the client reads more. What
it sends is the same."""

WAYS: Final[Mapping[str, Way]] = {
    "a2a-0.3": Way(partial(_a2a, "0.3"), SERVERS["a2a-0.3"], AGENTS["a2a-0.3"]),
    "a2a-1.0": Way(partial(_a2a, "1.0"), SERVERS["a2a-1.0"], AGENTS["a2a-1.0"]),
    "acp": Way(lambda url, agent: Acp(f"{url}/acp", agent, extension="off"), SERVERS["acp"], AGENTS["acp"]),
    "aief": Way(
        lambda url, agent: Aief(f"{url}/agent/{agent}", agent, extension="off"), SERVERS["aief"], AGENTS["aief"]
    ),
    "langgraph": Way(partial(_langchain, "langgraph", "", "off"), SERVERS["langgraph"], AGENTS["langgraph"]),
    "agent-protocol": Way(
        partial(_langchain, "agent-protocol", "/agent-protocol", "off"),
        SERVERS["agent-protocol"],
        AGENTS["agent-protocol"],
    ),
    "openai-chat-completions": Way(partial(_openai, "chat", "off"), SERVERS["openai-chat-completions"], _SENT),
    "openai-responses": Way(partial(_openai, "responses", "off"), SERVERS["openai-responses"], _SENT),
    "runtime": Way(RuntimeReader, SERVERS["runtime"]),
    "mcp": Way(McpReader, SERVERS["mcp"]),
}
"""By the name in `docs.pairing.SERVERS`."""

_EXTENDED: Final = AGENTS["a2a-extended"]


def _with_it(protocol: str, version: str) -> Side:
    """What is declared of both directions."""
    adapter = next(each for each in ADAPTERS if each.name == protocol)
    return Side(adapter.title, adapter.extended[version])


EXTENDED: Final[Mapping[str, Way]] = {
    "a2a-0.3": Way(partial(_a2a, "0.3", extended=True), _EXTENDED),
    "a2a-1.0": Way(partial(_a2a, "1.0", extended=True), _EXTENDED),
    "acp": Way(lambda url, agent: Acp(f"{url}/acp", agent), Side("ACP", ACP)),
    "aief": Way(lambda url, agent: Aief(f"{url}/agent/{agent}", agent), Side("AIEF", AIEF)),
    "langgraph": Way(partial(_langchain, "langgraph", "", "on"), _with_it("langchain", "langgraph")),
    "agent-protocol": Way(
        partial(_langchain, "agent-protocol", "/agent-protocol", "on"), _with_it("langchain", "agent-protocol")
    ),
    "openai-chat-completions": Way(partial(_openai, "chat", "on"), _with_it("openai", "chat-completions")),
    "openai-responses": Way(partial(_openai, "responses", "on"), _with_it("openai", "responses")),
    "mcp": Way(partial(McpReader, extended=True), EXTENDED_SERVERS["mcp"]),
}
"""The same with the extension."""


@dataclass
class Scripted:
    """Says what a probe has it say."""

    probe: Probe
    info: AgentInfo
    heard: Heard = field(default_factory=Heard)
    patience: float = 0
    """Seconds for which it waits to be heard, after the first piece of text."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """That piece has."""
    is_late: bool = False
    """It was not heard while it was at work."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        tools = [tool.name for tool in call.tools]
        self.heard = Heard(history=call.history, input=call.input, metadata=call.metadata, tools=tools)
        self.is_late = False
        for event in self.probe.said:
            yield event
            if self.patience and is_piece(event) and not self.is_late:
                self.is_late = not await self._is_heard()

    async def _is_heard(self) -> bool:
        try:
            async with asyncio.timeout(self.patience):
                return await self.arrived.wait()
        except TimeoutError:
            return False


@dataclass(frozen=True)
class Served:
    front: Running
    agents: Mapping[Feature, Scripted]


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Served]:
    agents = {
        feature: Scripted(probe, AgentInfo(name=feature, input_types=("*/*",), stateful=probe.stateful))
        for feature, probe in PROBES.items()
    }
    async with running(
        folder, registered={name: RegisteredAgent(each.info, each) for name, each in agents.items()}
    ) as front:
        yield Served(front, agents)


async def measure(served: Served, way: Way, feature: Feature) -> tuple[Level, Any, Any]:
    """With what was told, and what should have been."""
    agent, probe = served.agents[feature], PROBES[feature]
    client = way.client(served.front.url, feature)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        thread_id, upstream = str(uuid4()), dict[str, str]()
        history: tuple[Message, ...] = ()
        if probe.before:
            first = Message.of(probe.before, "user")
            events = await _run(client, feature, thread_id, RunInput(messages=(first,)), {}, ())
            upstream = {
                name: value for event in events if isinstance(event, UpstreamBound) for name, value in event.ids.items()
            }
            history = (first, Message.of("As cited."))
        agent.heard = Heard()
        agent.arrived.clear()
        if feature is Feature.STREAM:
            agent.patience = BOUND / 2 if way.declared(feature) == "full" else SHORT
        events = await _run(client, feature, thread_id, probe.input, upstream, history, agent.arrived)
    whole = [*probe.told(probe.said), *probe.gives]
    told = [*probe.told(events), *probe.heard(agent.heard)]
    if told == whole:
        return "lossy" if agent.is_late else "full", told, whole
    return "lossy" if told or _is_traced(feature, events) else "dropped", told, whole


def _is_traced(feature: Feature, events: Sequence[Event]) -> bool:
    trace = TRACES.get(feature)
    return trace is not None and any(trace.encode() in _text(event) for event in events)


def _text(event: Event) -> bytes:
    """All of it, with the bytes of a file as they are."""
    part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
    content = part.inline if isinstance(part, FilePart) else None
    return json.dumps(msgspec.to_builtins(event), ensure_ascii=False).encode() + (content or b"")


async def _run(
    client: Client,
    feature: Feature,
    thread_id: str,
    given: RunInput,
    upstream: Mapping[str, str],
    history: tuple[Message, ...],
    arrived: asyncio.Event | None = None,
) -> Sequence[Event]:
    """`arrived` is set when a piece of text has."""
    call = Invocation(
        agent=feature,
        thread_id=thread_id,
        task_id=str(uuid4()),
        run_id=str(uuid4()),
        input=given,
        metadata=given.metadata,
        history=history,
        upstream=upstream,
        opens_thread=not history,
    )
    events: list[Event] = []
    try:
        async with asyncio.timeout(BOUND):
            async for event in client.run(call):
                events.append(event)
                if arrived is not None and is_piece(event):
                    arrived.set()
    except FaultError as error:
        events.append(_ended(error.fault))
    return events


def is_piece(event: Event) -> bool:
    part = event.part if isinstance(event, PartAdded) else None
    return isinstance(event, PartDelta) or (isinstance(part, TextPart) and part.text != "")


def _ended(fault: Fault) -> Event:
    """As the engine ends a run that raised."""
    return RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault)
