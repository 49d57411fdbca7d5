"""Simultaneous actions of callers, in every protocol."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from random import Random
from typing import Any, Final
from uuid import UUID

import httpx

from tests import loopback
from tests.crash.agents import NAME, SLOW
from tests.crash.world import Deed, Entry, Run, World
from tests.pairs.a2a import JsonRpc03, JsonRpc10, Rest03, Rest10
from tests.pairs.acp import Acp
from tests.pairs.ag_ui import AgUi
from tests.pairs.aief import Aief
from tests.pairs.caller import Caller, Ids
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.pairs.vercel_ui import VercelUi

CALLERS: Final[tuple[type[Caller], ...]] = (
    Acp,
    JsonRpc10,
    JsonRpc03,
    Rest10,
    Rest03,
    LangGraph,
    AgentProtocol,
    Aief,
    VercelUi,
    AgUi,
)
REPEATABLE: Final = ("again", "fickle", "files", "again-ask", "graph")
CANCELLING: Final[tuple[type[Caller], ...]] = (Acp, JsonRpc10, JsonRpc03, LangGraph, VercelUi)
FAR: Final = ("far-acp", "far-a2a", "far-langgraph", "far-agent-protocol")
STATEFUL: Final = ("graph", "far-langgraph")
"""Agents with their own state. LangGraph's callers see only that state after the end of a run."""
ASKING: Final = ("ask", "again-ask")
AGENTS: Final = ("plain", "single", *REPEATABLE, "ask", *FAR)
_KEYS: Final = 6
"""Number of keys of store items; small, so that each is written repeatedly."""

_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


async def note_task(response: httpx.Response) -> None:
    """Read the id of the created task from the headers of the response."""
    run = _RUN.get()
    if run is not None and response.is_success and "babelgate-task" in response.headers:
        run.task_id = Ids.of(response.headers).task


class Load:
    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.http: httpx.AsyncClient = loopback.client()
        """Client of the running gateway."""
        self.comes_back = False
        """True if callers reconnect at once to a stream that was cut off. Most of their agents are slow then."""
        self._number = 0
        self._keyed: list[tuple[str, str, str, Deed]] = []
        """Uploads that can be repeated: task, name, idempotency key and change."""
        self._busy: set[Any] = set()
        """Things that are being changed. Two changes at once would leave no single expected value."""

    def draw(self, count: int) -> list[Callable[[], Awaitable[None]]]:
        """Return random actions."""
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
        """Switch to the next gateway."""
        self.http = http
        for run in self.world.runs:
            run.caller.http = http
        self._busy.clear()

    def _take(self, found: list[Any]) -> Any:
        """Return a random thing that is not being changed, and mark it. Return None if all are."""
        free = [each for each in found if each not in self._busy]
        if not free:
            return None
        choice = self.random.choice(free)
        self._busy.add(choice)
        return choice

    # Runs

    async def start(self) -> None:
        """Start a run, and stream it or wait for it."""
        self._number += 1
        caller_class, agent = self.random.choice(CALLERS), self.random.choice(AGENTS)
        pace = f"-{SLOW}" if self.comes_back and self.random.random() < 0.7 else ""
        await self._begin(Run(caller_class(self.http, agent), f"{agent}-{self._number}{pace}"))

    async def _begin(self, run: Run) -> None:
        self.world.runs.append(run)
        with self._assigning_responses(run):
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
                    await self._reconnect(run)

    async def _reconnect(self, run: Run) -> None:
        """Reconnect to the run's stream until the run stops."""
        while not run.deleted:
            with suppress(httpx.TransportError):
                try:
                    if (await Acp(self.http, run.agent).look(run.task_id)).state not in ("submitted", "working"):
                        return
                    assert run.feed is not None
                    async with run.caller.reconnect(run.feed) as back:
                        try:
                            await back.end()
                        finally:
                            run.feed.extend(back)
                except AssertionError:
                    if not run.deleted:  # deleted in the meantime
                        raise

    @contextmanager
    def _assigning_responses(self, run: Run) -> Generator[None]:
        """Assign all responses in the block to this run."""
        token = _RUN.set(run)
        try:
            yield
        finally:
            _RUN.reset(token)
            if run.task_id:
                self.world.count("run")

    async def answer(self) -> None:
        """Answer a question in a random protocol."""
        run = self._take([r for r in self.world.runs if r.settled and not r.answering and r.agent in ASKING])
        if run is None or run.deleted or run.cancelling:
            return
        caller = self.random.choice([each for each in CALLERS if each is not Aief])(self.http, run.agent)
        paused = await caller.look(run.task_id)
        if not paused.questions:
            return
        run.answering, run.settled = True, False
        answered = await caller.answer(paused, NAME)
        assert not answered.questions, answered
        run.answered = True
        self.world.count("answer")

    async def cancel(self) -> None:
        """Start a run, and cancel it in a random protocol with cancels."""
        self._number += 1
        caller_class, canceller = self.random.choice(CANCELLING), self.random.choice(CANCELLING)
        run = Run(caller_class(self.http, agent := self.random.choice(AGENTS)), f"{agent}-{self._number}")
        self.world.runs.append(run)
        patience = self.random.randrange(1, 8)
        with self._assigning_responses(run):
            async with run.caller.stream(run.text) as run.feed:
                while patience > 0 and await run.feed.next():
                    patience -= 1
                run.cancelling = True
                with suppress(AssertionError):  # it had ended before
                    await canceller(self.http, agent).cancel(run.task_id)
                    run.cancelled = True
                    self.world.count("cancel")
                await run.feed.end()

    async def queue(self) -> None:
        """Start several runs of one conversation, which wait for, interrupt or roll back each other."""
        thread_id = self._new_id()
        await self.http.post("/threads", json={"thread_id": thread_id})
        for _ in range(self.random.randrange(2, 5)):
            self._number += 1
            agent = self.random.choice(("plain", "again", "single"))
            run = Run(LangGraph(self.http, agent), f"{agent}-{self._number}", cancelling=True)
            self.world.runs.append(run)
            input_ = {"messages": [{"role": "user", "content": run.text}]}
            strategy = self.random.choice(("enqueue", "enqueue", "interrupt", "rollback"))
            late = {"after_seconds": 1} if self.random.random() < 0.2 else {}
            body = {"assistant_id": agent, "input": input_, "multitask_strategy": strategy, **late}
            with self._assigning_responses(run):
                answer = await self.http.post(f"/threads/{thread_id}/runs", json=body)
                assert answer.status_code == 200, answer.text

    async def run_alone(self) -> None:
        """Start a run on an ephemeral thread."""
        self._number += 1
        agent = self.random.choice(("plain", "again"))
        run = Run(LangGraph(self.http, agent), f"{agent}-{self._number}", deleted=True)
        self.world.runs.append(run)
        body = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": run.text}]}}
        with self._assigning_responses(run):
            answer = await self.http.post(f"/runs/{self.random.choice(('wait', 'stream'))}", json=body)
            assert answer.status_code == 200, answer.text

    # Threads

    async def create_thread(self) -> None:
        thread_id, number = self._new_id(), self.random.randrange(1000)
        entry = self.world.threads[thread_id] = Entry()
        self._busy.add(thread_id)
        deed = Deed(entry, {"number": number})
        body = {"thread_id": thread_id, "metadata": {"number": number}}
        await self._post("/threads", body, deed, "thread")
        self._number += 1
        run = Run(LangGraph(self.http, "plain"), f"plain-{self._number}")
        run.caller.context_id = thread_id
        if self.random.random() < 0.7:
            await self._begin(run)
            return
        self.world.runs.append(run)  # the thread is deleted while the run is active
        run.deleted = True
        deed = Deed(entry, None)
        body = {"assistant_id": "plain", "input": {"messages": [{"role": "user", "content": run.text}]}}
        with self._assigning_responses(run):
            answer = await self.http.post(f"/threads/{thread_id}/runs", json=body)
            assert answer.status_code == 200, answer.text
        self._done(await self.http.delete(f"/threads/{thread_id}"), deed, "thread deleted")

    async def change_thread(self) -> None:
        thread_id = self._take([each for each, entry in self.world.threads.items() if is_stored(entry)])
        if thread_id is not None:
            number = self.random.randrange(1000)
            deed = Deed(self.world.threads[thread_id], {"number": number})
            answer = await self.http.patch(f"/threads/{thread_id}", json={"metadata": {"number": number}})
            self._done(answer, deed, "thread changed")

    async def delete_thread(self) -> None:
        """Delete a thread, which may have an active run."""
        thread_id = self._take([each for each, entry in self.world.threads.items() if is_stored(entry)])
        if thread_id is None:
            return
        for run in self.world.runs:
            run.deleted = run.deleted or run.caller.context_id == thread_id
        deed = Deed(self.world.threads[thread_id], None)
        self._done(await self.http.delete(f"/threads/{thread_id}"), deed, "thread deleted")

    # Other stored things

    async def put_item(self) -> None:
        key = self._take([f"key-{number}" for number in range(_KEYS)])
        if key is not None:
            value = {"number": self.random.randrange(1000)}
            deed = Deed(self.world.items.setdefault(key, Entry()), value)
            body = {"namespace": ["crash"], "key": key, "value": value}
            self._done(await self.http.put("/store/items", json=body), deed, "item")

    async def delete_item(self) -> None:
        key = self._take([key for key, entry in self.world.items.items() if is_stored(entry)])
        if key is not None:
            deed = Deed(self.world.items[key], None)
            body = {"namespace": ["crash"], "key": key}
            answer = await self.http.request("DELETE", "/store/items", json=body)
            self._done(answer, deed, "item deleted")

    async def upload(self) -> None:
        """Upload files to a new AIEF task, and then execute its step."""
        self._number += 1
        caller = Aief(self.http, "again")
        run = Run(caller, f"again-{self._number}")
        task_id = await caller.create(run.text)
        self.world.count("AIEF task")
        files = self.world.uploads[task_id] = {}
        for number in range(self.random.randrange(1, 4)):
            name = f"{number}.txt"
            deed = Deed(files.setdefault(name, Entry(0)), 1)
            key = self._new_id() if self.random.random() < 0.5 else None
            if key is not None:  # then it can be sent again
                self._keyed.append((task_id, name, key, deed))
            self._done(await self._send(task_id, name, key), deed, "upload")
        self.world.runs.append(run)
        with self._assigning_responses(run):
            await caller.step()

    async def _send(self, task_id: str, name: str, key: str | None) -> httpx.Response:
        url = f"/agent/again/ap/v1/agent/tasks/{task_id}/artifacts"
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.http.post(url, files={"file": (name, name.encode(), "text/plain")}, headers=headers)

    async def send_again(self) -> None:
        """Repeat all uploads that have a key, acknowledged or not."""
        for task_id, name, key, deed in self._keyed:
            self._done(await self._send(task_id, name, key), deed, "upload again")
        self._keyed.clear()

    async def push(self) -> None:
        run = self._take([r for r in self.world.runs if r.task_id and not r.deleted])
        if run is None:
            return
        config_id = self._new_id()
        entry = self.world.hooks[run.task_id, config_id] = Entry()
        url = "http://127.0.0.1:9/hook"
        config = {"id": config_id, "url": url, "taskId": run.task_id}
        body = {"jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig", "params": config}
        deed = Deed(entry, url)
        answer = await self.http.post(f"/a2a/{run.agent}", json=body, headers={"A2A-Version": "1.0"})
        self._done(answer, deed, "push configuration")

    async def _post(self, path: str, body: Any, deed: Deed, kind: str) -> None:
        self._done(await self.http.post(path, json=body), deed, kind)

    def _done(self, answer: httpx.Response, deed: Deed, kind: str) -> None:
        assert answer.is_success, f"{kind}: {answer.status_code} {answer.text}"
        deed.acknowledged()
        self.world.count(kind)


def is_stored(entry: Entry) -> bool:
    return entry.value is not None and not entry.doubt
