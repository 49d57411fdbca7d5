"""Measurement of how much of a feature arrives: an agent emits it behind a real server, and the same protocol's client
reads it.
"""

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
from babelgate.adapters.ag_ui.client import Client as AgUi
from babelgate.adapters.aief.carries import EXTENDED as AIEF
from babelgate.adapters.aief.client import Client as Aief
from babelgate.adapters.anthropic.client import Client as Anthropic
from babelgate.adapters.kit.upstream import Client
from babelgate.adapters.langchain.client import Client as LangChain
from babelgate.adapters.mcp.client import Client as Mcp
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
from tests.adapters.agent_client.socket_host import socket_client
from tests.fidelity.probe import PROBES, TRACES, AgentInput, Probe
from tests.fidelity.unserved import McpReader, RuntimeReader
from tests.fidelity.vercel_ui import VercelReader
from tests.running import Running, running

BOUND: Final = 60.0
"""Timeout of one run, in seconds."""
SHORT: Final = 0.5
"""Time that an agent waits for its reader if the protocol is declared not to deliver before the end, in seconds."""

Level = Literal["full", "lossy", "dropped"]


@dataclass(frozen=True)
class Way:
    """Way to measure one protocol: a client for agents behind a server of the protocol, and what the protocol is
    declared to carry in both directions."""

    client: Callable[[str, str], Client]
    """Function that creates a client for an agent of the gateway at a URL."""
    server: Side
    reader: Side | None = None
    """Features that such a server carries to the client, as declared. None if `server` declares both directions."""

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
"""Features that the gateway's client of OpenAI's APIs reads from another gateway. `AGENTS["openai"]` declares less,
because it is about models on any server."""

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
    "mcp": Way(lambda url, agent: Mcp(f"{url}/mcp", agent), SERVERS["mcp"]),
    "agent-client": Way(socket_client, SERVERS["agent-client"], AGENTS["agent-client"]),
    "vercel-ui": Way(VercelReader, SERVERS["vercel-ui"]),
    "anthropic": Way(lambda url, agent: Anthropic(f"{url}/anthropic", agent), SERVERS["anthropic"]),
    "ag-ui": Way(lambda url, agent: AgUi(f"{url}/ag-ui/{agent}"), SERVERS["ag-ui"]),
}
"""Ways by the name in `docs.pairing.SERVERS`."""

_EXTENDED: Final = AGENTS["a2a-extended"]


def _with_it(protocol: str, version: str) -> Side:
    """Return the features that a version of a protocol carries with the extension. One table declares both
    directions."""
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
    "mcp": Way(McpReader, EXTENDED_SERVERS["mcp"]),
}
"""Ways to call an agent with the extension."""


@dataclass
class Scripted:
    """An agent that emits the events of a probe."""

    probe: Probe
    info: AgentInfo
    received: AgentInput = field(default_factory=AgentInput)
    patience: float = 0
    """Seconds that the agent waits for its reader after the first piece of text."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has received that piece."""
    is_late: bool = False
    """True if the client did not receive the first piece of text while the agent was running."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        tools = [tool.name for tool in call.tools]
        self.received = AgentInput(history=call.history, input=call.input, metadata=call.metadata, tools=tools)
        self.is_late = False
        for event in self.probe.emits:
            yield event
            if self.patience and is_piece(event) and not self.is_late:
                self.is_late = not await self._is_received()

    async def _is_received(self) -> bool:
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
    """Return the level at which the feature arrives, with the actual and the expected values."""
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
        agent.received = AgentInput()
        agent.arrived.clear()
        if feature is Feature.STREAM:
            agent.patience = BOUND / 2 if way.declared(feature) == "full" else SHORT
        events = await _run(client, feature, thread_id, probe.input, upstream, history, agent.arrived)
    expected = [*probe.extract(probe.emits), *probe.expected_input]
    actual = [*probe.extract(events), *probe.extract_input(agent.received)]
    if actual == expected:
        return "lossy" if agent.is_late else "full", actual, expected
    return "lossy" if actual or _is_traced(feature, events) else "dropped", actual, expected


def _is_traced(feature: Feature, events: Sequence[Event]) -> bool:
    trace = TRACES.get(feature)
    return trace is not None and any(trace.encode() in _text(event) for event in events)


def _text(event: Event) -> bytes:
    """Return the event as JSON, followed by the bytes of its file."""
    part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
    content = part.inline if isinstance(part, FilePart) else None
    return json.dumps(msgspec.to_builtins(event), ensure_ascii=False).encode() + (content or b"")


async def _run(
    client: Client,
    feature: Feature,
    thread_id: str,
    run_input: RunInput,
    upstream: Mapping[str, str],
    history: tuple[Message, ...],
    arrived: asyncio.Event | None = None,
) -> Sequence[Event]:
    """Run the call, and return its events. `arrived` is set when a piece of text has arrived."""
    call = Invocation(
        agent=feature,
        thread_id=thread_id,
        task_id=str(uuid4()),
        run_id=str(uuid4()),
        input=run_input,
        metadata=run_input.metadata,
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
    """Return the end of a run that raised the fault, as the engine emits it."""
    return RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault)
