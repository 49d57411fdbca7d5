"""What callers do at the same time, in every protocol."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from random import Random
from typing import Any, Final
from uuid import UUID

import httpx

from tests import loopback
from tests.crash.agents import NAME, SLOW
from tests.crash.world import Deed, Known, Run, World
from tests.pairs.a2a import JsonRpc03, JsonRpc10, Rest03, Rest10
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.caller import Caller, Ids
from tests.pairs.langgraph import AgentProtocol, LangGraph

CALLERS: Final[tuple[type[Caller], ...]] = (
    Acp,
    JsonRpc10,
    JsonRpc03,
    Rest10,
    Rest03,
    LangGraph,
    AgentProtocol,
    Aief,
)
REPEATABLE: Final = ("again", "fickle", "files", "again-ask", "graph")
CANCELLING: Final[tuple[type[Caller], ...]] = (Acp, JsonRpc10, JsonRpc03, LangGraph)
FAR: Final = ("far-acp", "far-a2a", "far-langgraph", "far-agent-protocol")
STATEFUL: Final = ("graph", "far-langgraph")
"""They have a state of their own, which is all that LangGraph's callers are shown of a run that is over."""
ASKING: Final = ("ask", "again-ask")
AGENTS: Final = ("plain", "single", *REPEATABLE, "ask", *FAR)
_KEYS: Final = 6
"""Of store items: few, so that each is written again and again."""

_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


async def heard(response: httpx.Response) -> None:
    """The head of an answer names what was created."""
    run = _RUN.get()
    if run is not None and response.is_success and "babelgate-task" in response.headers:
        run.task_id = Ids.of(response.headers).task


class Load:
    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.http: httpx.AsyncClient = loopback.client()
        """Of the gateway that runs."""
        self.comes_back = False
        """Callers whose stream is cut off come back to it at once, and most of their agents take their time."""
        self._number = 0
        self._keyed: list[tuple[str, str, str, Deed]] = []
        """Uploads: task, name and key."""
        self._busy: set[Any] = set()
        """What somebody is changing: two at once would leave no one value to expect."""

    def draw(self, count: int) -> list[Callable[[], Awaitable[None]]]:
        """So many things to do."""
        kinds = {
            self.start: 12,
            self.answer: 3,
            self.cancel: 2,
            self.queue: 2,
            self.run_alone: 1,
            self.create_thread: 2,
            self.change_thread: 1,
            self.delete_thread: 2,
            self.put_item: 2,
            self.delete_item: 1,
            self.upload: 2,
            self.push: 1,
        }
        return self.random.choices(list(kinds), list(kinds.values()), k=count)

    def _new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def move(self, http: httpx.AsyncClient) -> None:
        """To the gateway that comes after."""
        self.http = http
        for run in self.world.runs:
            run.caller.http = http
        self._busy.clear()

    def _take(self, found: list[Any]) -> Any:
        """One that nobody is at; None if there is none."""
        free = [each for each in found if each not in self._busy]
        if not free:
            return None
        taken = self.random.choice(free)
        self._busy.add(taken)
        return taken

    # Runs

    async def start(self) -> None:
        """A run, streamed where the protocol has streams, or waited for."""
        self._number += 1
        made, agent = self.random.choice(CALLERS), self.random.choice(AGENTS)
        pace = f"-{SLOW}" if self.comes_back and self.random.random() < 0.7 else ""
        await self._begin(Run(made(self.http, agent), f"{agent}-{self._number}{pace}"))

    async def _begin(self, run: Run) -> None:
        self.world.runs.append(run)
        with self._hearing(run):
            if not run.caller.follows or self.random.random() < 0.2:
                await run.caller.send(run.text)
            else:
                try:
                    async with run.caller.stream(run.text) as run.feed:
                        await run.feed.end()
                except httpx.TransportError:
                    if not (self.comes_back and run.task_id and run.feed):
                        raise
                if self.comes_back:
                    await self._come_back(run)

    async def _come_back(self, run: Run) -> None:
        """As often as the stream is cut off before the run stops."""
        while not run.deleted:
            with suppress(httpx.TransportError):
                try:
                    if (await Acp(self.http, run.agent).look(run.task_id)).state not in ("submitted", "working"):
                        return
                    assert run.feed is not None
                    async with run.caller.come_back(run.feed) as back:
                        try:
                            await back.end()
                        finally:
                            run.feed.extend(back)
                except AssertionError:
                    if not run.deleted:  # since
                        raise

    @contextmanager
    def _hearing(self, run: Run) -> Generator[None]:
        """Whatever is answered meanwhile is about this run."""
        token = _RUN.set(run)
        try:
            yield
        finally:
            _RUN.reset(token)
            if run.task_id:
                self.world.count("run")

    async def answer(self) -> None:
        """In any protocol, whichever asked."""
        run = self._take([r for r in self.world.runs if r.settled and not r.answering and r.agent in ASKING])
        if run is None or run.deleted or run.cancelling:
            return
        caller = self.random.choice([each for each in CALLERS if each is not Aief])(self.http, run.agent)
        asked = await caller.look(run.task_id)
        if not asked.questions:
            return
        run.answering, run.settled = True, False
        answered = await caller.answer(asked, NAME)
        assert not answered.questions, answered
        run.answered = True
        self.world.count("answer")

    async def cancel(self) -> None:
        """A run that has begun, in any protocol that can."""
        self._number += 1
        made, canceller = self.random.choice(CANCELLING), self.random.choice(CANCELLING)
        run = Run(made(self.http, agent := self.random.choice(AGENTS)), f"{agent}-{self._number}")
        self.world.runs.append(run)
        patience = self.random.randrange(1, 8)
        with self._hearing(run):
            async with run.caller.stream(run.text) as run.feed:
                while patience > 0 and await run.feed.next():
                    patience -= 1
                run.cancelling = True
                with suppress(AssertionError):  # it was over by then
                    await canceller(self.http, agent).cancel(run.task_id)
                    run.cancelled = True
                    self.world.count("cancel")
                await run.feed.end()

    async def queue(self) -> None:
        """Runs of one conversation, which take turns or each other's place."""
        thread_id = self._new_id()
        await self.http.post("/threads", json={"thread_id": thread_id})
        for _ in range(self.random.randrange(2, 5)):
            self._number += 1
            agent = self.random.choice(("plain", "again", "single"))
            run = Run(LangGraph(self.http, agent), f"{agent}-{self._number}", cancelling=True)
            self.world.runs.append(run)
            said = {"messages": [{"role": "user", "content": run.text}]}
            strategy = self.random.choice(("enqueue", "enqueue", "interrupt", "rollback"))
            late = {"after_seconds": 1} if self.random.random() < 0.2 else {}
            body = {"assistant_id": agent, "input": said, "multitask_strategy": strategy, **late}
            with self._hearing(run):
                answer = await self.http.post(f"/threads/{thread_id}/runs", json=body)
                assert answer.status_code == 200, answer.text

    async def run_alone(self) -> None:
        """A run of no thread that stays."""
        self._number += 1
        agent = self.random.choice(("plain", "again"))
        run = Run(LangGraph(self.http, agent), f"{agent}-{self._number}", deleted=True)
        self.world.runs.append(run)
        body = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": run.text}]}}
        with self._hearing(run):
            answer = await self.http.post(f"/runs/{self.random.choice(('wait', 'stream'))}", json=body)
            assert answer.status_code == 200, answer.text

    # Threads

    async def create_thread(self) -> None:
        thread_id, number = self._new_id(), self.random.randrange(1000)
        known = self.world.threads[thread_id] = Known()
        self._busy.add(thread_id)
        deed = Deed(known, {"number": number})
        body = {"thread_id": thread_id, "metadata": {"number": number}}
        await self._post("/threads", body, deed, "thread")
        self._number += 1
        run = Run(LangGraph(self.http, "plain"), f"plain-{self._number}")
        run.caller.context_id = thread_id
        if self.random.random() < 0.7:
            await self._begin(run)
            return
        self.world.runs.append(run)  # and is deleted while the run is at work
        run.deleted = True
        deed = Deed(known, None)
        body = {"assistant_id": "plain", "input": {"messages": [{"role": "user", "content": run.text}]}}
        with self._hearing(run):
            answer = await self.http.post(f"/threads/{thread_id}/runs", json=body)
            assert answer.status_code == 200, answer.text
        self._done(await self.http.delete(f"/threads/{thread_id}"), deed, "thread deleted")

    async def change_thread(self) -> None:
        thread_id = self._take([each for each, known in self.world.threads.items() if _is_there(known)])
        if thread_id is not None:
            number = self.random.randrange(1000)
            deed = Deed(self.world.threads[thread_id], {"number": number})
            answer = await self.http.patch(f"/threads/{thread_id}", json={"metadata": {"number": number}})
            self._done(answer, deed, "thread changed")

    async def delete_thread(self) -> None:
        """At rest or at work."""
        thread_id = self._take([each for each, known in self.world.threads.items() if _is_there(known)])
        if thread_id is None:
            return
        for run in self.world.runs:
            run.deleted = run.deleted or run.caller.context_id == thread_id
        deed = Deed(self.world.threads[thread_id], None)
        self._done(await self.http.delete(f"/threads/{thread_id}"), deed, "thread deleted")

    # Other things that are kept

    async def put_item(self) -> None:
        key = self._take([f"key-{number}" for number in range(_KEYS)])
        if key is not None:
            value = {"number": self.random.randrange(1000)}
            deed = Deed(self.world.items.setdefault(key, Known()), value)
            body = {"namespace": ["crash"], "key": key, "value": value}
            self._done(await self.http.put("/store/items", json=body), deed, "item")

    async def delete_item(self) -> None:
        key = self._take([key for key, known in self.world.items.items() if _is_there(known)])
        if key is not None:
            deed = Deed(self.world.items[key], None)
            body = {"namespace": ["crash"], "key": key}
            answer = await self.http.request("DELETE", "/store/items", json=body)
            self._done(answer, deed, "item deleted")

    async def upload(self) -> None:
        """Files of a new AIEF task, which then has its step."""
        self._number += 1
        caller = Aief(self.http, "again")
        run = Run(caller, f"again-{self._number}")
        task_id = await caller.create(run.text)
        self.world.count("AIEF task")
        files = self.world.uploads[task_id] = {}
        for number in range(self.random.randrange(1, 4)):
            name = f"{number}.txt"
            deed = Deed(files.setdefault(name, Known(0)), 1)
            key = self._new_id() if self.random.random() < 0.5 else None
            if key is not None:  # then it can be sent again
                self._keyed.append((task_id, name, key, deed))
            self._done(await self._send(task_id, name, key), deed, "upload")
        self.world.runs.append(run)
        with self._hearing(run):
            await caller.step()

    async def _send(self, task_id: str, name: str, key: str | None) -> httpx.Response:
        url = f"/agent/again/ap/v1/agent/tasks/{task_id}/artifacts"
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.http.post(url, files={"file": (name, name.encode(), "text/plain")}, headers=headers)

    async def send_again(self) -> None:
        """Uploads with a key, whether they were acknowledged or not."""
        for task_id, name, key, deed in self._keyed:
            self._done(await self._send(task_id, name, key), deed, "upload again")
        self._keyed.clear()

    async def push(self) -> None:
        run = self._take([r for r in self.world.runs if r.task_id and not r.deleted])
        if run is None:
            return
        config_id = self._new_id()
        known = self.world.hooks[run.task_id, config_id] = Known()
        url = "http://127.0.0.1:9/hook"
        config = {"id": config_id, "url": url, "taskId": run.task_id}
        body = {"jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig", "params": config}
        deed = Deed(known, url)
        answer = await self.http.post(f"/a2a/{run.agent}", json=body, headers={"A2A-Version": "1.0"})
        self._done(answer, deed, "push configuration")

    async def _post(self, path: str, body: Any, deed: Deed, kind: str) -> None:
        self._done(await self.http.post(path, json=body), deed, kind)

    def _done(self, answer: httpx.Response, deed: Deed, kind: str) -> None:
        assert answer.is_success, f"{kind}: {answer.status_code} {answer.text}"
        deed.acknowledged()
        self.world.count(kind)


def _is_there(known: Known) -> bool:
    return known.value is not None and not known.doubt
