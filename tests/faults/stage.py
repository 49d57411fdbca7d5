"""A gateway whose agents are behind proxies that a test can disturb.

The agents run on other gateways and count their starts.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest

import babelgate.adapters.a2a.client as a2a
import babelgate.adapters.acp.client as acp
from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.upstream import Upstream
from babelgate.adapters.langchain.client import resume
from babelgate.canonical import Answers, Ask, Fold, Invocation, Message, Receipt, Record, Run, Scope, Submission
from babelgate.canonical.event import PartAdded, PartDelta
from babelgate.gateway.agents import failover as fleets
from babelgate.gateway.agents.failover import Breaker, FailoverServer, ServerPool, server_pool
from babelgate.gateway.agents.registry import Registry, connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.adapters.openai.model import Answer, serve
from tests.faults.proxy import Proxy, proxied
from tests.gateway.invariant import check_log
from tests.running import Running, running
from tests.submissions import make

OWNER: Final = "default"
BOUND: Final = 30.0
"""Time within which every run must end, in seconds, after any disturbance."""
PATIENCE: Final = 2.0
"""Seconds of an agent's silence after which the gateway ends the run. Each step of a test takes less, even on a busy
machine."""
COOLDOWN: Final = 30.0
PIECES: Final = 6


@dataclass(frozen=True)
class Wire:
    protocol: str
    path: str
    starts: bytes
    """Pattern of the request that starts the agent or resumes it."""
    models: bool = False


WIRES: Final[Mapping[str, Wire]] = {
    "a2a-1.0": Wire("a2a", "/a2a/{agent}", rb'"method": ?"SendStreamingMessage"'),
    "a2a-0.3": Wire("a2a", "/a2a/{agent}/.well-known/agent.json", rb'"method": ?"message/stream"'),
    "acp": Wire("acp", "/acp", rb"^POST /acp/runs(/[-0-9a-f]+)? "),
    "aief": Wire("aief", "/agent/{agent}", rb"^POST \S+/steps "),
    "langgraph": Wire("langgraph", "", rb"^POST \S+/runs/stream "),
    "agent-protocol": Wire("agent-protocol", "/agent-protocol", rb"^POST \S+/runs/stream "),
    "openai": Wire("openai", "", rb"^POST /v1/responses ", models=True),
}
REATTACHING: Final = tuple(name for name in WIRES if name not in ("aief", "openai"))
"""Protocols in which a broken stream can be resumed."""


def pieces_of(text: str) -> list[str]:
    return [f"{text}-{number} " for number in range(PIECES)]


def words_of(text: str) -> str:
    """Return the agents' output for an input text. The request that sends the text contains no piece of this output."""
    return "".join(pieces_of(text))


class Players:
    """Agents of an upstream. Each text is sent to them once."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.go = asyncio.Event()
        """Set to let `held` continue."""
        self.cancelled: dict[str, asyncio.Event] = {}

    def agents(self) -> dict[str, Any]:
        return {"tell": self.tell, "held": self.held, "ask": self.ask, "remember": self.remember}

    async def tell(self, text: str) -> AsyncGenerator[str]:
        """Emit the words, one after the other."""
        self.started[text] += 1
        for piece in pieces_of(text):
            yield piece
            await asyncio.sleep(0)

    async def held(self, text: str) -> AsyncGenerator[str]:
        """Emit half of the words, and wait until the test sets `go`."""
        self.started[text] += 1
        ended = self.cancelled[text] = asyncio.Event()
        try:
            for number, piece in enumerate(pieces_of(text)):
                if number == PIECES // 2:
                    await self.go.wait()
                yield piece
        except (asyncio.CancelledError, GeneratorExit):
            ended.set()
            raise

    async def ask(self, text: str) -> AsyncGenerator[Ask | str, Any]:
        """Ask for a name before the words."""
        self.started[text] += 1
        answer = yield Ask("Who?")
        self.answered[text] += 1
        yield f"{answer}: "
        for piece in pieces_of(text):
            yield piece

    async def remember(self, call: Invocation) -> str:
        """Return the number of earlier messages."""
        self.started[call.text] += 1
        return f"{len(call.history)} before"

    def model(self, items: Any) -> Answer:
        content = items[-1]["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        self.started[text] += 1
        return Answer(text=words_of(text))


@dataclass(frozen=True)
class Outcome:
    run: Run
    records: list[Record]
    """Records of the whole thread."""
    receipt: Receipt

    @property
    def text(self) -> str:
        """Output of the agent in this run."""
        fold = Fold(self.receipt.thread_id, OWNER, self.records)
        messages: list[Message] = [m for m in fold.messages_by_run().get(self.run.run_id, ()) if m.role == "agent"]
        return "".join(message.text for message in messages)

    @property
    def ended_well(self) -> bool:
        return self.run.status == "success"


class Stage:
    def __init__(self, proxies: Mapping[str, Proxy], upstreams: Mapping[str, Players]) -> None:
        self.front: Running
        self.registered: Mapping[str, RegisteredAgent] = {}
        """Agents behind the proxies."""
        self.proxies = proxies
        """Proxies by name: `one` and `two` lead to gateways with the same agents, `models` to the models.
        """
        self.players = upstreams
        self.now = 0.0
        """Time of the clock of the `watched` agents' breakers, in seconds."""
        self._number = 0

    def proxy(self, wire: str) -> Proxy:
        return self.proxies["models" if WIRES[wire].models else "one"]

    def reset(self) -> None:
        for proxy in self.proxies.values():
            proxy.reset()
        for players in self.players.values():
            players.go.set()

    def text(self) -> str:
        """Return a text that no test has used before."""
        self._number += 1
        return f"w{self._number}x"

    def started(self, text: str) -> int:
        return sum(players.started[text] for players in self.players.values())

    def health(self, agent: str) -> list[str]:
        """Return the health of the agent's servers."""
        return list(cast("ServerPool", self.registered[agent].agent).health.values())

    async def ready(self, agent: str) -> str:
        """Return the gateway's report of the agent's health."""
        return (await self.front.http.get("/readyz")).json()["agents"][agent]

    async def submit(self, agent: str, text: str, **more: Any) -> Receipt:
        return await self.front.hub.submit(
            OWNER, make(Submission, agent=agent, messages=(Message.of(text, "user"),), **more)
        )

    async def answer(self, paused: Receipt, name: str) -> "Outcome":
        return await self.ended(await self.front.hub.answer(OWNER, Answers(task_id=paused.task_id, bare=name)))

    async def ended(self, receipt: Receipt) -> Outcome:
        hub = self.front.hub
        async with asyncio.timeout(BOUND):
            async with aclosing(hub.reads.follow(OWNER, Scope(receipt.thread_id, "run", receipt.run_id))) as batches:
                async for _ in batches:
                    pass
        records = list(await hub.reads.records(OWNER, Scope(receipt.thread_id)))
        check_log(records)
        return Outcome(await hub.reads.run(OWNER, receipt.run_id), records, receipt)

    async def wait_for_text(self, receipt: Receipt, text: str) -> None:
        """Wait until the gateway has received the text from the agent."""
        hub, scope = self.front.hub, Scope(receipt.thread_id, "run", receipt.run_id)
        received = ""
        async with asyncio.timeout(BOUND), aclosing(hub.reads.follow(OWNER, scope)) as batches:
            async for batch in batches:
                for record in batch:
                    event = record.event
                    if isinstance(event, PartAdded | PartDelta):
                        received += event.text if isinstance(event, PartDelta) else getattr(event.part, "text", "")
                if text in received:
                    return
        raise AssertionError(f"it ended without {text!r}")

    async def run(self, agent: str, text: str, **more: Any) -> Outcome:
        return await self.ended(await self.submit(agent, text, **more))


async def keeps_the_laws(stage: Stage, found: Outcome, text: str, output: str | None = None) -> None:
    """Check a run with the input `text`: the agent was started at most once, and its whole output arrived, or the
    beginning of it with a fault of the agent. `output` is the expected output; None means that of `words_of`."""
    words = words_of(text) if output is None else output
    assert stage.started(text) <= 1, "the agent was started twice"
    if found.ended_well:
        assert found.text == words
    else:
        assert words.startswith(found.text)
        assert found.run.fault is not None, found.run
        assert found.run.fault.blame == "upstream", found.run.fault


async def serves(stage: Stage, agent: str) -> None:
    """Check that a run of the agent succeeds, so that the earlier disturbance has no effect any more."""
    stage.reset()
    text = stage.text()
    found = await stage.run(agent, text)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between attempts to reach a server again."""
    for module in (a2a, acp, resume):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.01)
        monkeypatch.setattr(module, "LAST_WAIT", 0.05)
    monkeypatch.setattr(fleets, "_RETRY_DELAYS", (0.01, 0.02))


@asynccontextmanager
async def staged(folder: Path, names: tuple[str, ...] = tuple(WIRES)) -> AsyncGenerator[Stage]:
    async with AsyncExitStack() as stack:
        players = {"one": Players(), "two": Players(), "models": Players()}
        proxies: dict[str, Proxy] = {}
        for name in ("one", "two"):
            home = folder / name
            home.mkdir()
            upstream = await stack.enter_async_context(running(home, players[name].agents()))
            proxies[name] = await stack.enter_async_context(proxied(upstream.url))
        server = await stack.enter_async_context(serve(model=players["models"].model))
        proxies["models"] = await stack.enter_async_context(proxied(server.url))
        stage = Stage(proxies, players)
        registry = await connect(Settings.model_validate({"agents": _agents(stage, names)}))
        broken = {each.info.name: each.broken for each in registry.all() if each.broken is not None}
        assert not broken, broken
        stage.registered = {each.info.name: each for each in (*registry.all(), *_watched(stage, names, registry))}
        stage.front = await stack.enter_async_context(running(folder, {"local": _local}, registered=stage.registered))
        yield stage


async def _local(text: str) -> str:
    """Return the text. This agent is in the gateway's own process."""
    return text


def _agents(stage: Stage, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of each agent, in several variants.

    `hasty` is given up soon, `brief` has a short time limit, `both` is on two servers, and `unlucky` is for tests after
    which its server may be skipped.
    """
    agents: dict[str, Any] = {}
    for name in names:
        wire = WIRES[name]
        for agent in ("tell",) if wire.models else ("tell", "held", "ask", "remember"):
            url = stage.proxy(name).url + wire.path.format(agent=agent)
            at = {"protocol": wire.protocol, "agent": "two" if wire.models else agent}
            hasty = {"connect": 2, "read": PATIENCE}
            agents[f"{name}.{agent}"] = {**at, "url": url, "timeout": {"connect": 2}}
            if agent in ("tell", "held"):
                agents[f"{name}.{agent}.hasty"] = {**at, "url": url, "timeout": hasty}
            if agent == "tell":
                agents[f"{name}.{agent}.unlucky"] = {**at, "url": url, "timeout": hasty}
            if agent == "held":
                agents[f"{name}.{agent}.brief"] = {**at, "url": url, "timeout": {"connect": 2, "total": PATIENCE}}
            if not wire.models:
                urls = [url, stage.proxies["two"].url + wire.path.format(agent=agent)]
                agents[f"{name}.{agent}.both"] = {**at, "urls": urls, "timeout": {"connect": 2}}
    return agents


def _watched(stage: Stage, names: tuple[str, ...], registry: Registry) -> list[RegisteredAgent]:
    """Return agents whose servers are skipped after two failures, by the stage's clock: on one server, and on two."""
    found: list[RegisteredAgent] = []
    for name in names:
        wire = WIRES[name]
        upstream = next(each for each in UPSTREAMS if each.protocol == wire.protocol)

        def server(proxy: Proxy, wire: Wire = wire, upstream: Upstream = upstream) -> FailoverServer:
            url = proxy.url + wire.path.format(agent="tell")
            timeout = httpx.Timeout(2, read=PATIENCE)
            client = upstream.client(url, "two" if wire.models else "tell", headers={}, timeout=timeout)
            breaker = Breaker(failures=2, cooldown=COOLDOWN, clock=lambda: stage.now)
            return FailoverServer(url, client, breaker, upstream.protocol)

        several = [stage.proxy(name)] if wire.models else [stage.proxies["one"], stage.proxies["two"]]
        for number, proxies in enumerate(([stage.proxy(name)], several), 1):
            info = registry.get(f"{name}.tell").info.replace(name=f"{name}.watched.{number}")
            found.append(RegisteredAgent(info, server_pool([server(proxy) for proxy in proxies])))
    return found
