"""Many runs on one gateway that is killed at some moment, and what each of their callers was told until then."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from babelgate.canonical import Record
from tests.gateway.hubs import within
from tests.gateway.stage import Moment, Puppet, Puppets, Stage
from tests.pairs.a2a import JsonRpc10
from tests.pairs.acp import Acp
from tests.pairs.caller import Caller, Feed, Seen
from tests.pairs.langgraph import AgentProtocol, LangGraph

RESTARTED: Final = "stopped during the run. The rest of the run cannot be read from the agent"
"""What the gateway says of a run that a kill has ended."""


def nothing() -> None:
    pass


def was_cut(seen: Seen) -> bool:
    return seen.state == "failed" and RESTARTED in seen.fault


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
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Words of its agent have reached the caller."""

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

    async def check_going_on(self, words: int = 3) -> None:
        """A reader that comes back is told exactly the rest, without a gap and without a repetition; the agent says so
        many words."""
        puppet = self.puppet
        assert self.feed is not None and puppet is not None
        async with self.caller.come_back(self.feed) as back:
            puppet.say(words)
            puppet.end()
            seen = await back.end()
        assert seen.state == "completed", seen
        async with self.caller.replay(self.task_id) as whole:
            assert await whole.end() == seen
        assert self.feed.frames + back.frames == whole.frames
        assert seen.text == puppet.said
        looked, later = (await self.caller.look(self.task_id)).lasting, self.caller.later(seen)
        assert looked == later, f"{self.caller.name}, {self.agent}: {looked} != {later}"

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
        """Whenever the caller is told something, the agent says another word."""

        def each() -> None:
            assert part.feed is not None
            if part.feed.seen.text:
                part.heard.set()
            if part.puppet is not None and self.moment.armed:
                part.puppet.say()
            self.moment.tick()

        return each

    async def stream(self, group: asyncio.TaskGroup, part: Part) -> None:
        """It goes on in the group, from its first word on."""
        group.create_task(part.play(self.pacing(part)))
        part.puppet = await self.puppets.called(part.text)
        part.puppet.say()
        await within(part.heard.wait(), f"the first word of {part.text}")

    def move(self, http: httpx.AsyncClient) -> None:
        for part in self.parts:
            part.move(http)

    async def check_kept(self) -> None:
        """Every task that was acknowledged is there, with all that was shown of it."""
        known = {task_id for (task_id,) in self.stage.rows("SELECT task_id FROM task")}
        assert {part.task_id for part in self.acknowledged} <= known
        await together([part.check_shown() for part in self.acknowledged])

    async def check_that_another_kill_changes_nothing(self) -> None:
        shown = [await part.events() for part in self.acknowledged]
        before = self._of_acknowledged()
        self.move(await self.stage.restart())
        assert [await part.events() for part in self.acknowledged] == shown
        assert self._of_acknowledged() == before

    def _of_acknowledged(self) -> list[Record]:
        """Their records. Those of others, whose acknowledgement was lost, may be at work for a while longer."""
        mine = {part.task_id for part in self.acknowledged}
        records = self.stage.records("SELECT pk FROM thread ORDER BY pk")
        found = [record for record in records if record.task_id in mine]
        assert {record.task_id for record in found} == mine
        return found


class Company(Scene):
    """Fifty runs and more, of every kind that a gateway can be killed in."""

    def __init__(self, stage: Stage, strings: Puppets, frames: int) -> None:
        super().__init__(stage, strings, frames, seed=frames)
        self.done = self.cast("echo", 8)
        self.paused = [*self.cast("ask", 6), *self.cast("far-ask", 2)]
        self.answered = self.cast("approve", 4)
        """While the kill comes; and so are those that are cancelled, and those that are late."""
        self.cancelling = self.cast("stubborn", 4)
        self.queue = self.cast("single", 7, Acp)
        self.streams = self.cast("paced", 8)
        self.cancelled = [Part(Acp(stage.http, "paced"), f"cancelled-{number}") for number in range(3)]
        self.again = self.cast(
            "again", 8, Acp, Acp, JsonRpc10, JsonRpc10, LangGraph, LangGraph, AgentProtocol, AgentProtocol
        )
        self.far = [
            *self.cast("far", 4, Acp, JsonRpc10, LangGraph, AgentProtocol),
            *self.cast("far-a2a", 2, JsonRpc10, LangGraph),
            *self.cast("far-langgraph", 4, Acp, JsonRpc10, LangGraph, AgentProtocol),
        ]
        self.late = [Part(Acp(stage.http, "echo"), f"late-{number}") for number in range(6)]
        self.attempts: dict[str, int] = {}
        """Number of each run's last attempt before the last kill, by task."""
        self.parts += [*self.cancelled, *self.late]

    async def play(self) -> None:
        """Until the gateway is killed."""
        await together([part.play(nothing) for part in (*self.done, *self.paused, *self.answered)])
        for part in (*self.done, *self.paused):
            part.listed = await part.events()
        assert {(await part.look()).state for part in self.paused} == {"input_required"}
        speaking = (*self.streams, *self.cancelled, *self.again, *self.far)
        async with asyncio.TaskGroup() as group:
            await self._stand(group)
            for part in speaking:
                await self.stream(group, part)
            self.moment.armed = True
            for part in speaking:
                assert part.puppet is not None
                part.puppet.say(3)
            for number, part in enumerate(self.answered):
                group.create_task(self._when(part.answer(str(number), self.moment.tick)))
            for work in (*(part.cancel() for part in self.cancelled), *(part.post() for part in self.late)):
                group.create_task(self._when(work))
        assert self.stage.dead

    async def _stand(self, group: asyncio.TaskGroup) -> None:
        """Those that refuse to be cancelled, and those that wait in a queue."""
        for part in (*self.cancelling, self.queue[0]):
            group.create_task(part.play(nothing))
        for part in self.cancelling:
            task_id = (await self.puppets.called(part.text)).task_id
            assert (await Acp(self.stage.http, "stubborn").cancel(task_id)).state == "cancelling"
        running = await self.puppets.called(self.queue[0].text)
        seen = await Acp(self.stage.http, "single").look(running.task_id)
        self.queue[2].caller.context_id = seen.context_id  # behind the one that runs, and the first there
        for part in self.queue[1:]:
            await part.post()

    async def _when(self, work: Coroutine[Any, Any, None]) -> None:
        """Shortly before the kill."""
        try:
            await self.moment.reached(max(1, self.moment.frames - self.random.randrange(12)))
            await work
        finally:
            work.close()

    async def check_stopped(self, cut: int) -> None:
        """All that does not go on. Of the queue, so many had begun."""
        for part in (*self.done, *self.paused):
            assert await part.events() == part.listed
        for part in self.cancelling:
            assert (await part.look()).state == "cancelled"
        for part in (*self.streams, *self.queue[:cut]):
            seen = await part.look()
            assert was_cut(seen), seen
        for part in self.cancelled:
            seen = await part.look()
            assert seen.state == "cancelled" or (was_cut(seen) and not part.acknowledged)

    async def check_queue(self, cut: int) -> None:
        """What waited runs, one after the other."""
        for part in self.queue[cut:]:
            (await self.puppets.called(part.text)).end()
            assert (await part.settle()).state == "completed"
        ran = [puppet.text for puppet in self.puppets.order if puppet.text.startswith("single")]
        assert ran == [part.text for part in self.queue]

    async def restart(self) -> None:
        """Kill the gateway, unless it is dead, and start the next one."""
        await self.stage.killed()
        self.attempts = dict[str, int](self.stage.rows("SELECT task_id, attempt FROM run"))
        self.move(await self.stage.start())

    async def check_going_on(self) -> None:
        """What may be started again is: it says everything again, and more or less than before, and the last attempt
        holds. What goes on elsewhere is heard to its end."""
        await together(
            [
                *(part.check_going_on() for part in self.far),
                *(self._check_restarted(part, number) for number, part in enumerate(self.again)),
            ]
        )

    async def _check_restarted(self, part: Part, number: int) -> None:
        """The gateway starts one such run at a time: the next one waits until this one ends."""
        assert part.puppet is not None
        more = len(part.puppet.words) + 3
        part.puppet = await self.puppets.called(part.text, self.attempts[part.task_id] + 1)
        await part.check_going_on(more if number % 2 else 1)

    async def check_last_moment(self) -> None:
        """Of what was done while the kill came, all is there that was acknowledged."""
        for number, part in enumerate(self.answered):
            seen = await part.settle()
            if was_cut(seen):
                continue
            (asked,) = seen.questions
            assert asked.text == "Second?" or (asked.text == "First?" and not part.acknowledged)
            if asked.text == "First?":
                await part.caller.answer(await part.caller.look(part.task_id), str(number))
            seen = await part.caller.answer(await part.caller.look(part.task_id), "Bob")
            assert (seen.state, seen.text) == ("completed", f"Two questions. {number} and Bob.")
        for part in self.late:
            if part.task_id:
                seen = await part.settle()
                assert was_cut(seen) or (seen.state, seen.text) == ("completed", part.text)

    async def check_paused(self) -> None:
        """They get their answers at last."""
        for part in self.paused:
            seen = await part.caller.answer(await part.caller.look(part.task_id), "Ada")
            assert (seen.state, seen.text) == ("completed", "Hello, Ada.")
