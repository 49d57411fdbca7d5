"""Many runs on one gateway that is killed at a chosen frame, and the frames that each caller had received by then."""

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
from tests.pairs.ag_ui import AgUi
from tests.pairs.agent_client import AgentClient
from tests.pairs.anthropic import Anthropic
from tests.pairs.caller import Caller, Feed, TaskView
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.pairs.vercel_ui import VercelUi

RESTARTED: Final = "stopped during the run. The rest of the run cannot be read from the agent"
"""Text of the fault of a run that a kill has ended."""


def nothing() -> None:
    pass


def was_cut(snapshot: TaskView) -> bool:
    return snapshot.state == "failed" and RESTARTED in snapshot.fault


@dataclass(eq=False)
class Part:
    """Caller and its task."""

    caller: Caller
    text: str
    feed: Feed | None = None
    answering: Feed | None = None
    puppet: Puppet | None = None
    task_id: str = ""
    """Id of the task, once the gateway has acknowledged it."""
    acknowledged: bool = False
    """True if the gateway has acknowledged the answer or the cancel request."""
    listed: bytes = b""
    """Events of the task in ACP while it is idle."""
    has_text: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the caller has received text of the agent."""

    @property
    def agent(self) -> str:
        return self.caller.agent

    async def follow(self, feed: Feed, each: Callable[[], None]) -> None:
        """Call `each` after every frame, up to the end of the feed or of the gateway."""
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
        """Start the task, and wait only until the gateway has accepted it."""
        message = {"role": "user", "parts": [{"content": self.text}]}
        body = {"agent_name": self.agent, "input": [message], "mode": "async"}
        if self.caller.context_id is not None:
            body["session_id"] = self.caller.context_id
        with suppress(httpx.TransportError):
            response = await self.caller.http.post("/acp/runs", json=body)
            assert response.status_code == 202, response.text
            self.task_id = response.headers["run-id"]

    def move(self, http: httpx.AsyncClient) -> None:
        """Switch to the next gateway."""
        self.caller.http = http

    async def events(self) -> bytes:
        """Return all events of the task in ACP."""
        response = await self.caller.http.get(f"/acp/runs/{self.task_id}/events")
        assert response.status_code == 200, response.text
        return response.content

    async def look(self) -> TaskView:
        return await Acp(self.caller.http, self.agent).look(self.task_id)

    async def settle(self) -> TaskView:
        """Wait until the task stops."""
        async with Acp(self.caller.http, self.agent).replay(self.task_id) as feed:
            return await feed.end()

    async def check_resume(self, words: int = 3) -> None:
        """Check that a reader that reconnects receives exactly the rest, while the agent sends so many more words."""
        puppet = self.puppet
        assert self.feed is not None and puppet is not None
        async with self.caller.reconnect(self.feed) as back:
            puppet.say(words)
            puppet.end()
            snapshot = await back.end()
        assert snapshot.state == "completed", snapshot
        async with self.caller.replay(self.task_id) as whole:
            assert await whole.end() == snapshot
        assert self.feed.frames + back.frames == whole.frames
        assert snapshot.text == puppet.content
        looked, later = (await self.caller.look(self.task_id)).lasting, self.caller.later(snapshot)
        assert looked == later, f"{self.caller.name}, {self.agent}: {looked} != {later}"

    async def check_shown(self) -> None:
        """Check that a replay of the task begins with the frames that were shown before, byte for byte."""
        earlier: list[bytes | None] = []
        if self.feed is not None:
            earlier += self.feed.frames
        if self.answering is not None:
            repeated = self.caller.repeated(self.answering.frames)
            # A stream that begins with the current task shows it instead of the event of the answer.
            earlier += [None] * (len(self.answering.frames) - len(repeated)) + repeated
        replayed: list[bytes] = []
        async with self.caller.replay(self.task_id) as feed:
            while len(feed.frames) < len(earlier) and await feed.next():
                pass
            replayed = feed.frames
        assert len(replayed) == len(earlier), f"{self.text}: {len(earlier)} frames shown, {len(replayed)} replayed"
        differ = [(one, other) for one, other in zip(earlier, replayed, strict=True) if one not in (None, other)]
        assert not differ, f"{self.text}: {differ[0]}"


async def together(work: Sequence[Awaitable[Any]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(_of(each))


async def _of(each: Awaitable[Any]) -> None:
    await each


class Scene:
    """Many runs on one gateway."""

    def __init__(self, stage: Stage, puppets: Puppets, frames: int, seed: int) -> None:
        self.stage = stage
        self.puppets = puppets
        self.moment = Moment(frames, stage)
        self.random = random.Random(seed)
        self.parts: list[Part] = []

    def cast(self, agent: str, count: int, *callers: type[Caller]) -> list[Part]:
        callers = callers or (Acp, JsonRpc10, VercelUi, AgentClient)
        parts = [
            Part(callers[number % len(callers)](self.stage.http, agent), f"{agent}-{number}") for number in range(count)
        ]
        self.parts += parts
        return parts

    @property
    def acknowledged(self) -> list[Part]:
        return [part for part in self.parts if part.task_id]

    def pacing(self, part: Part) -> Callable[[], None]:
        """Return the callback for every frame that the caller receives. It counts the frame for the kill and, once
        frames are counted, lets the agent send another word."""

        def each() -> None:
            assert part.feed is not None
            if part.feed.task.text:
                part.has_text.set()
            if part.puppet is not None and self.moment.armed:
                part.puppet.say()
            self.moment.tick()

        return each

    async def stream(self, group: asyncio.TaskGroup, part: Part) -> None:
        """Start the task in the group, and wait for its first word."""
        group.create_task(part.play(self.pacing(part)))
        part.puppet = await self.puppets.called(part.text)
        part.puppet.say()
        await within(part.has_text.wait(), f"the first word of {part.text}")

    def move(self, http: httpx.AsyncClient) -> None:
        for part in self.parts:
            part.move(http)

    async def check_kept(self) -> None:
        """Check that every acknowledged task is stored, with all that was shown of it."""
        stored = {task_id for (task_id,) in self.stage.rows("SELECT task_id FROM task")}
        assert {part.task_id for part in self.acknowledged} <= stored
        await together([part.check_shown() for part in self.acknowledged])

    async def check_that_another_kill_changes_nothing(self) -> None:
        events = [await part.events() for part in self.acknowledged]
        before = self._of_acknowledged()
        self.move(await self.stage.restart())
        assert [await part.events() for part in self.acknowledged] == events
        assert self._of_acknowledged() == before

    def _of_acknowledged(self) -> list[Record]:
        """Return the records of acknowledged tasks. Tasks whose acknowledgement was lost may still be running."""
        mine = {part.task_id for part in self.acknowledged}
        records = self.stage.records("SELECT pk FROM thread ORDER BY pk")
        found = [record for record in records if record.task_id in mine]
        assert {record.task_id for record in found} == mine
        return found


class Company(Scene):
    """More than fifty runs, in every state in which a gateway can be killed."""

    def __init__(self, stage: Stage, puppets: Puppets, frames: int) -> None:
        super().__init__(stage, puppets, frames, seed=frames)
        self.done = self.cast("echo", 8)
        self.paused = [*self.cast("ask", 6), *self.cast("far-ask", 2)]
        self.answered = self.cast("approve", 4)
        """Runs whose question is answered shortly before the kill. At the same time, the runs in `cancelled` are
        cancelled, and those in `late` are started."""
        self.cancelling = self.cast("stubborn", 4)
        self.queue = self.cast("single", 7, Acp)
        self.streams = self.cast("paced", 9, Acp, JsonRpc10, AgUi, Anthropic)
        self.cancelled = [Part(Acp(stage.http, "paced"), f"cancelled-{number}") for number in range(3)]
        self.again = self.cast(
            "again", 9, Acp, Acp, JsonRpc10, JsonRpc10, LangGraph, LangGraph, AgentProtocol, AgUi, Anthropic
        )
        self.far = [
            *self.cast("far", 5, Acp, JsonRpc10, LangGraph, AgentProtocol, AgUi, VercelUi, Anthropic),
            *self.cast("far-a2a", 2, JsonRpc10, LangGraph),
            *self.cast("far-langgraph", 4, Acp, JsonRpc10, LangGraph, AgentProtocol),
        ]
        self.late = [Part(Acp(stage.http, "echo"), f"late-{number}") for number in range(6)]
        self.attempts: dict[str, int] = {}
        """Number of each run's last attempt before the last kill, by task id."""
        self.parts += [*self.cancelled, *self.late]

    async def play(self) -> None:
        """Start all runs, and continue until the gateway is killed."""
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
        """Start the runs of `cancelling`, whose agents ignore a cancel request, and cancel them. Also start those of
        `queue`, of which only the first one gets a slot."""
        for part in (*self.cancelling, self.queue[0]):
            group.create_task(part.play(nothing))
        for part in self.cancelling:
            task_id = (await self.puppets.called(part.text)).task_id
            assert (await Acp(self.stage.http, "stubborn").cancel(task_id)).state == "cancelling"
        running = await self.puppets.called(self.queue[0].text)
        running_task = await Acp(self.stage.http, "single").look(running.task_id)
        self.queue[
            2
        ].caller.context_id = running_task.context_id  # on the thread of the running task, first in its queue
        for part in self.queue[1:]:
            await part.post()

    async def _when(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait until a random number of frames, from 0 to 11, is left before the kill, and then do the work."""
        try:
            await self.moment.reached(max(1, self.moment.frames - self.random.randrange(12)))
            await work
        finally:
            work.close()

    async def check_stopped(self, cut: int) -> None:
        """Check all runs that do not continue after the kill. `cut` is the number of queued runs that had begun."""
        for part in (*self.done, *self.paused):
            assert await part.events() == part.listed
        for part in self.cancelling:
            assert (await part.look()).state == "cancelled"
        for part in (*self.streams, *self.queue[:cut]):
            snapshot = await part.look()
            assert was_cut(snapshot), snapshot
        for part in self.cancelled:
            snapshot = await part.look()
            assert snapshot.state == "cancelled" or (was_cut(snapshot) and not part.acknowledged)

    async def check_queue(self, cut: int) -> None:
        """Check that the queued runs start one after the other."""
        for part in self.queue[cut:]:
            (await self.puppets.called(part.text)).end()
            assert (await part.settle()).state == "completed"
        ran = [puppet.text for puppet in self.puppets.order if puppet.text.startswith("single")]
        assert ran == [part.text for part in self.queue]

    async def restart(self) -> None:
        """Kill the gateway unless it is dead, and start the next one."""
        await self.stage.killed()
        self.attempts = dict[str, int](self.stage.rows("SELECT task_id, attempt FROM run"))
        self.move(await self.stage.start())

    async def check_resume(self) -> None:
        """Check that idempotent runs are started again, and that runs of remote agents are followed to their end.

        A restarted run sends its words again, more or fewer than before. Only its last attempt counts.
        """
        await together(
            [
                *(part.check_resume() for part in self.far),
                *(self._check_restarted(part, number) for number, part in enumerate(self.again)),
            ]
        )

    async def _check_restarted(self, part: Part, number: int) -> None:
        """Check one restarted run. The gateway restarts one at a time: the next one waits until this one ends."""
        assert part.puppet is not None
        count = len(part.puppet.words) + 3
        part.puppet = await self.puppets.called(part.text, self.attempts[part.task_id] + 1)
        await part.check_resume(count if number % 2 else 1)

    async def check_last_moment(self) -> None:
        """Check that everything that was acknowledged shortly before the kill is stored."""
        for number, part in enumerate(self.answered):
            snapshot = await part.settle()
            if was_cut(snapshot):
                continue
            (question,) = snapshot.questions
            assert question.text == "Second?" or (question.text == "First?" and not part.acknowledged)
            if question.text == "First?":
                await part.caller.answer(await part.caller.look(part.task_id), str(number))
            snapshot = await part.caller.answer(await part.caller.look(part.task_id), "Bob")
            assert (snapshot.state, snapshot.text) == ("completed", f"Two questions. {number} and Bob.")
        for part in self.late:
            if part.task_id:
                snapshot = await part.settle()
                assert was_cut(snapshot) or (snapshot.state, snapshot.text) == ("completed", part.text)

    async def check_paused(self) -> None:
        """Check that paused tasks can be answered and then complete."""
        for part in self.paused:
            snapshot = await part.caller.answer(await part.caller.look(part.task_id), "Ada")
            assert (snapshot.state, snapshot.text) == ("completed", "Hello, Ada.")
