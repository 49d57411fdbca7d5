"""Tests of pruning: a thread of any agent keeps its newest state and continues from it; all others are deleted."""

import json
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import Connection, func, select

from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.event import StatesPruned
from babelgate.canonical.hub import Scope
from babelgate.gateway import demo
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.storage import checkpoints, pruning
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import CheckpointRow, CheckpointValueRow, CheckpointWriteRow, EventRow
from tests.gateway.graphs import State, asks, builder, writes
from tests.gateway.hubs import refused, within
from tests.gateway.invariant import check_database
from tests.gateway.platform import Caller, agents, graphs_running
from tests.running import running

_TABLES = tuple(map(table_of, (EventRow, CheckpointRow, CheckpointValueRow, CheckpointWriteRow)))


def user_input(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text}]}


def _sizes(connection: Connection) -> list[tuple[int, int]]:
    """Return the number of rows and bytes of each table."""
    by_table = [connection.execute(select(func.length(table.c.body))).scalars().all() for table in _TABLES]
    return [(len(sizes), sum(sizes)) for sizes in by_table]


async def prune(caller: Caller, *thread_ids: str) -> int:
    body = {"thread_ids": thread_ids, "strategy": "keep_latest"}
    return (await caller.post("/threads/prune", body))["pruned_count"]


async def looks_the_same(caller: Caller, thread_id: str, before: Any) -> None:
    """Assert that the state of a thread did not change, except that it has no parent and no history."""
    after = await caller.state(thread_id)
    assert after == before | {"parent_checkpoint": None, "parent_checkpoint_id": None}
    history = await caller.history(thread_id)
    assert [each["checkpoint_id"] for each in history] == [before["checkpoint_id"]]
    await caller.gateway.hub.journal.query(check_database)


async def test_a_pruned_graph_continues_from_its_newest_state(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "tools") as caller:
        thread_id = await caller.thread()
        for number in range(6):
            await caller.wait(thread_id, "tools", user_input(f"{number}" * 2000))
        before, history = await caller.state(thread_id), await caller.history(thread_id)
        runs = await caller.get(f"/threads/{thread_id}/runs")
        sizes = await caller.gateway.hub.journal.query(_sizes)
        assert await prune(caller, thread_id) == 1
        await looks_the_same(caller, thread_id, before)
        now = await caller.gateway.hub.journal.query(_sizes)
        assert now[0][0] == sizes[0][0] + 1, "the log keeps its numbers and records the pruning"
        assert now[1][0] == 1, "a checkpoint"
        assert sum(size for _, size in now) < 0.7 * sum(size for _, size in sizes)
        for old in (history[1], history[-1]):
            answer = await caller.gateway.http.get(f"/threads/{thread_id}/state/{old['checkpoint_id']}")
            assert answer.status_code == 404
            body = {"assistant_id": "tools", "checkpoint_id": old["checkpoint_id"], "input": user_input("x")}
            answer = await caller.gateway.http.post(f"/threads/{thread_id}/runs/wait", json=body)
            assert answer.status_code == 404
        assert await caller.get(f"/threads/{thread_id}/runs") == runs
        assert await prune(caller, thread_id) == 1, "pruning again must succeed"
        assert await caller.gateway.hub.journal.query(_sizes) == now
    async with graphs_running(tmp_path, "tools") as caller:
        await looks_the_same(caller, thread_id, before)
        values = await caller.wait(thread_id, "tools", user_input("more"))
        assert values["messages"][: len(before["values"]["messages"])] == before["values"]["messages"]
        last = await caller.history(thread_id)
        assert last[-1]["checkpoint_id"] == before["checkpoint_id"]
        assert len(last) > 3
        before = last[0]
        assert await prune(caller, thread_id) == 1
        await looks_the_same(caller, thread_id, before)


async def test_a_pruned_graph_can_be_answered(tmp_path: Path) -> None:
    inner = builder(State, {"count": writes({"count": 2}), "ask": asks("Right?")}).compile()
    graph = wrap_graph(builder(State, {"before": writes({"count": 1}), "inner": inner}), "within")[1]
    answers: list[Any] = []
    async with running(tmp_path, {"within": graph}) as gateway:
        caller = Caller(gateway)
        for pruned in (False, True):
            thread_id = await caller.thread()
            for text in ("one", "two"):
                await caller.wait(thread_id, "within", user_input(text))
                if pruned:
                    before = await caller.state(thread_id)
                    deep = await caller.get(f"/threads/{thread_id}/state?subgraphs=true")
                    assert deep["tasks"][0]["state"]["values"]["count"] == 2
                    assert await prune(caller, thread_id) == 1
                    await looks_the_same(caller, thread_id, before)
                    assert (await caller.get(f"/threads/{thread_id}/state?subgraphs=true"))["tasks"] == deep["tasks"]
                answers.append((await caller.resume(thread_id, "within", f"answer to {text}"))["messages"])
    texts = [[(m["type"], m["content"]) for m in messages] for messages in answers]
    assert texts[:2] == texts[2:]
    assert len(texts[1]) == 4


async def test_pruning_hides_old_states_and_keeps_messages(tmp_path: Path) -> None:
    async with running(tmp_path, {"echo": demo.echo, **agents("chat")}) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        await caller.wait(thread_id, "echo", {**user_input("one"), "lang": "de"})
        await caller.update(thread_id, {"kept": 1, "messages": [{"role": "user", "content": "aside"}]})
        await caller.wait(thread_id, "chat", user_input("two"))
        await caller.wait(thread_id, "chat", user_input("three"))
        await caller.wait(thread_id, "echo", user_input("four"))
        before = await caller.state(thread_id)
        stream = await _events(caller, thread_id, before)
        assert await prune(caller, thread_id) == 1
        await looks_the_same(caller, thread_id, before)
        assert [each["method"] for each in stream if each["method"] == "messages"] == [
            each["method"] for each in await _events(caller, thread_id, before) if each["method"] == "messages"
        ]
        states = [each for each in await _events(caller, thread_id, before) if each["method"] == "values"]
        assert all(each in stream for each in states), "a state must be complete or absent"
        last = await caller.wait(thread_id, "echo", user_input("five"))
        assert [m["content"] for m in last["messages"]][-4:] == ["four", "four", "five", "five"]
        copied = await caller.post(f"/threads/{thread_id}/copy")
        assert copied["values"] == last


async def _events(caller: Caller, thread_id: str, last: Any) -> list[Any]:
    """Return the events of a thread up to a state."""
    events: list[Any] = []
    body = {"channels": ["values", "messages", "checkpoints", "tasks"]}
    async with caller.gateway.http.stream("POST", f"/threads/{thread_id}/stream/events", json=body) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                data = events[-1]["params"]["data"]
                if events[-1]["method"] == "checkpoints" and data["id"] == last["checkpoint_id"]:
                    return events
    raise AssertionError("the stream has ended")


async def test_readers_are_not_affected_by_pruning(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "tools") as caller:
        thread_id = await caller.thread()
        for text in ("one", "two"):
            await caller.wait(thread_id, "tools", user_input(text))
        before = await caller.state(thread_id)
        last = (await _events(caller, thread_id, before))[-1]["seq"]
        body = {"channels": ["values", "checkpoints", "messages"], "since": last}
        live: list[Any] = []
        async with caller.gateway.http.stream("POST", f"/threads/{thread_id}/stream/events", json=body) as stream:
            lines = stream.aiter_lines()
            assert await prune(caller, thread_id) == 1
            after = await caller.wait(thread_id, "tools", user_input("three"))
            while not live or live[-1]["params"]["data"] != after:
                line = await within(anext(lines), "an event")
                if line.startswith("data: "):
                    live.append(json.loads(line.removeprefix("data: ")))
        checkpoints = [each["params"]["data"] for each in live if each["method"] == "checkpoints"]
        assert checkpoints[0]["parent_id"] == before["checkpoint_id"]
        replayed = [
            each for each in await _events(caller, thread_id, await caller.state(thread_id)) if each["seq"] > last
        ]
        assert [each for each in replayed if each["method"] != "tasks"] == live[: live.index(replayed[-1]) + 1]


async def test_active_and_unknown_threads_are_not_pruned(tmp_path: Path) -> None:
    async with running(tmp_path, {"echo": demo.echo}) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        await caller.wait(thread_id, "echo", user_input("one"))
        later = {"assistant_id": "echo", "input": user_input("two"), "after_seconds": 1000}
        run = await caller.post(f"/threads/{thread_id}/runs", later)
        history = await caller.history(thread_id)
        assert await prune(caller, thread_id, "00000000-0000-4000-8000-000000000000") == 0
        assert await caller.history(thread_id) == history
        await caller.post(f"/threads/{thread_id}/runs/{run['run_id']}/cancel")
        assert await prune(caller, thread_id, await caller.thread()) == 2
        assert len(await caller.history(thread_id)) == 1
        with refused(FaultCode.NOT_FOUND):
            await gateway.hub.prune_thread("bob", thread_id)


async def test_a_failure_during_pruning_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        thread_id = await caller.thread()
        await caller.wait(thread_id, "steps", {"items": []})
        history, sizes = await caller.history(thread_id), await caller.gateway.hub.journal.query(_sizes)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(checkpoints, "keep_newest", broken)
            with pytest.raises(FaultError, match="nothing was changed"):
                await caller.gateway.hub.prune_thread("default", thread_id)
        assert await caller.history(thread_id) == history
        assert await caller.gateway.hub.journal.query(_sizes) == sizes


async def test_an_outdated_plan_is_dropped(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        thread_id, hub = await caller.thread(), caller.gateway.hub
        await caller.wait(thread_id, "steps", {"items": []})
        plan = await pruning.make_plan(hub.reads, "default", thread_id)
        assert plan is not None
        await caller.wait(thread_id, "steps", {"items": []})
        assert await hub.journal.write(pruning.prune, "default", thread_id, plan) is None
        log = await hub.reads.records("default", Scope(thread_id))
        assert not any(isinstance(record.event, StatesPruned) for record in log)


class Deltas(TypedDict):
    items: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *(each for some in new for each in some)])]


async def test_checkpoints_needed_by_later_ones_stay(tmp_path: Path) -> None:
    """Use a `DeltaChannel` of langgraph 1.2, whose value is computed from the writes of all checkpoints."""
    graphs = {"deltas": wrap_graph(builder(Deltas, {"one": writes({"items": ["x"]})}), "deltas")[1]}
    async with running(tmp_path, graphs) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        for number in range(3):
            await caller.wait(thread_id, "deltas", {"items": [str(number)]})
        assert await prune(caller, thread_id) == 1
        assert len(await caller.history(thread_id)) == 1
        values = await caller.wait(thread_id, "deltas", {"items": ["3"]})
        assert values["items"] == ["0", "x", "1", "x", "2", "x", "3", "x"]
