"""Campaign: gateways that are killed again and again while callers of every protocol use them.

In each round all callers do something at once, and the gateway is killed with SIGKILL. The kill happens at the first
byte of a response, after the last one, in the middle of a stream, or when all is done. Sometimes the next gateway is
also killed while it starts. It starts on the same database, and all acknowledged changes must be there
(`tests.crash.check`). On PostgreSQL, the database server is sometimes killed too.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import httpx

from babelgate.canonical.event import RunStarted
from tests.crash.check import Checks, Scene
from tests.crash.load import Load, note_task
from tests.crash.world import World
from tests.gateway.stage import Nursery, Stage, nursery
from tests.postgres_server import PostgresServer
from tests.serving import listen

_HERE: Final = "tests.crash.agents:"
ROUNDS_OF_ONE: Final = 8
"""Number of rounds on one database. Later rounds get a new one."""
MOMENTS: Final = ("first byte", "last byte", "stream", "rest")
_STARTING: Final = 0.25
"""Time within which a kill still happens during the start of a gateway, in seconds."""
_BOUND: Final = 60.0


def _nothing(_: object) -> None:
    pass


class Bytes(httpx.AsyncByteStream):
    """A response body that reports its progress."""

    def __init__(self, stream: Any, moment: "Moment") -> None:
        self._stream, self._moment = stream, moment

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._moment.tick("stream")
            yield chunk
        self._moment.tick("last byte")

    async def aclose(self) -> None:
        await self._stream.aclose()


class Moment:
    """A trigger that kills the gateway when an event has happened a number of times."""

    def __init__(self, kill: Callable[[], None], kind: str, count: int) -> None:
        self.kind, self._left, self._kill = kind, count, kill

    def tick(self, kind: str) -> None:
        if kind == self.kind:
            self._left -= 1
            if self._left == 0:
                self._kill()

    async def response(self, response: httpx.Response) -> None:
        self.tick("first byte")
        response.stream = Bytes(response.stream, self)


class Tally(ABC):
    """Rounds of a campaign, and their results. Several rounds share one database."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Create a tally without rounds. `folder` holds the databases."""
        self._folder = folder
        self._until = inf
        self.seed = seed
        self.round: int = 0
        self.kills: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.endings: dict[str, int] = {}
        self.faults: list[str] = []
        self.attempts: dict[str, int] = {}
        self.after_each: Callable[[Tally], None] = _nothing
        """Called with the campaign after each round."""

    async def rounds(self, count: float, seconds: float = inf) -> None:
        """Execute `count` rounds, but start none after `seconds`."""
        self._until = monotonic() + seconds
        while count > 0 and not self.is_over:
            folder = self._folder / str(self.round)
            folder.mkdir()
            await self._on_one(folder, int(min(count, ROUNDS_OF_ONE)))
            count -= ROUNDS_OF_ONE

    @property
    def is_over(self) -> bool:
        return monotonic() >= self._until

    @abstractmethod
    async def _on_one(self, folder: Path, count: int) -> None:
        """Execute rounds on one database, until `is_over`."""

    def count(self, kind: str) -> None:
        self.kills[kind] = self.kills.get(kind, 0) + 1

    def note_faults(self, checks: Checks, folder: Path) -> None:
        for fault in checks.faults:
            self.faults.append(f"round {self.round}, seed {self.seed}, {folder}: {fault}")
        checks.faults.clear()

    def add(self, stage: Scene, world: World, checks: Checks) -> None:
        """Add the results of one database."""
        for total, more in ((self.acknowledged, world.acknowledged), (self.endings, checks.endings)):
            for name, number in more.items():
                total[name] = total.get(name, 0) + number
        for record in stage.records("SELECT pk FROM thread"):
            if isinstance(record.event, RunStarted) and record.event.attempt > 1:
                name = "went on" if record.event.resumed else "started over"
                self.attempts[name] = self.attempts.get(name, 0) + 1

    @property
    def progress(self) -> str:
        return f"{self.round} rounds, {sum(self.kills.values())} kills, {len(self.faults)} faults"

    def summary(self) -> str:
        def total(name: str, counts: dict[str, int]) -> str:
            listed = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items(), key=lambda each: -each[1]))
            return f"{name}: {sum(counts.values())} ({listed})"

        lines = [
            total("kills", self.kills),
            total("acknowledged writes", self.acknowledged),
            total("runs looked at in every protocol", self.endings),
            total("attempts after the first", self.attempts),
            f"faults: {len(self.faults)}",
            *self.faults,
        ]
        return "\n".join(lines)


class Campaign(Tally):
    """A campaign against one gateway. `folder` holds a database for some rounds each."""

    def __init__(
        self, folder: Path, born: Nursery, upstream: Stage, seed: int, together: int, server: PostgresServer | None
    ) -> None:
        super().__init__(folder, seed)
        self.random = Random(seed)
        self._born, self._upstream = born, upstream
        self._together, self._server = together, server

    async def _on_one(self, folder: Path, count: int) -> None:
        settings: dict[str, Any] = {"agents": agents(self._upstream), "limits": {"cancel_grace": 2}}
        if self._server is not None:
            settings["database"] = self._server.add_schema(f"round_{folder.name}")
            settings["blobs"] = str(folder / "gateway.blobs")
        stage = Stage(folder, self._born, settings)
        world = World()
        load, checks = Load(world, self.random), Checks(stage, world)
        try:
            await stage.start()
            for _ in range(count):
                if self.is_over:
                    break
                self.round += 1
                await self._one(stage, load, checks)
                self.note_faults(checks, folder)
                self.after_each(self)
            if "Traceback" in stage.complaints():
                self.faults.append(f"round {self.round}, seed {self.seed}: a traceback in {folder}/stderr.txt")
        finally:
            await stage.close()
        self.add(stage, world, checks)

    async def _one(self, stage: Stage, load: Load, checks: Checks) -> None:
        kind = self.random.choice(MOMENTS)
        server = self._server if self.round % 2 else None

        def kill() -> None:
            if server is not None:
                server.kill()
            stage.kill()

        moment = Moment(kill, kind, self.random.randrange(1, 120 if kind == "stream" else 40))
        stage.http.event_hooks = {"response": [note_task, moment.response]}
        if server is not None:
            stage.http.event_hooks["response"].append(refusal_as_disconnect)
        load.move(stage.http)
        async with asyncio.timeout(_BOUND), asyncio.TaskGroup() as group:
            for work in load.draw(self._together):
                group.create_task(cut_short(work(), checks))
        kill()
        if server is not None:
            await asyncio.to_thread(server.start)
            self.count("server")
        await stage.killed()
        self.count(kind)
        checks.upstream_lost = self.random.random() < 0.2
        if checks.upstream_lost:
            await self._upstream.restart()
            self.count("upstream")
        while self.random.random() < 0.3:
            await stage.kill_while_it_starts(self.random.random() * _STARTING)
            self.count("start")
        load.move(await stage.start())
        if checks.upstream_lost and self.random.random() < 0.5:  # while the gateway reattaches to it
            await self._upstream.restart()
            self.count("upstream")
        await load.send_again()
        await checks.all()


def agents(far: Stage) -> dict[str, Any]:
    """Return the settings of all agents. Some are behind another gateway."""
    idempotent = {name: {"python": _HERE + name, "idempotent": True} for name in ("again", "fickle", "files")}
    url = str(far.http.base_url).rstrip("/")
    return {
        "plain": {"python": _HERE + "plain"},
        "single": {"python": _HERE + "plain", "concurrency": 1},
        "ask": {"python": _HERE + "ask"},
        "again-ask": {"python": _HERE + "again_and_ask", "idempotent": True},
        "graph": {"python": "tests.crash.graph:graph", "idempotent": True},
        **idempotent,
        "far-acp": {"url": f"{url}/acp", "protocol": "acp", "agent": "again"},
        "far-a2a": {"url": f"{url}/a2a/again", "protocol": "a2a"},
        "far-langgraph": {"url": url, "protocol": "langgraph", "agent": "again"},
        "far-agent-protocol": {"url": f"{url}/agent-protocol", "protocol": "agent-protocol", "agent": "again"},
    }


async def refusal_as_disconnect(response: httpx.Response) -> None:
    """Treat a refusal like a lost connection: without a database the gateway can only refuse."""
    if response.status_code >= 500:
        raise httpx.RemoteProtocolError(f"refused with {response.status_code}", request=response.request)
    if response.headers.get("content-type", "").startswith("application/json"):
        await response.aread()
        if b'"reason":"UNAVAILABLE"' in response.content:  # an error of JSON-RPC comes with 200
            raise httpx.RemoteProtocolError("refused as unavailable", request=response.request)


async def cut_short(work: Any, checks: Checks) -> None:
    """Await the work of a caller. Ignore a lost connection, because the gateway may be killed meanwhile, and record any
    other failure."""
    with suppress(httpx.TransportError):
        try:
            await work
        except httpx.TransportError:
            raise
        except Exception as error:
            checks.broke(error)


@asynccontextmanager
async def campaign(
    folder: Path, seed: int, *, together: int = 14, server: PostgresServer | None = None
) -> AsyncGenerator[Campaign]:
    """Run a campaign with another gateway, whose agent is also behind the tested one, and which is sometimes killed
    too.

    `together` is the number of simultaneous actions. `server` has the databases of the tested gateways.
    """
    async with upstream(folder) as far, nursery() as born:
        yield Campaign(folder, born, far, seed, together, server)


@asynccontextmanager
async def upstream(folder: Path) -> AsyncGenerator[Stage]:
    """Run the gateway behind the tested one."""
    place = folder / "upstream"
    place.mkdir()
    settings = {"agents": {"again": {"python": _HERE + "again", "idempotent": True}}}
    async with nursery() as its:
        with listen() as free:
            port = free.getsockname()[1]
        stage = Stage(place, its, settings, port)
        await stage.start()
        try:
            yield stage
        finally:
            await stage.close()
