"""A gateway with the cast behind it, for each kind of agent; and the callers that come to it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest

from adapters.acp.carries import CARRIES as ACP
from canonical import FULL, Carry, Feature, Run, Scope
from canonical.event import RunStarted
from gateway.config import Settings
from gateway.registry import connect
from tests.interop.driver import start_server
from tests.pairs.a2a import JsonRpc03, JsonRpc10, Rest03, Rest10
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.caller import BOUND, Caller
from tests.pairs.cast import Cast
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.running import Running, running

__all__ = ("CALLERS", "HOUSES", "OFFICIAL", "OWNER", "House", "in_process", "needs")

OWNER: Final = "default"

CALLERS: Final[tuple[type[Caller], ...]] = (
    *(Acp, JsonRpc03, JsonRpc10, Rest03, Rest10),
    *(Aief, LangGraph, AgentProtocol),
)


@dataclass(frozen=True)
class House:
    front: Running
    """The gateway that is tested."""
    carries: Mapping[Feature, Carry]
    """Of the protocol between it and its agents."""
    release: Callable[[], None]
    """Let one agent go on that waits in the middle of its answer, now or when it gets there."""
    reset: Callable[[], None]
    """Before each test."""
    heard_cancel: Callable[[Run], Awaitable[None]]
    """Returns when the agent itself has been cancelled, in this run of the front's."""

    async def started(self, thread_id: str) -> None:
        """Returns when a run of the thread is at work."""
        async with asyncio.timeout(BOUND):
            reading = self.front.hub.read(OWNER, Scope(thread_id))
            async with aclosing(cast("Any", reading)) as batches:
                async for batch in batches:
                    if any(isinstance(record.event, RunStarted) for record in batch):
                        return
        raise AssertionError("nothing ran")

    async def ended(self, task_id: str) -> Run:
        """The last run of a task, when the task is terminal."""
        task = await self.front.hub.task(OWNER, task_id)
        run_id = ""
        async with asyncio.timeout(BOUND):
            reading = self.front.hub.read(OWNER, Scope.task(task), task.first_seq - 1)
            async with aclosing(cast("Any", reading)) as batches:
                async for batch in batches:
                    run_id = next((record.run_id for record in reversed(batch) if record.run_id), run_id)
        return await self.front.hub.run(OWNER, run_id)


def _house(front: Running, players: Cast, carries: Mapping[Feature, Carry]) -> House:
    async def heard_cancel(_: Run) -> None:
        async with asyncio.timeout(BOUND):
            await players.closed.wait()

    # Not `players.gate.release` itself: each test has a gate of its own.
    return House(front, carries, lambda: players.gate.release(), players.reset, heard_cancel)


@asynccontextmanager
async def in_process(folder: Path) -> AsyncGenerator[House]:
    """Python functions in the gateway's own process."""
    players = Cast()
    async with running(folder, players.agents()) as front:
        yield _house(front, players, dict.fromkeys(Feature, FULL))


@asynccontextmanager
async def behind(protocol: str, carries: Mapping[Feature, Carry], path: str, folder: Path) -> AsyncGenerator[House]:
    """The cast on a gateway of its own, which the tested one calls as it would any server of that protocol. `path` = of
    an agent below the upstream's URL."""
    players = Cast()
    upstream_folder = folder / "upstream"
    upstream_folder.mkdir()
    async with running(upstream_folder, players.agents()) as upstream:
        urls = {name: upstream.url + path.format(agent=name) for name in players.agents()}
        async with _fronting(folder, protocol, urls) as front:
            yield _house(front, players, carries)


@asynccontextmanager
async def _fronting(folder: Path, protocol: str, urls: Mapping[str, str]) -> AsyncGenerator[Running]:
    agents = {name: {"url": url, "protocol": protocol, "agent": name} for name, url in urls.items()}
    registry = await connect(Settings.model_validate({"agents": agents}))
    broken = {each.info.name: each.broken for each in registry.all() if each.broken is not None}
    assert not broken, broken
    async with running(folder, fronted={each.info.name: each for each in registry.all()}) as front:
        yield front


@asynccontextmanager
async def acp_sdk(folder: Path) -> AsyncGenerator[House]:
    """The likes of the cast on a server made with the official ACP SDK."""
    async with (
        start_server("acp") as server,
        _fronting(folder, "acp", dict.fromkeys(OFFICIAL["acp-sdk"], server.url)) as front,
    ):

        async def heard_cancel(run: Run) -> None:
            answer = await front.http.get(f"{server.url}/runs/{run.upstream['run']}")
            assert answer.json()["status"] in ("cancelling", "cancelled")
            # NB: the SDK ends the run and leaves its agent where it waits, where it would take the next one's pass.
            server.release()

        yield House(front, ACP, server.release, lambda: None, heard_cancel)


HOUSES: Final[Mapping[str, Callable[[Path], AbstractAsyncContextManager[House]]]] = {
    "python": in_process,
    "acp": partial(behind, "acp", ACP, "/acp"),
    "acp-sdk": acp_sdk,
}

OFFICIAL: Final[Mapping[str, frozenset[str]]] = {
    "acp-sdk": frozenset({"echo", "stream", "ask", "files", "fail", "slow", "history", "metadata"}),
}
"""Which of the cast the servers of official SDKs have."""


def needs(house: House, caller: Caller, feature: Feature, becomes: Feature | None = None) -> None:
    """Skip where the feature gets lost on the way, in the words of the protocol that loses it. `becomes` = as what it
    goes on behind an upstream that carries it with a loss."""
    upstream = house.carries[feature]
    _unless_dropped(feature, upstream)
    if becomes is not None and upstream.level == "lossy":
        _unless_dropped(becomes, caller.carries[becomes], f"{feature}: {upstream.how} ({upstream.source}); ")
    _unless_dropped(feature, caller.carries[feature])


def _unless_dropped(feature: Feature, carry: Carry, because: str = "") -> None:
    if carry.level == "dropped":
        pytest.skip(f"{because}{feature}: {carry.how} ({carry.source})")
