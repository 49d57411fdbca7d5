"""Tests of the checkpointer of graphs: LangGraph's interface, fenced to one call on one thread."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from babelgate.canonical import FaultCode, FaultError, Invocation
from babelgate.canonical.hub import Submission, ThreadChange
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.agents.langgraph.checkpointer import Saver
from babelgate.gateway.agents.stored_data import StoredCheckpoints
from babelgate.gateway.storage import checkpoints
from tests.gateway.graphs import Listed, builder, writes
from tests.gateway.hubs import within
from tests.gateway.platform import Caller, graphs_running
from tests.running import running

THREAD = "6b2c0d3e-8c7f-4a55-9d57-0a3f6f6f4e11"


def config(checkpoint_id: str | None = None, thread_id: str = THREAD, ns: str = "") -> Any:
    place = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": place | ({} if checkpoint_id is None else {"checkpoint_id": checkpoint_id})}


def call(run_id: str = "") -> Invocation:
    return Invocation(agent="g", thread_id=THREAD, task_id="", run_id=run_id)


async def saver(caller: Caller, run_id: str = "") -> Saver:
    hub = caller.gateway.hub
    await hub.create_thread("default", ThreadChange(), thread_id=THREAD, if_exists="return")
    return Saver(StoredCheckpoints(hub.journal, call(run_id)), call(run_id))


def new(checkpoint_id: str) -> Any:
    return empty_checkpoint() | {"id": checkpoint_id}


async def save_chain(call_saver: Saver, count: int, **place: Any) -> list[str]:
    """Save a chain of checkpoints, and return their ids, oldest first."""
    ids: list[str] = []
    for number in range(count):
        parent = config(ids[-1] if ids else None, **place)
        ids.append(f"{number:03}")
        await call_saver.aput(parent, new(ids[-1]), {"source": "loop", "step": number}, {})
    return ids


async def test_checkpoints_are_listed_newest_first_in_pages_with_filters(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        call_saver = await saver(caller)
        ids = await save_chain(call_saver, 120)
        listed = [each async for each in call_saver.alist(config())]
        assert [each.checkpoint["id"] for each in listed] == ids[::-1]
        assert listed[0].parent_config == config(ids[-2])
        assert [each.checkpoint["id"] async for each in call_saver.alist(config(), limit=2)] == ids[:-3:-1]
        assert [each.checkpoint["id"] async for each in call_saver.alist(config(), before=config("001"))] == ["000"]
        assert [each.checkpoint["id"] async for each in call_saver.alist(config(), filter={"step": 7})] == ["007"]
        assert [each.checkpoint["id"] async for each in call_saver.alist(config("005"))] == ["005"]
        with pytest.raises(ValueError, match="one thread"):
            await anext(call_saver.alist(None))


async def test_a_synchronous_node_can_use_the_checkpointer(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        call_saver = await saver(caller)

        def work() -> Any:
            call_saver.put(config(), new("1"), {"source": "loop"}, {})
            call_saver.put_writes(config("1"), [("c", 7)], "task")
            return call_saver.get_tuple(config()), list(call_saver.list(config()))

        found, listed = await within(asyncio.to_thread(work), "the work")
        assert found.pending_writes == [("task", "c", 7)]
        assert [each.checkpoint["id"] for each in listed] == ["1"]


async def test_on_the_event_loop_only_the_awaited_calls_work(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        call_saver = await saver(caller)
        with pytest.raises(RuntimeError, match="use ainvoke, astream"):
            call_saver.get_tuple(config())


async def test_an_abandoned_call_cannot_write(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        call_saver = await saver(caller, run_id="6b2c0d3e-8c7f-4a55-9d57-0a3f6f6f4e12")
        with pytest.raises(FaultError) as raised:
            await save_chain(call_saver, 1)
        assert raised.value.fault.code is FaultCode.CONFLICT
        with pytest.raises(FaultError):
            await call_saver.aput_writes(config("1"), [("c", 1)], "task")
        await caller.gateway.hub.delete_thread("default", THREAD)
        erased = Saver(StoredCheckpoints(caller.gateway.hub.journal, call()), call())
        with pytest.raises(FaultError) as raised:
            await save_chain(erased, 1)
        assert raised.value.fault.code is FaultCode.NOT_FOUND


async def test_a_call_cannot_write_to_a_recreated_thread(tmp_path: Path) -> None:
    """Create a new thread and run with the ids of the call, after its own were erased."""
    run_id = "6b2c0d3e-8c7f-4a55-9d57-0a3f6f6f4e12"
    waiting = Submission(agent="steps", thread_id=THREAD, run_id=run_id, start_in=2**62, if_missing="recreate")
    async with graphs_running(tmp_path, "steps") as caller:
        hub = caller.gateway.hub
        await hub.submit("default", waiting)
        mine = replace(call(run_id), owner="default", attempt=0)
        call_saver = Saver(StoredCheckpoints(hub.journal, mine), mine)
        assert await call_saver.aget_tuple(config()) is None
        await save_chain(call_saver, 1)
        await hub.delete_thread("default", THREAD)
        await hub.submit("default", waiting)
        with pytest.raises(FaultError) as raised:
            await save_chain(call_saver, 1)
        assert raised.value.fault.code is FaultCode.CONFLICT
        with pytest.raises(FaultError):
            await call_saver.aput_writes(config("000"), [("c", 1)], "task")
        assert await stored(caller, THREAD) == 0


async def test_a_fixed_thread_id_stays_within_the_callers_thread(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        call_saver = await saver(caller)
        await save_chain(call_saver, 2, thread_id="theirs")
        assert await call_saver.aget_tuple(config()) is None
        found = await call_saver.aget_tuple(config(thread_id="theirs"))
        assert found is not None and found.config == config("001", thread_id="theirs")
        assert len([each async for each in call_saver.alist(config(thread_id="theirs"))]) == 2
        await caller.gateway.hub.delete_thread("default", THREAD)
        assert await stored(caller, THREAD) == 0


async def stored(caller: Caller, thread_id: str) -> int:
    def count(connection: Any) -> int:
        return len(checkpoints.page(connection, "default", thread_id, None, limit=1000))

    return await caller.gateway.hub.journal.query(count)


async def test_checkpoints_are_erased_with_their_thread(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "within") as caller:
        thread_id = await caller.thread()
        await caller.wait(thread_id, "within", {"items": []})
        assert await stored(caller, thread_id) > 3
        await caller.gateway.hub.delete_thread("default", thread_id)
        assert await stored(caller, thread_id) == 0


async def test_a_compiled_graphs_checkpointer_is_replaced_by_the_gateways(tmp_path: Path) -> None:
    author_saver = InMemorySaver()
    graph = builder(Listed, {"one": writes({"items": ["one"]})}).compile(checkpointer=author_saver)
    async with running(tmp_path, {"g": wrap_graph(graph, "g")[1]}) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        await caller.wait(thread_id, "g", {"items": []})
        assert await stored(caller, thread_id) == 3
        assert not author_saver.storage
