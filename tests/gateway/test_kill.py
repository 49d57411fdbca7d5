"""Gateways killed with SIGKILL: what was acknowledged or shown is there after the restart, and everything goes on as if
its caller had noticed nothing, or ends with words that say why it cannot."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from tests.gateway.hubs import within
from tests.gateway.stage import Moment, Nursery, Puppet, Puppets, Stage, nursery, puppets
from tests.gateway.victim import ask, paced
from tests.pairs.a2a import JsonRpc10
from tests.pairs.acp import Acp
from tests.pairs.caller import Caller, Feed, Seen
from tests.running import running
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESTARTED: Final = "The gateway stopped while the agent was at work, and the agent can neither be asked for the rest"


@dataclass(frozen=True)
class Theatre:
    nursery: Nursery
    puppets: Puppets
    upstream: str
    """URL of a gateway that nobody kills."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def theatre(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Theatre]:
    async with puppets() as strings, running(tmp_path_factory.mktemp("up"), {"paced": paced, "ask": ask}) as upstream:
        async with nursery() as born:
            yield Theatre(born, strings, upstream.url)


@pytest_asyncio.fixture(loop_scope="module")
async def stage(theatre: Theatre, tmp_path: Path) -> AsyncGenerator[Stage]:
    theatre.puppets.order.clear()
    theatre.puppets.ending = False
    here = "tests.gateway.victim:"
    far = {"url": f"{theatre.upstream}/acp", "protocol": "acp"}
    agents: dict[str, Any] = {
        "echo": {"python": "gateway.demo:echo"},
        "ask": {"python": here + "ask"},
        "approve": {"python": here + "approve"},
        "paced": {"python": here + "paced"},
        "stubborn": {"python": here + "stubborn"},
        "single": {"python": here + "paced", "concurrency": 1},
        "again": {"python": here + "paced", "idempotent": True},
        "far": {**far, "agent": "paced"},
        "far-ask": {**far, "agent": "ask"},
    }
    made = Stage(tmp_path, theatre.nursery, {"agents": agents, "limits": {"cancel_grace": 60}})
    yield made
    theatre.puppets.end_all()  # of the upstream, which goes on
    await made.close()


@dataclass(eq=False)
class Part:
    """One caller and its task."""

    caller: Caller
    text: str
    feed: Feed | None = None
    answering: Feed | None = None
    puppet: Puppet | None = None
    task_id: str = ""
    """Known as soon as the gateway acknowledged it."""
    acknowledged: bool = False
    """What was done to it later."""
    listed: bytes = b""
    """Its events, at a time when nothing happened to it."""
    frames: list[bytes] = field(default_factory=list[bytes])

    @property
    def agent(self) -> str:
        return self.caller.agent

    async def follow(self, feed: Feed, each: Callable[[], None]) -> None:
        """To the end of the feed or of the gateway."""
        with suppress(httpx.TransportError):
            while await feed.next():
                each()

    async def play(self, each: Callable[[], None]) -> None:
        """Start the task and follow it."""
        with suppress(httpx.TransportError):
            async with self.caller.stream(self.text) as self.feed:
                self.task_id = self.feed.ids.task
                await self.follow(self.feed, each)

    async def answer(self, words: str, each: Callable[[], None]) -> None:
        assert self.feed is not None
        with suppress(httpx.TransportError):
            async with self.caller.stream_answer(self.feed, words) as self.answering:
                self.acknowledged = True
                await self.follow(self.answering, each)

    async def cancel(self) -> None:
        with suppress(httpx.TransportError):
            await self.caller.cancel(self.task_id)
            self.acknowledged = True

    async def post(self) -> None:
        """Start the task, and do not wait for more than that it was taken."""
        message = {"role": "user", "parts": [{"content": self.text}]}
        body = {"agent_name": self.agent, "input": [message], "mode": "async"}
        if self.caller.context_id is not None:
            body["session_id"] = self.caller.context_id
        with suppress(httpx.TransportError):
            response = await self.caller.http.post("/acp/runs", json=body)
            assert response.status_code == 202, response.text
            self.task_id = response.headers["run-id"]

    def move(self, http: httpx.AsyncClient) -> None:
        """To the gateway that comes after."""
        self.caller.http = http

    async def events(self) -> bytes:
        """All of its events in ACP."""
        response = await self.caller.http.get(f"/acp/runs/{self.task_id}/events")
        assert response.status_code == 200, response.text
        return response.content

    async def look(self) -> Seen:
        return await Acp(self.caller.http, self.agent).look(self.task_id)

    async def settle(self) -> Seen:
        """Wait until the task stops."""
        async with Acp(self.caller.http, self.agent).replay(self.task_id) as feed:
            return await feed.end()

    async def check_shown(self) -> None:
        """What was shown before is the start of what is shown now, byte by byte."""
        shown: list[bytes | None] = []
        if self.feed is not None:
            shown += self.feed.frames
        if self.answering is not None:
            repeated = self.caller.repeated(self.answering.frames)
            # Where a stream begins with the task as it is, that stands for the event which the answer was.
            shown += [None] * (len(self.answering.frames) - len(repeated)) + repeated
        replayed: list[bytes] = []
        async with self.caller.replay(self.task_id) as feed:
            while len(feed.frames) < len(shown) and await feed.next():
                pass
            replayed = feed.frames
        assert len(replayed) == len(shown), f"{self.text}: {len(shown)} frames were shown, {len(replayed)} are there"
        differ = [(one, other) for one, other in zip(shown, replayed, strict=True) if one not in (None, other)]
        assert not differ, f"{self.text}: {differ[0]}"


async def together(work: Sequence[Awaitable[Any]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(_of(each))


async def _of(each: Awaitable[Any]) -> None:
    await each


class Scene:
    """Fifty runs and more, of every kind, on one gateway."""

    def __init__(self, stage: Stage, strings: Puppets, frames: int, seed: int) -> None:
        self.stage = stage
        self.puppets = strings
        self.moment = Moment(frames, stage)
        self.random = random.Random(seed)
        self.parts: list[Part] = []
        self.going = asyncio.TaskGroup()

    def cast(self, agent: str, count: int, *callers: type[Caller]) -> list[Part]:
        callers = callers or (Acp, JsonRpc10)
        made = [
            Part(callers[number % len(callers)](self.stage.http, agent), f"{agent}-{number}") for number in range(count)
        ]
        self.parts += made
        return made

    @property
    def acknowledged(self) -> list[Part]:
        return [part for part in self.parts if part.task_id]

    def pacing(self, part: Part) -> Callable[[], None]:
        """Whenever a word arrives, the agent says another."""

        def each() -> None:
            if part.puppet is not None:
                part.puppet.say()
            self.moment.tick()

        return each

    async def stream(self, group: asyncio.TaskGroup, part: Part) -> None:
        """It goes on in the group, from its first words on."""
        group.create_task(part.play(self.pacing(part)))
        part.puppet = await self.puppets.called(part.text)
        part.task_id = part.task_id or (part.puppet.task_id if part.agent != "far" else "")

    def move(self, http: httpx.AsyncClient) -> None:
        for part in self.parts:
            part.move(http)

    async def check_kept(self) -> None:
        """Every task that was acknowledged is there, with all that was shown of it."""
        known = {task_id for (task_id,) in self.stage.rows("SELECT task_id FROM task")}
        assert {part.task_id for part in self.acknowledged} <= known
        await together([part.check_shown() for part in self.acknowledged])


def nothing() -> None:
    pass


def was_cut(seen: Seen) -> bool:
    return seen.state == "failed" and seen.fault.startswith(RESTARTED)


async def check_that_another_kill_changes_nothing(stage: Stage, scene: Scene) -> None:
    before = stage.log()
    shown = [await part.events() for part in scene.acknowledged]
    scene.move(await stage.restart())
    assert [await part.events() for part in scene.acknowledged] == shown
    assert stage.log() == before


@pytest.mark.parametrize(("frames", "twice"), [(17, False), (98, True), (230, False)])
async def test_everything_goes_on_after_a_kill(theatre: Theatre, stage: Stage, frames: int, twice: bool) -> None:
    await stage.start()
    strings = theatre.puppets
    scene = Scene(stage, strings, frames, seed=frames)

    done = scene.cast("echo", 8)
    paused = [*scene.cast("ask", 6), *scene.cast("far-ask", 2)]
    answered = scene.cast("approve", 4)
    cancelling = scene.cast("stubborn", 4)
    queue = scene.cast("single", 7, Acp)
    streams = scene.cast("paced", 8)
    cancelled = [Part(Acp(stage.http, "paced"), f"cancel-{number}") for number in range(3)]
    again, far = scene.cast("again", 5), scene.cast("far", 6)
    late = [Part(Acp(stage.http, "echo"), f"late-{number}") for number in range(6)]
    scene.parts += [*cancelled, *late]
    assert len(scene.parts) > 50

    await together([part.play(nothing) for part in (*done, *paused, *answered)])
    for part in (*done, *paused):
        part.listed = await part.events()
    assert {(await part.look()).state for part in paused} == {"input_required"}

    async with asyncio.TaskGroup() as group:
        for part in cancelling:
            group.create_task(part.play(nothing))
        for part in cancelling:
            part.puppet = await strings.called(part.text)
        await together([Acp(stage.http, "stubborn").cancel(part.puppet.task_id) for part in cancelling if part.puppet])
        group.create_task(queue[0].play(nothing))
        first = await strings.called(queue[0].text)
        queue[2].caller.context_id = await thread_of(stage.http, first.task_id)  # behind the one that runs
        for part in queue[1:]:
            await part.post()
        for part in (*streams, *cancelled, *again, *far):
            await scene.stream(group, part)
        strings_of = [part.puppet for part in (*streams, *cancelled, *again, *far) if part.puppet is not None]
        scene.moment.armed = True
        for puppet in strings_of:
            puppet.say(3)

        async def when(count: int, work: Callable[[], Awaitable[Any]]) -> None:
            await scene.moment.reached(max(1, frames - count))
            await work()

        for number, part in enumerate(answered):
            group.create_task(when(scene.random.randrange(12), lambda p=part, n=number: p.answer(f"{n}", scene.moment.tick)))
        for part in cancelled:
            group.create_task(when(scene.random.randrange(12), part.cancel))
        for part in late:
            group.create_task(when(scene.random.randrange(12), part.post))
    assert stage.dead and all(part.task_id for part in (*cancelling, *queue, *streams, *again, *far))

    scene.move(await stage.restart())
    cut, attempt = 1, 2
    if twice:
        await strings.called(queue[1].text)
        scene.move(await stage.restart())
        cut, attempt = 2, 3

    # What had ended or waits for its caller is as it was.
    for part in (*done, *paused):
        assert await part.events() == part.listed
    assert {(await part.look()).state for part in cancelling} == {"cancelled"}
    # What nobody can continue says so.
    for part in (*streams, *queue[:cut]):
        assert was_cut(await part.look())
    for part in cancelled:
        seen = await part.look()
        assert seen.state == "cancelled" or (was_cut(seen) and not part.acknowledged)
    # What was queued runs, one after the other.
    for part in queue[cut:]:
        (await strings.called(part.text)).end()
        assert (await part.settle()).state == "completed"
    ran = [puppet.text for puppet in strings.order if puppet.text.startswith("single")]
    assert ran == [part.text for part in queue]
    # What may be started again is, and says everything again. What goes on elsewhere is heard to its end.
    for part in again:
        part.puppet = await strings.called(part.text, attempt)
    await together([check_going_on(part) for part in (*again, *far)])
    for part in answered:
        seen = await part.settle()
        assert seen.state == "input_required" or (was_cut(seen) and part.answering is not None)
    for part in late:
        if part.task_id:
            seen = await part.settle()
            assert was_cut(seen) or (seen.state, seen.text) == ("completed", part.text)
    await scene.check_kept()

    await check_that_another_kill_changes_nothing(stage, scene)
    for part in paused:
        seen = await part.caller.answer(await part.caller.look(part.task_id), "Ada")
        assert (seen.state, seen.text) == ("completed", "Hello, Ada.")
    await scene.check_kept()
    assert "Traceback" not in stage.complaints()


async def thread_of(http: httpx.AsyncClient, task_id: str) -> str:
    return (await http.get(f"/acp/runs/{task_id}")).headers["babelgate-thread"]


async def check_going_on(part: Part) -> None:
    """A reader that comes back is told exactly the rest, without a gap and without a repetition."""
    puppet = part.puppet
    assert part.feed is not None and puppet is not None
    async with part.caller.come_back(part.feed) as back:
        puppet.say(3)
        puppet.end()
        seen = await back.end()
    assert seen.state == "completed", seen
    async with part.caller.replay(part.task_id) as whole:
        assert await whole.end() == seen
    assert part.feed.frames + back.frames == whole.frames
    assert seen.text.endswith(puppet.said)
    assert puppet.attempt > 1 or seen.text == puppet.said
