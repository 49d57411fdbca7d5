"""Agent that speaks the Agent Client Protocol: a command that speaks it over stdio, or the URL of a WebSocket."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from babelgate.conformance.probe import Context, NotDetectable, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.protocols.agent_client.peer import EditorPeer
from babelgate.conformance.verdict import NO_TRIGGER, Failed, NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, as_object, dig
from babelgate.conformance.wire.http import Unanswered, Wire
from babelgate.conformance.wire.links import PROCESS, LinkLost, open_link

CWD: Final = "/tmp"
"""Working directory of the sessions of a check: an absolute path that exists on most machines."""
_PROCESSES: Final = 4
"""Maximum number of processes of the agent at a time. Chosen, because starting an agent takes much CPU time and
memory."""
_START: Final = 3
"""Maximum duration of a process's first answer, as a multiple of the timeout for one answer. Chosen."""
_SCHEMES: Final = {"http": "ws", "https": "wss"}


class AgentClientTarget:
    """Client of the agent under test, which opens connections to it."""

    def __init__(self, wire: Wire, address: str, options: ProbeOptions) -> None:
        self.wire = wire
        self.address = address
        self._options = options
        self._slots = asyncio.Semaphore(_PROCESSES)

    @property
    def is_process(self) -> bool:
        return self.address.startswith(PROCESS)

    def at(self, address: str) -> "AgentClientTarget":
        """Return the client of another agent of the same server."""
        return AgentClientTarget(self.wire, address, self._options)

    async def open(self, *, is_other: bool = False) -> EditorPeer:
        """Open a connection, which the caller closes. `is_other` sends the headers of the second caller. Raises
        Unanswered if the agent cannot be reached."""
        other = self._options.other_headers if is_other else None
        headers = {} if self.is_process else self.wire.headers_for(self.address, other)
        try:
            link = await open_link(_socket_url(self.address), headers, self.wire.timeout)
        except LinkLost as error:
            exchange = self.wire.begin("connect", self.address, b"")
            exchange.error, exchange.status = str(error), error.status
            raise Unanswered(exchange.error, exchange) from None
        return EditorPeer(self.wire, link, self.address)

    @asynccontextmanager
    async def connect(self, *, is_other: bool = False) -> AsyncGenerator[EditorPeer]:
        """Open a connection on which nothing was sent, and close it at the end. Raises Unanswered."""
        async with self._slots:
            peer = await self.open(is_other=is_other)
            try:
                yield peer
            finally:
                await peer.aclose()

    async def initialize(self, peer: EditorPeer, version: int = 1, **members: Any) -> Exchange:
        """Initialize a connection as an editor without file system, terminal and forms. Raises Unanswered, and Failed
        if the answer is an error."""
        params = {
            "protocolVersion": version,
            "clientCapabilities": {},
            "clientInfo": {"name": "babelgate-check", "version": "1"},
            **members,
        }
        exchange = await peer.start("initialize", params, receives="Initialized")
        await peer.finish(exchange, self.wire.timeout * (_START if self.is_process else 1))
        peer.initialized = result_of(exchange)
        return exchange


Ctx = Context[AgentClientTarget]


def _socket_url(address: str) -> str:
    scheme, colon, rest = address.partition(":")
    return f"{_SCHEMES.get(scheme, scheme)}{colon}{rest}"


async def open_agent(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[AgentClientTarget]:
    """Return the agent at a URL, or the agent that a `stdio:` address starts, with its capabilities.

    Raises NotDetectable for an HTTP URL unless `is_requested`: most servers refuse WebSockets. Raises NotSpoken if the
    answer to `initialize` is not one of the protocol, unless `is_requested`. Raises Unanswered if no server answers, or
    the command ends.
    """
    if not is_requested and url.startswith(("http://", "https://")):
        raise NotDetectable("the protocol needs a WebSocket or a command; name it with --protocol agent-client")
    target = AgentClientTarget(wire, url, options)
    capabilities: frozenset[str] = frozenset()
    because = "the protocol was requested"
    is_connected = False
    try:
        async with target.connect() as peer:
            is_connected = not target.is_process
            answer = await target.initialize(peer)
            version = dig(answer.json, "result", "protocolVersion")
            if version != 1 and not is_requested:
                raise NotSpoken(f"initialize is answered with the version {version!r}")
            because = f"initialize is answered with the version {version!r}"
            capabilities = await _capabilities(peer)
    except Unanswered as error:
        if not is_requested or (not is_connected and error.exchange.status is None):
            raise
    except Failed as error:
        if not is_requested:
            raise NotSpoken(f"initialize is not answered with {error.expected}") from None
    if options.other_headers and not target.is_process:
        capabilities |= {"second-caller"}
    if target.is_process:
        capabilities |= {"process"}
    return Opened(target, url, because, capabilities)


async def _capabilities(peer: EditorPeer) -> frozenset[str]:
    """Return the names of the capabilities that the agent declares, in its answer to `initialize` and in a new
    session."""
    declared = dig(peer.initialized, "agentCapabilities")
    found = {name for name in ("image", "audio", "embeddedContext") if dig(declared, "promptCapabilities", name)}
    found |= {"load"} if dig(declared, "loadSession") is True else set[str]()
    sessions = as_object(dig(declared, "sessionCapabilities")) or {}
    found |= {name for name in ("list", "resume", "close", "delete") if sessions.get(name) is not None}
    created = await peer.request("session/new", new_session(), receives=None)
    for name, capability in (("modes", "modes"), ("configOptions", "config")):
        found |= {capability} if dig(created.json, "result", name) else set[str]()
    return frozenset(found)


# Agents by behaviour


def agent_for(ctx: Ctx, behaviour: str) -> tuple[AgentClientTarget, str]:
    """Return the agent that shows a behaviour, and the text that triggers it. If the trigger names another agent than
    the target, the URL of that agent differs in the last segment.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    agent never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the agent never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    if not trigger.agent or ctx.target.is_process:
        return ctx.target, trigger.text
    parts = urlsplit(ctx.target.address)
    path = f"{parts.path.rpartition('/')[0]}/{trigger.agent}"
    return ctx.target.at(urlunsplit((parts.scheme, parts.netloc, path, "", ""))), trigger.text


async def play_connection(ctx: Ctx, address: str) -> EditorPeer:
    """Open and initialize the connection to an agent that most probes share. It is closed at the end of the check."""
    target = ctx.target.at(address)
    peer = await target.open()
    ctx.wire.closers.append(peer.aclose)
    await target.initialize(peer)
    return peer


@dataclass(frozen=True, slots=True)
class TargetSession:
    """Session of an agent on a connection."""

    peer: EditorPeer
    id: str
    created: Exchange
    text: str
    """Text that triggers the behaviour for which the session was created."""

    async def prompt(self, *blocks: Any) -> Exchange:
        """Send a prompt, and return its exchange with the answer. A text becomes a text block. Raises Unanswered."""
        return await self.peer.finish(await self.start(*blocks))

    async def start(self, *blocks: Any) -> Exchange:
        """Send a prompt, and return its exchange, which may have no answer yet. Raises Unanswered."""
        prompt = [text_block(each) if isinstance(each, str) else each for each in blocks or (self.text,)]
        return await self.peer.start("session/prompt", {"sessionId": self.id, "prompt": prompt}, receives="Prompted")


async def new_for(ctx: Ctx, behaviour: str = "plain") -> TargetSession:
    """Create a session of the agent that shows a behaviour, on the shared connection. Raises Failed if the answer has
    no session id."""
    target, text = agent_for(ctx, behaviour)
    peer = await ctx.once(play_connection, target.address)
    return await create_session(peer, text)


async def create_session(peer: EditorPeer, text: str = "", cwd: str = CWD, **members: Any) -> TargetSession:
    """Create a session on a connection. Raises Failed if the answer has no session id."""
    created = await peer.request("session/new", new_session(cwd, **members), receives="NewSession")
    session_id = dig(result_of(created), "sessionId")
    check(isinstance(session_id, str) and session_id != "", "a sessionId", session_id, created)
    return TargetSession(peer, str(session_id), created, text)


def new_session(cwd: str = CWD, **members: Any) -> dict[str, Any]:
    return {"cwd": cwd, "mcpServers": [], **members}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# Answers


def result_of(exchange: Exchange) -> Any:
    """Return the result of an answer. Raises Failed if the answer is an error, or has no result."""
    answer = as_object(exchange.json) or {}
    check("result" in answer, "a result", answer.get("error", answer), exchange)
    return answer["result"]


def error_of(exchange: Exchange) -> Any:
    """Return the error of an answer. Raises Failed if the answer has none."""
    error = dig(exchange.json, "error")
    check(as_object(error) is not None, "an error", exchange.json, exchange)
    return error


def updates_of(exchange: Exchange, *kinds: str) -> Sequence[Any]:
    """Return the updates that arrived before the answer, or only those of the `kinds`."""
    updates = [dig(each.json_or_none, "params", "update") for each in exchange.frames if each.event == "session/update"]
    return [each for each in updates if not kinds or dig(each, "sessionUpdate") in kinds]


def spoken_text(exchange: Exchange, kind: str = "agent_message_chunk") -> str:
    return "".join(str(dig(each, "content", "text") or "") for each in updates_of(exchange, kind))
