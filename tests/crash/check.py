"""Checks of a gateway that was killed and started again."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from traceback import format_exception
from typing import Any, Final, Protocol

import httpx

from babelgate.canonical.event import Record, RunCreated
from tests.crash.agents import expected, file_of
from tests.crash.load import ASKING, CALLERS, REPEATABLE, STATEFUL
from tests.crash.world import Entry, Run, World
from tests.gateway.scene import RESTARTED
from tests.pairs.a2a import A2A
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.caller import TaskView

_BOUND: Final = 45.0
"""Time within which each run must end, in seconds. All of them are short."""
_TOGETHER: Final = 6
"""Number of runs that are checked concurrently."""
_TASKS: Final = """
    SELECT task.task_id, task.agent, min(CASE WHEN run.removed THEN 1 ELSE 0 END)
    FROM task JOIN run ON run.owner = task.owner AND run.task_id = task.task_id
    JOIN thread ON thread.pk = task.thread_pk
    WHERE NOT thread.ephemeral
    GROUP BY task.owner, task.task_id ORDER BY task.created_at
"""
"""Query of all tasks except those of ephemeral threads."""
_OPEN: Final = "SELECT task_id, agent, state FROM task WHERE state NOT IN ('completed','failed','cancelled','rejected')"


class Scene(Protocol):
    """One gateway, or several that callers use like one, and their database."""

    @property
    def http(self) -> httpx.AsyncClient: ...

    def rows(self, statement: str, /) -> list[tuple[Any, ...]]: ...

    def records(self, statement: str, /) -> list[Record]: ...


class Checks:
    def __init__(self, stage: Scene, world: World) -> None:
        self.stage = stage
        self.world = world
        self.faults: list[str] = []
        self.endings: dict[str, int] = {}
        self.looked = 0
        self.upstream_lost = False
        """True if the gateway behind was killed as well."""
        self.has_stopped_node = False
        """True if a stopped node may still complete its requests when it continues, so that doubtful values stay
        doubtful.
        """

    def fault(self, kind: str, words: object) -> None:
        self.faults.append(f"{kind}: {words}")

    def broke(self, error: Exception) -> None:
        """Record a failed action of a caller."""
        message = isinstance(error, AssertionError) and str(error)
        self.fault("broke", message or "".join(format_exception(error)))

    async def all(self) -> None:
        await self.check_acknowledged()
        await self.settle()
        await self.runs()

    # Writes

    async def check_acknowledged(self) -> None:
        """Check that all acknowledged changes are there. Doubtful ones may be there or not."""
        for thread_id, entry in self.world.threads.items():
            answer = await self.stage.http.get(f"/threads/{thread_id}")
            metadata = answer.json()["metadata"] if answer.status_code == 200 else None
            self._compare(f"thread {thread_id}", entry, metadata and {"number": metadata.get("number")})
        for key, entry in self.world.items.items():
            answer = await self.stage.http.get("/store/items", params={"namespace": "crash", "key": key})
            found = answer.json() if answer.status_code == 200 else None
            self._compare(f"item {key}", entry, found and found["value"])
        for (task_id, config_id), entry in self.world.hooks.items():
            run = self.world.run_of(task_id)
            if run is None or run.deleted:
                continue
            params = {"id": config_id, "taskId": task_id}
            body = {"jsonrpc": "2.0", "id": 1, "method": "GetTaskPushNotificationConfig", "params": params}
            answer = await self.stage.http.post(f"/a2a/{run.agent}", json=body, headers={"A2A-Version": "1.0"})
            self._compare(f"push configuration {config_id}", entry, answer.json().get("result", {}).get("url"))
        for task_id, files in self.world.uploads.items():
            await self._uploads(task_id, files)

    def _compare(self, what: str, entry: Entry, found: Any) -> None:
        if not entry.holds(found):
            self.fault("lost", f"{what} is {found}, and was acknowledged as {entry.value}, or perhaps {entry.doubt}")
        if not self.has_stopped_node:
            entry.is_settled_as(found)

    async def _uploads(self, task_id: str, files: dict[str, Entry]) -> None:
        url = f"/agent/again/ap/v1/agent/tasks/{task_id}/artifacts"
        answer = await self.stage.http.get(url, params={"page_size": 100})
        if answer.status_code != 200:
            self.fault("lost", f"the artifacts of AIEF task {task_id}: {answer.status_code}")
            return
        listed = [each["file_name"] for each in answer.json()["artifacts"] if not each["agent_created"]]
        for name, entry in files.items():
            self._compare(f"file {name} of {task_id}", entry, listed.count(name))
        for each in answer.json()["artifacts"]:
            content = await self.stage.http.get(f"{url}/{each['artifact_id']}")
            if not each["agent_created"] and content.content != each["file_name"].encode():
                self.fault("lost", f"file {each['file_name']} of {task_id} holds {content.content!r}")

    # Runs

    async def settle(self) -> None:
        """Wait until every run has ended or paused."""
        found = [row for row in self.stage.rows(_OPEN) if row[2] != "input_required"]
        async for task_id, agent in _side_by_side(found, self._settle):
            states = self.stage.rows(f"SELECT run_id, status, attempt FROM run WHERE task_id = '{task_id}'")
            self.fault("stuck", f"task {task_id} of {agent}: {states}")

    async def _settle(self, row: tuple[Any, ...]) -> tuple[str, str] | None:
        """Follow a task to its end, with the reader that followed it before if there was one. Return the task's id and
        agent if it does not end in time, and None otherwise. `row` is a row of `_TASKS`."""
        task_id, agent, _ = row
        run = self.world.run_of(task_id)
        try:
            async with asyncio.timeout(_BOUND):
                if run is None or run.feed is None:
                    async with Acp(self.stage.http, agent).replay(task_id) as feed:
                        await feed.end()
                else:
                    async with run.caller.reconnect(run.feed) as back:
                        await back.end()
                    run.feed.extend(back)
        except TimeoutError:
            return task_id, agent
        return None

    async def runs(self) -> None:
        """Check each run that has ended since the last check.

        All protocols must show the same, and the whole output of the agent once.
        """
        rows = self.stage.rows(_TASKS)
        runs_by_task = {run.task_id: run for run in self.world.runs if run.task_id}
        for task_id in runs_by_task.keys() - {row[0] for row in rows}:
            if not runs_by_task[task_id].deleted:
                self.fault("lost", f"task {task_id} of {runs_by_task[task_id].agent}, which was acknowledged")
        fresh = [
            row
            for row in rows
            if row[0] not in runs_by_task or not (runs_by_task[row[0]].settled or runs_by_task[row[0]].deleted)
        ]
        async for fault in _side_by_side(fresh, self._run):
            self.fault(*fault)

    async def _run(self, row: tuple[Any, ...]) -> tuple[str, str] | None:
        task_id, agent, removed = row
        run = self.world.run_of(task_id)
        try:
            view = await self._task_view(task_id, agent, rolled_back=bool(removed))
            if run is None:  # its acknowledgement was lost
                run = Run(Acp(self.stage.http, agent), "", task_id, settled=True)
                run.caller.context_id = view.context_id  # its thread may be deleted later
                self.world.runs.append(run)
            run.text = run.text or _text_of(self.stage, task_id)
            self._judge(run, view)
            await self._replays(run)
        except AssertionError as error:
            return "wrong", f"task {task_id} of {agent} ({run.text if run else '?'}): {error}"
        finally:
            if run is not None:
                run.settled = True
        self.looked += 1
        return None

    async def _task_view(self, task_id: str, agent: str, *, rolled_back: bool) -> TaskView:
        first = await Acp(self.stage.http, agent).look(task_id)
        for caller_class in CALLERS[1:]:
            if rolled_back and not issubclass(caller_class, A2A):  # gone in other protocols
                continue
            if caller_class is Aief and len(first.questions) > 1:
                continue
            caller = caller_class(self.stage.http, agent)
            view = await caller.look(task_id)
            if isinstance(caller, Aief) and view.state == "working":  # a POST shows the next of its steps
                caller.context_id = view.context_id
                view = await caller.step()
            if caller_class.shows_state and agent in STATEFUL and first.state != "completed":
                view = replace(view, text=first.text)  # a part that a state does not hold yet
            assert (view.state, view.text) == (first.state, first.text), (
                f"{caller_class.name} shows {view.state} {view.text!r} where ACP shows {first.state} {first.text!r}"
            )
        return first

    def _judge(self, run: Run, view: TaskView) -> None:
        attempts = self.stage.rows(f"SELECT max(attempt) FROM run WHERE task_id = '{run.task_id}'")[0][0] or 1
        ending = "cut off" if view.state == "failed" and RESTARTED in view.fault else view.state
        self.endings[ending] = self.endings.get(ending, 0) + 1
        agent, whole = run.agent, expected(run.agent, run.text, attempts)
        if ending == "failed" and agent.startswith("far") and self.upstream_lost:
            ending = "cut off"
        match ending:
            case "completed":
                assert view.text == whole, f"the output is {view.text!r} instead of {whole!r}"
                assert agent not in ASKING or run.answering or not run.task_id, "the run has not been answered"
            case "input_required":
                assert agent in ASKING and not run.answered, "the run asks again"
                before = expected(agent, run.text, attempts, answered=False)
                assert view.text == before, f"the output is {view.text!r} instead of {before!r}"
            case "cut off":
                assert agent not in REPEATABLE, "the run should have been started again"
                assert whole.startswith(view.text), f"the output is {view.text!r} instead of the start of {whole!r}"
            case "cancelled":
                assert run.cancelling, "the run has not been cancelled"
                alike = [expected(agent, run.text, number) for number in range(1, attempts + 1)]
                assert any(each.startswith(view.text) for each in alike), f"the output is {view.text!r}"
            case _:
                raise AssertionError(f"the run is {ending}: {view.fault}")
        assert not run.cancelled or ending == "cancelled", f"the cancel was acknowledged, but the run is {ending}"
        if agent == "files" and ending == "completed":
            assert view.files == dict([file_of(run.text)]), f"its output files are {view.files}"

    async def _replays(self, run: Run) -> None:
        """Check that a replay begins with all frames that were received before."""
        if run.feed is None:
            return
        async with run.caller.replay(run.task_id) as whole:
            await whole.end()
        received, now = run.feed.frames, whole.frames
        first = next((n for n, (one, other) in enumerate(zip(received, now, strict=False)) if one != other), None)
        assert first is None, f"frame {first} was {received[first]!r}, and is {now[first]!r}"
        assert len(received) <= len(now), f"{len(received)} frames were shown, and {len(now)} are there"


def _text_of(stage: Scene, task_id: str) -> str:
    """Return the agent's input in the log."""
    records = stage.records(f"SELECT thread_pk FROM task WHERE task_id = '{task_id}'")
    created = next(
        record.event for record in records if record.task_id == task_id and isinstance(record.event, RunCreated)
    )
    return created.messages[0].text


async def _side_by_side(rows: list[Any], look: Any) -> AsyncIterator[Any]:
    """Yield the results of the calls that are not None. Some calls run concurrently."""
    turn = asyncio.Semaphore(_TOGETHER)

    async def one(row: Any) -> Any:
        async with turn:
            return await look(row)

    for found in await asyncio.gather(*(one(row) for row in rows)):
        if found is not None:
            yield found
