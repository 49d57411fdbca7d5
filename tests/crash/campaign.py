"""Gateways that are killed again and again while callers of every protocol use them.

In each round everybody does something at once, and the gateway is killed with SIGKILL: at the first byte of an answer,
after the last one, in the middle of a stream, or when all is done; now and then also while it starts. Then the next one
starts on the same database, and what was acknowledged is looked for (`tests.crash.check`).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from traceback import format_exception
from typing import Any, Final

import httpx

from canonical.event import RunStarted
from tests.crash.check import Checks
from tests.crash.load import Load, heard
from tests.crash.world import World
from tests.gateway.stage import Nursery, Stage, nursery
from tests.serving import listen

_HERE: Final = "tests.crash.agents:"
_ROUNDS_OF_ONE: Final = 8
"""After so many rounds the next ones have a database of their own."""
_MOMENTS: Final = ("first byte", "last byte", "stream", "rest")
_STARTING: Final = 0.25
"""Seconds within which a kill finds a gateway while it starts."""
_BOUND: Final = 60.0


def _nothing(_: object) -> None:
    pass


class _Bytes(httpx.AsyncByteStream):
    """An answer that tells how far it came."""

    def __init__(self, stream: Any, moment: "_Moment") -> None:
        self._stream, self._moment = stream, moment

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._moment.tick("stream")
            yield chunk
        self._moment.tick("last byte")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Moment:
    """Kills the gateway when something has happened so many times."""

    def __init__(self, stage: Stage, kind: str, count: int) -> None:
        self.kind, self._left, self._stage = kind, count, stage

    def tick(self, kind: str) -> None:
        if kind == self.kind:
            self._left -= 1
            if self._left == 0:
                self._stage.kill()

    async def response(self, response: httpx.Response) -> None:
        self.tick("first byte")
        response.stream = _Bytes(response.stream, self)


class Campaign:
    """`folder` holds a database for some rounds each."""

    def __init__(self, folder: Path, born: Nursery, upstream: Stage, seed: int, together: int) -> None:
        self.random = Random(seed)
        self.kills: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.endings: dict[str, int] = {}
        self.faults: list[str] = []
        self.attempts: dict[str, int] = {}
        self._folder, self._born, self._upstream, self._seed = folder, born, upstream, seed
        self._together = together
        self.after_each: Callable[[Campaign], None] = _nothing
        """Called with the campaign after each round."""
        self._round = 0

    async def rounds(self, count: int) -> None:
        while count > 0:
            some = min(count, _ROUNDS_OF_ONE)
            folder = self._folder / str(self._round)
            folder.mkdir()
            await self._on_one(folder, some)
            count -= some

    async def _on_one(self, folder: Path, count: int) -> None:
        """Rounds on one database."""
        stage = Stage(folder, self._born, {"agents": self._agents(), "limits": {"cancel_grace": 2}})
        world = World()
        load, checks = Load(world, self.random), Checks(stage, world)
        try:
            await stage.start()
            for _ in range(count):
                self._round += 1
                await self._one(stage, load, checks)
                for fault in checks.faults:
                    self.faults.append(f"round {self._round}, seed {self._seed}, {folder}: {fault}")
                checks.faults.clear()
                self.after_each(self)
            if "Traceback" in stage.complaints():
                self.faults.append(f"round {self._round}, seed {self._seed}: a traceback in {folder}/stderr.txt")
        finally:
            await stage.close()
        for total, more in ((self.acknowledged, world.acknowledged), (self.endings, checks.endings)):
            for name, number in more.items():
                total[name] = total.get(name, 0) + number
        for record in stage.records("SELECT pk FROM thread"):
            if isinstance(record.event, RunStarted) and record.event.attempt > 1:
                name = "went on" if record.event.goes_on else "started over"
                self.attempts[name] = self.attempts.get(name, 0) + 1

    async def _one(self, stage: Stage, load: Load, checks: Checks) -> None:
        kind = self.random.choice(_MOMENTS)
        moment = _Moment(stage, kind, self.random.randrange(1, 120 if kind == "stream" else 40))
        stage.http.event_hooks = {"response": [heard, moment.response]}
        load.move(stage.http)
        async with asyncio.timeout(_BOUND), asyncio.TaskGroup() as group:
            for work in load.draw(self._together):
                group.create_task(_cut_short(work(), checks))
        await stage.killed()
        self._count(kind)
        checks.upstream_lost = self.random.random() < 0.2
        if checks.upstream_lost:
            await self._upstream.restart()
            self._count("upstream")
        while self.random.random() < 0.3:
            await stage.kill_while_it_starts(self.random.random() * _STARTING)
            self._count("start")
        load.move(await stage.start())
        if checks.upstream_lost and self.random.random() < 0.5:  # while it is being re-attached to
            await self._upstream.restart()
            self._count("upstream")
        await load.send_again()
        await checks.all()

    def _count(self, kind: str) -> None:
        self.kills[kind] = self.kills.get(kind, 0) + 1

    def _agents(self) -> dict[str, Any]:
        idempotent = {name: {"python": _HERE + name, "idempotent": True} for name in ("again", "fickle", "files")}
        far = str(self._upstream.http.base_url).rstrip("/")
        return {
            "plain": {"python": _HERE + "plain"},
            "single": {"python": _HERE + "plain", "concurrency": 1},
            "ask": {"python": _HERE + "ask"},
            "again-ask": {"python": _HERE + "again_and_ask", "idempotent": True},
            "graph": {"python": "tests.crash.graph:graph", "idempotent": True},
            **idempotent,
            "far-acp": {"url": f"{far}/acp", "protocol": "acp", "agent": "again"},
            "far-a2a": {"url": f"{far}/a2a/again", "protocol": "a2a"},
            "far-langgraph": {"url": far, "protocol": "langgraph", "agent": "again"},
            "far-agent-protocol": {"url": f"{far}/agent-protocol", "protocol": "agent-protocol", "agent": "again"},
        }

    @property
    def told(self) -> str:
        return f"{self._round} rounds, {sum(self.kills.values())} kills, {len(self.faults)} faults"

    def summary(self) -> str:
        def told(name: str, counts: dict[str, int]) -> str:
            listed = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items(), key=lambda each: -each[1]))
            return f"{name}: {sum(counts.values())} ({listed})"

        lines = [
            told("kills", self.kills),
            told("acknowledged writes", self.acknowledged),
            told("runs looked at in every protocol", self.endings),
            told("attempts after the first", self.attempts),
            f"faults: {len(self.faults)}",
            *self.faults,
        ]
        return "\n".join(lines)


async def _cut_short(work: Any, checks: Checks) -> None:
    """Whatever is done ends with the gateway."""
    with suppress(httpx.TransportError):
        try:
            await work
        except httpx.TransportError:
            raise
        except Exception as error:
            checks.fault("broke", "".join(format_exception(error)) if not isinstance(error, AssertionError) else error)


@asynccontextmanager
async def campaign(folder: Path, seed: int, *, together: int = 14) -> AsyncGenerator[Campaign]:
    """With another gateway, whose agent is also behind the one that is killed; now and then it is killed as well.
    `together` = things that are done at the same time."""
    far = folder / "upstream"
    far.mkdir()
    settings = {"agents": {"again": {"python": _HERE + "again", "idempotent": True}}}
    async with nursery() as its, nursery() as born:
        with listen() as free:
            port = free.getsockname()[1]
        upstream = Stage(far, its, settings, port)
        await upstream.start()
        try:
            yield Campaign(folder, born, upstream, seed, together)
        finally:
            await upstream.close()
