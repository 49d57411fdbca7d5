"""Gateways in front of the cast, one for each kind of agent, and the callers that use them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Set
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from babelgate.adapters.agent_client.agents import assume_agent
from babelgate.canonical import Carry, Feature, Run, Scope
from babelgate.canonical.event import RunStarted
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from docs.pairing import AGENTS, SERVERS, Cell, Side, cell
from tests.adapters.agent_client.socket_host import socket_client
from tests.balancer import RoundRobin
from tests.gateway.knowledge import knowledge, offered
from tests.interop.driver import OfficialServer, start_server
from tests.interop.langgraph_dev import langgraph_dev
from tests.pairs.a2a import Grpc10, JsonRpc03, JsonRpc10, Rest03, Rest10
from tests.pairs.acp import Acp
from tests.pairs.ag_ui import AgUi
from tests.pairs.aief import Aief
from tests.pairs.caller import BOUND, Caller, Question
from tests.pairs.cast import Cast
from tests.pairs.graph import REMEMBER, Remembering, graphs, one, remember
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.pairs.mcp import Mcp
from tests.pairs.model import CALL, MODELS, REQUEST_MODELS, serve_models
from tests.pairs.openai import Chat, Responses
from tests.pairs.runtime import Runtime
from tests.pairs.whole import NAME as WHOLE
from tests.pairs.whole import every_event_agent
from tests.postgres import new_schema, url_of
from tests.running import Running, running

OWNER: Final = "default"
QUESTION: Final = Question("What is your name?")

CALLERS: Final[tuple[type[Caller], ...]] = (
    *(Acp, JsonRpc03, JsonRpc10, Rest03, Rest10),
    *(Aief, LangGraph, AgentProtocol, Runtime, Chat, Responses, Mcp, AgUi),
    *(caller for each in knowledge().values() for caller in each.callers),
)


WITH_GRPC: Final[tuple[type[Caller], ...]] = (*CALLERS, Grpc10)
"""All callers, and the one over gRPC. Only some kinds of agents are tested with gRPC: the gateway converts each of its
calls to JSON-RPC, so only the conversion of messages differs."""
ONE_EACH: Final[tuple[type[Caller], ...]] = (Acp, JsonRpc10, Aief, LangGraph, Runtime, Chat, Mcp, AgUi)
"""One caller of each of several protocols. They test kinds of agents for which no dialect of a caller's protocol
matters, such as official servers and the cluster: other kinds are tested with all callers."""


@dataclass(frozen=True)
class Kind:
    """Agents of one kind, on one server."""

    agent: str
    """Name of the kind, a key of `docs.pairing.AGENTS`."""
    open: Callable[[Path, "Kind"], AbstractAsyncContextManager["House"]]
    cast: Mapping[str, str] | None = None
    """Agents of the cast that the server has, with the server's names for them. None means all."""
    callers: tuple[type[Caller], ...] = CALLERS
    """Callers that test these agents."""
    tells: Set[str] = frozenset()
    """Levels of losses (`dropped`, `lossy`) that the agents' server reports for its own protocol, and the gateway
    passes on."""
    shows: Set[Feature] = frozenset()
    """Features that these agents show in addition to the cast."""
    stateful: bool = False
    """True if the agents keep their own state, which the gateway shows to callers."""
    question: Question = QUESTION
    """Question of the agent `ask`."""

    def has(self, agent: str) -> bool:
        return self.cast is None or agent in self.cast

    @property
    def side(self) -> Side:
        return AGENTS[self.agent]


@dataclass(frozen=True)
class House:
    kind: Kind
    front: Running
    """The tested gateway."""
    release: Callable[[], None]
    """Function that lets one agent continue that waits in the middle of its answer. If none waits, the next one that
    would wait continues at once."""
    reset: Callable[[], None]
    """Function that prepares the agents for the next test."""
    await_cancel: Callable[[Run], Awaitable[None]]
    """Function that waits until the agent itself has been cancelled in this run of the tested gateway."""
    await_start: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
    """Function that waits until the agent `slow` has started on its server, for protocols that do not show it."""

    @property
    def carries(self) -> Mapping[Feature, Carry]:
        """Features of the protocol between the gateway and its agents."""
        return self.kind.side.carries

    @property
    def live(self) -> bool:
        """True if the gateway receives an agent's output while the agent produces it."""
        return self.carries[Feature.STREAM].level == "full"

    def cell(self, caller: Caller, feature: Feature) -> Cell:
        return cell(self.kind.side, SERVERS[caller.speaks], feature)

    async def started(self, thread_id: str) -> None:
        """Wait until a run of the thread has started."""
        async with asyncio.timeout(BOUND):
            async with aclosing(self.front.hub.reads.follow(OWNER, Scope(thread_id))) as batches:
                async for batch in batches:
                    if any(isinstance(record.event, RunStarted) for record in batch):
                        return
        raise AssertionError("nothing ran")

    async def ended(self, task_id: str) -> Run:
        """Wait until the task is terminal, and return its last run."""
        task = await self.front.hub.reads.task(OWNER, task_id)
        run_id = ""
        async with asyncio.timeout(BOUND):
            async with aclosing(self.front.hub.reads.follow(OWNER, Scope.task(task), task.first_seq - 1)) as batches:
                async for batch in batches:
                    run_id = next((record.run_id for record in reversed(batch) if record.run_id), run_id)
        return await self.front.hub.reads.run(OWNER, run_id)


def _house(kind: Kind, front: Running, players: Cast) -> House:
    async def await_cancel(_: Run) -> None:
        if kind.side.carries[Feature.CANCEL].level == "dropped":
            assert not players.closed.is_set(), "no agent can have been cancelled"
            return
        async with asyncio.timeout(BOUND):
            await players.closed.wait()

    # Look up `players.gate` at each call, because each test has a new gate.
    return House(
        kind, front, lambda: players.gate.release(), players.reset, await_cancel, lambda: players.started.wait()
    )


# In the gateway's own process


@asynccontextmanager
async def in_process(folder: Path, kind: Kind) -> AsyncGenerator[House]:
    """Open Python functions in the gateway's process."""
    players = Cast()
    registered = {WHOLE: every_event_agent()}
    async with running(folder, players.agents(), registered=registered, serves_grpc=True) as front:
        yield _house(kind, front, players)


@asynccontextmanager
async def clustered(folder: Path, kind: Kind) -> AsyncGenerator[House]:
    """Open Python functions on two nodes of a cluster. Successive requests go to different nodes."""
    players = Cast()
    with new_schema() as schema:
        shared: dict[str, Any] = {
            "database": url_of(schema),
            "cluster": True,
            "blobs": str(folder / "blobs"),
            # URLs in responses must not depend on the node.
            "public_url": "http://gateway.test",
        }
        async with AsyncExitStack() as stack:
            nodes: list[Running] = []
            balancer = RoundRobin()
            for name in ("one", "two"):
                (folder / name).mkdir()
                opened = running(
                    folder / name,
                    players.agents(),
                    registered={WHOLE: every_event_agent()},
                    node=name,
                    serves_grpc=True,
                    **shared,
                )
                nodes.append(await stack.enter_async_context(opened))
                balancer.add(httpx.URL(nodes[-1].url))
            client = httpx.AsyncClient(
                transport=balancer, base_url="http://gateway.test", timeout=nodes[0].http.timeout, trust_env=False
            )
            http = await stack.enter_async_context(client)
            yield _house(kind, replace(nodes[0], http=http), players)


@asynccontextmanager
async def compiled(folder: Path, kind: Kind) -> AsyncGenerator[House]:
    """Open graphs, in the form in which their authors pass them to the gateway."""
    from babelgate.gateway.agents.langgraph.agent import wrap_graph as registered

    players = Cast()
    agents = {name: RegisteredAgent(*registered(graph, name)) for name, graph in graphs(players).items()}
    async with running(folder, registered=agents) as front:
        yield _house(kind, front, players)


# Behind a URL


@asynccontextmanager
async def behind(protocol: str, path: str, folder: Path, kind: Kind, **options: str) -> AsyncGenerator[House]:
    """Open the cast on a second gateway, which the tested one calls like any server of the protocol.

    `path` is the path of an agent below the upstream's URL.
    """
    from babelgate.gateway.agents.langgraph.agent import wrap_graph

    players = Cast()
    upstream_folder = folder / "upstream"
    upstream_folder.mkdir()
    registered = {
        WHOLE: every_event_agent(),
        REMEMBER: RegisteredAgent(*wrap_graph(one(Remembering, remember), REMEMBER)),
    }
    async with running(upstream_folder, players.agents(), registered=registered) as upstream:
        urls = {name: upstream.url + path.format(agent=name) for name in (*players.agents(), *registered)}
        async with _fronting(folder, protocol, urls, None, **options) as front:
            yield _house(kind, front, players)


@asynccontextmanager
async def connected(folder: Path, kind: Kind) -> AsyncGenerator[House]:
    """Open the cast on a second gateway, which the tested one calls as an editor calls coding agents, one connection
    for each thread."""
    players = Cast()
    upstream_folder = folder / "upstream"
    upstream_folder.mkdir()
    async with running(upstream_folder, players.agents(), registered={WHOLE: every_event_agent()}) as upstream:
        agents = {
            name: RegisteredAgent(assume_agent(name), socket_client(upstream.url, name))
            for name in (*players.agents(), WHOLE)
        }
        async with running(folder, registered=agents, serves_grpc=True) as front:
            yield _house(kind, front, players)


@asynccontextmanager
async def modelled(folder: Path, kind: Kind) -> AsyncGenerator[House]:
    """Open models on a server of OpenAI's API, with the same answers as the cast."""
    players = Cast()
    async with serve_models(players) as url, _fronting(folder, "openai", dict.fromkeys(kind.cast or (), url)) as front:
        yield _house(kind, front, players)


@asynccontextmanager
async def _fronting(
    folder: Path, protocol: str, urls: Mapping[str, str], kind: Kind | None = None, **options: Any
) -> AsyncGenerator[Running]:
    cast = (kind and kind.cast) or {}
    agents = {
        name: {"url": url, "protocol": protocol, "agent": cast.get(name, name), "options": options}
        for name, url in urls.items()
    }
    registry = await connect(Settings.model_validate({"agents": agents}))
    broken = {each.info.name: each.broken for each in registry.all() if each.broken is not None}
    assert not broken, broken
    registered = {each.info.name: each for each in registry.all()}
    async with running(folder, registered=registered, serves_grpc=True) as front:
        yield front


# On official servers

Cancelled = Callable[[OfficialServer, Running, Run], Awaitable[None]]


@asynccontextmanager
async def official(
    peer: str, protocol: str, path: str, cancelled: Cancelled, folder: Path, kind: Kind, **options: Any
) -> AsyncGenerator[House]:
    """Open agents like the cast on a server built with an official SDK.

    `path` is the path of an agent below the server's URL.
    """
    assert kind.cast is not None
    async with start_server(peer, grpc=peer == "a2a-grpc") as server:
        urls = {name: server.url + path.format(agent=server_name) for name, server_name in kind.cast.items()}
        async with _fronting(folder, protocol, urls, kind, **options) as front:
            await_agent_cancel = partial(cancelled, server, front)
            yield House(kind, front, server.release, server.reset, await_agent_cancel)


async def _acp_cancelled(server: OfficialServer, front: Running, run: Run) -> None:
    answer = await front.http.get(f"{server.url}/runs/{run.upstream['run']}")
    assert answer.json()["status"] in ("cancelling", "cancelled")
    # The SDK ends the run but leaves its agent waiting, which would take the next agent's pass.
    server.release()


async def _a2a_cancelled(rest: str, server: OfficialServer, front: Running, run: Run) -> None:
    url = f"{server.url}/slow/{rest}tasks/{run.upstream['task']}"
    answer = await front.http.get(url, headers={"A2A-Version": "0.3" if rest else "1.0"})
    assert answer.json()["status"]["state"] in ("TASK_STATE_CANCELED", "TASK_STATE_CANCELLED"), answer.text


async def _aief_left(server: OfficialServer, front: Running, run: Run) -> None:
    """Let the agent of a cancelled run continue and end. AIEF has no cancel, so its server does not end a started
    agent."""
    server.release()


def _called(names: Iterable[str], **others: str) -> Mapping[str, str]:
    return {**{name: name for name in names}, **others}


_LOSSES: Final = frozenset({"dropped", "lossy"})


@asynccontextmanager
async def developed(folder: Path, kind: Kind) -> AsyncGenerator[House]:
    """Open graphs on LangGraph's own development server."""
    async with (
        langgraph_dev(folder) as url,
        _fronting(folder, "langgraph", dict.fromkeys(kind.cast or (), url)) as front,
    ):

        async def await_cancel(run: Run) -> None:
            path = f"{url}/threads/{run.upstream['context']}/runs/{run.upstream['run']}"
            assert (await front.http.get(path)).json()["status"] == "interrupted"

        yield House(kind, front, lambda: None, lambda: None, await_cancel)


HOUSES: Final[Mapping[str, Kind]] = {
    "python": Kind("python", in_process, callers=WITH_GRPC),
    "cluster": Kind("python", clustered, callers=ONE_EACH),
    "graph": Kind("graph", compiled, shows=frozenset({Feature.STEP}), stateful=True),
    "a2a-0.3": Kind(
        "a2a-0.3", partial(behind, "a2a", "/a2a/{agent}/.well-known/agent.json", extension="off"), tells=_LOSSES
    ),
    "a2a-1.0": Kind(
        "a2a-1.0", partial(behind, "a2a", "/a2a/{agent}", extension="off"), callers=WITH_GRPC, tells=_LOSSES
    ),
    "a2a-extended": Kind("a2a-extended", partial(behind, "a2a", "/a2a/{agent}")),
    "acp": Kind("acp", partial(behind, "acp", "/acp", extension="off")),
    "acp-extended": Kind("acp-extended", partial(behind, "acp", "/acp"), callers=ONE_EACH),
    "aief": Kind(
        "aief",
        partial(behind, "aief", "/agent/{agent}", extension="off"),
        tells=frozenset({"dropped"}),
    ),
    "aief-extended": Kind("aief-extended", partial(behind, "aief", "/agent/{agent}"), callers=ONE_EACH),
    "langgraph": Kind(
        "langgraph", partial(behind, "langgraph", "", extension="off"), shows=frozenset({Feature.STEP}), stateful=True
    ),
    "langgraph-extended": Kind("langgraph-extended", partial(behind, "langgraph", ""), callers=ONE_EACH, stateful=True),
    "agent-protocol": Kind("agent-protocol", partial(behind, "agent-protocol", "/agent-protocol", extension="off")),
    "agent-protocol-extended": Kind(
        "agent-protocol-extended", partial(behind, "agent-protocol", "/agent-protocol"), callers=ONE_EACH
    ),
    "openai": Kind(
        "openai",
        modelled,
        _called((*MODELS, *REQUEST_MODELS)),
        shows=frozenset({Feature.USAGE}),
        question=Question('ask_user({"question": "What is your name?"})', value=CALL),
    ),
    "anthropic": Kind("anthropic", partial(behind, "anthropic", "/anthropic")),
    "ag-ui": Kind("ag-ui", partial(behind, "ag-ui", "/ag-ui/{agent}")),
    "agent-client": Kind("agent-client", connected),
    "mcp": Kind("mcp", partial(behind, "mcp", "/mcp"), tells=_LOSSES),
    "openai-extended": Kind("openai-extended", partial(behind, "openai", "/v1"), callers=ONE_EACH),
    "a2a-sdk-0.3": Kind(
        "a2a-0.3",
        partial(official, "a2a-0.3", "a2a", "/{agent}", partial(_a2a_cancelled, "rest/v1/")),
        _called(("echo", "stream", "ask", "files", "fail", "slow"), count="data"),
        callers=ONE_EACH,
    ),
    "a2a-sdk-1.0": Kind(
        "a2a-1.0",
        partial(official, "a2a-1.0", "a2a", "/{agent}", partial(_a2a_cancelled, "")),
        _called(("echo", "stream", "ask", "files", "fail", "slow"), count="data"),
        callers=ONE_EACH,
    ),
    "a2a-sdk-grpc": Kind(
        "a2a-1.0",
        partial(official, "a2a-grpc", "a2a", "/{agent}", partial(_a2a_cancelled, "")),
        _called(("echo", "stream", "ask", "files", "fail", "slow"), count="data"),
        callers=(Grpc10,),
    ),
    "acp-sdk": Kind(
        "acp",
        partial(official, "acp", "acp", "", _acp_cancelled),
        _called(("echo", "stream", "ask", "files", "fail", "slow", "history", "metadata")),
        callers=ONE_EACH,
    ),
    "langgraph-dev": Kind(
        "langgraph",
        developed,
        _called(("echo", "ask")),
        callers=ONE_EACH,
        shows=frozenset({Feature.STEP}),
        stateful=True,
    ),
    "aief-sdk": Kind(
        "aief",
        partial(official, "aief", "aief", "/{agent}", _aief_left, steps="ask"),
        _called(("echo", "ask", "files", "slow")),
        callers=ONE_EACH,
    ),
    **{name: Kind(name, partial(behind, name, each.path)) for name, each in offered().items()},
}
"""Kinds of agents, by the name of their server."""


def needs(house: House, caller: Caller, feature: Feature) -> None:
    """Skip the test if the feature is lost between agent and caller. The reason names the protocol that loses it."""
    found = house.cell(caller, feature)
    if found.level == "dropped":
        pytest.skip(found.why)
