"""Tests of the lists of threads and runs."""

from typing import Any, Final

import pytest

from babelgate.canonical import FaultError, RunFilter, RunStatus, TaskState, ThreadChange, ThreadFilter
from babelgate.canonical.thread import ThreadStatus
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage import listing
from tests.gateway.hubs import OWNER, Echo, HubFactory, Scripted, ends, reaches, registered, submit

EACH_DATABASE: Final = True


async def ids(hub: GatewayHub, where: ThreadFilter | None = None, *, limit: int = 10, **page: Any) -> list[str]:
    threads = await hub.reads.threads(OWNER, where or ThreadFilter(), limit=limit, **page)
    return [view.thread.thread_id async for view in threads]


async def status(hub: GatewayHub, thread_id: str) -> str:
    return (await hub.reads.thread_view(OWNER, thread_id)).status


async def test_the_status_of_a_thread_follows_its_runs(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    thread = await hub.create_thread(OWNER, ThreadChange())
    assert await status(hub, thread.thread_id) == "idle"
    receipt = await submit(hub, "a", thread_id=thread.thread_id)
    activation = await agent.called()
    assert await status(hub, thread.thread_id) == "busy"
    activation.ask("q").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    assert await status(hub, thread.thread_id) == "interrupted"
    await hub.cancel(OWNER, receipt.task_id)
    assert await status(hub, thread.thread_id) == "idle"
    failed = await submit(hub, "a", thread_id=thread.thread_id)
    (await agent.called()).fail(ValueError("no"))
    await ends(hub, failed)
    assert await status(hub, thread.thread_id) == "error"
    for wanted in ("idle", "busy", "interrupted", "error"):
        listed = await ids(hub, ThreadFilter(status=wanted))
        assert listed == ([thread.thread_id] if wanted == "error" else [])
    await hub.remove_run(OWNER, failed.run_id)
    assert await status(hub, thread.thread_id) == "idle"


async def test_threads_are_found_by_their_status(hubs: HubFactory) -> None:
    agent, other = Scripted(), Scripted()
    hub = await hubs.start(registered("a", agent), registered("b", other))
    idle = (await hub.create_thread(OWNER, ThreadChange())).thread_id
    waiting = await submit(hub, "a")
    (await agent.called()).ask("q").end()
    await reaches(hub, waiting, TaskState.INPUT_REQUIRED)
    both = await submit(hub, "a")
    (await agent.called()).ask("q").end()
    await reaches(hub, both, TaskState.INPUT_REQUIRED)
    await submit(hub, "b", thread_id=both.thread_id)
    await other.called()
    await submit(hub, "b", owner="bob")
    await other.called()
    by_status: dict[ThreadStatus, str] = {"idle": idle, "interrupted": waiting.thread_id, "busy": both.thread_id}
    for wanted, thread_id in by_status.items():
        where = ThreadFilter(status=wanted)
        assert await ids(hub, where) == [thread_id]
        assert await hub.reads.count_threads(OWNER, where) == 1
        assert await status(hub, thread_id) == wanted


async def test_threads_are_listed_newest_first_in_pages(hubs: HubFactory) -> None:
    hub = await hubs.start()
    created = [(await hub.create_thread(OWNER, ThreadChange())).thread_id for _ in range(5)]
    assert await ids(hub) == created[::-1]
    assert await ids(hub, limit=2, offset=1) == [created[3], created[2]]
    assert await ids(hub, descending=False, limit=2) == created[:2]
    assert await hub.reads.count_threads(OWNER, ThreadFilter()) == 5
    await hub.change_thread(OWNER, created[0], ThreadChange(metadata={"a": 1}))
    assert (await ids(hub, order="updated_at"))[0] == created[0]
    assert await ids(hub, order="thread_id", descending=False) == sorted(created)


async def test_threads_are_found_by_their_metadata(hubs: HubFactory) -> None:
    hub = await hubs.start()
    metadata: list[dict[str, Any]] = [{"a": 1, "b": {"x": 1, "y": 2}}, {"a": 2}, {"a": True}, {}]
    created = [(await hub.create_thread(OWNER, ThreadChange(metadata=each))).thread_id for each in metadata]
    assert await ids(hub, ThreadFilter(metadata={"a": 1})) == [created[0]]
    assert await ids(hub, ThreadFilter(metadata={"b": {"y": 2}})) == [created[0]]
    assert await ids(hub, ThreadFilter(metadata={"b": {"z": 2}})) == []
    assert await ids(hub, ThreadFilter(ids=(created[1], created[3]))) == [created[3], created[1]]
    where = ThreadFilter(metadata={"a": 2})
    assert await ids(hub, where, limit=0) == []
    assert await hub.reads.count_threads(OWNER, where) == 1


async def test_threads_are_found_by_their_agent(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), registered("other", Echo()))
    created = await hub.create_thread(OWNER, ThreadChange(extra={"p": {"agent": "echo"}}))
    ran = await submit(hub, "echo")
    elsewhere = await submit(hub, "other")
    for receipt in (ran, elsewhere):
        await ends(hub, receipt)
    assert await ids(hub, ThreadFilter(agent="echo", protocol="p")) == [ran.thread_id, created.thread_id]
    assert await ids(hub, ThreadFilter(agent="echo")) == [ran.thread_id]
    assert await ids(hub, ThreadFilter(agent="other", protocol="p")) == [elsewhere.thread_id]


async def test_ephemeral_threads_are_in_no_list(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo", ephemeral=True)
    await ends(hub, receipt)
    assert await ids(hub) == []
    assert (await hub.reads.runs(OWNER, RunFilter(), limit=10)).count == 0
    assert (await hub.reads.thread(OWNER, receipt.thread_id)).ephemeral
    assert [
        run.run_id async for run in await hub.reads.runs(OWNER, RunFilter(thread_id=receipt.thread_id), limit=10)
    ] == [receipt.run_id]


async def test_runs_are_listed_newest_first_without_removed_ones(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), registered("other", Echo()))
    receipts = [await submit(hub, "echo", metadata={"n": 0}, assistant="x")]
    await ends(hub, receipts[0])
    for number in (1, 2):
        receipts.append(await submit(hub, "echo", thread_id=receipts[0].thread_id, metadata={"n": number}))
        await ends(hub, receipts[-1])
    elsewhere = await submit(hub, "other")
    await ends(hub, elsewhere)
    on_thread = RunFilter(thread_id=receipts[0].thread_id)
    runs = await (await hub.reads.runs(OWNER, on_thread, limit=10)).all()
    assert [run.run_id for run in runs] == [receipt.run_id for receipt in receipts[::-1]]
    first = runs[-1]
    assert (first.thread_id, first.agent, first.assistant, first.metadata) == (
        receipts[0].thread_id,
        "echo",
        "x",
        {"n": 0},
    )
    assert (await hub.reads.run_input(OWNER, first)).messages[0].text == "hi"
    assert [run.run_id async for run in await hub.reads.runs(OWNER, on_thread, limit=1, offset=1)] == [
        receipts[1].run_id
    ]
    everywhere = await hub.reads.runs(OWNER, RunFilter(), limit=10)
    assert [run.run_id async for run in everywhere] == [receipt.run_id for receipt in (elsewhere, *receipts[::-1])]
    for where, wanted in (
        (RunFilter(agent="other"), [elsewhere]),
        (RunFilter(metadata={"n": 1}), [receipts[1]]),
        (RunFilter(status=frozenset({RunStatus.ERROR})), []),
        (RunFilter(status=frozenset({RunStatus.SUCCESS}), agent="other"), [elsewhere]),
    ):
        listed = await hub.reads.runs(OWNER, where, limit=10)
        assert [run.run_id async for run in listed] == [receipt.run_id for receipt in wanted]
    await hub.remove_run(OWNER, receipts[1].run_id)
    runs = await (await hub.reads.runs(OWNER, on_thread, limit=10)).all()
    assert [run.run_id for run in runs] == [receipts[2].run_id, receipts[0].run_id]


@pytest.mark.parametrize("few", [listing.FEW, 1], ids=["by key", "in order"])
async def test_runs_are_found_by_their_metadata(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Search with a few candidates, which are read by their keys, and with more of them."""
    monkeypatch.setattr(listing, "FEW", few)
    hub = await hubs.start(registered("echo", Echo()))
    metadata: list[dict[str, Any]] = [
        {"a": 1, "b": {"x": 1, "y": 2}},
        {"a": "1", "agent": "x"},
        {"a": "1", "agent": "y"},
        {"a": "10", "status": "success"},
        {"a": True},
        {},
    ]
    receipts = [await submit(hub, "echo", metadata=each) for each in metadata]
    for each in metadata:
        receipts.append(await submit(hub, "echo", thread_id=receipts[1].thread_id, metadata=each))
    for receipt in receipts:
        await ends(hub, receipt)
    await ends(hub, await submit(hub, "echo", owner="bob", metadata={"a": 1}), owner="bob")
    await ends(hub, await submit(hub, "echo", ephemeral=True, metadata={"a": 1}))
    for wanted, places in (
        ({"a": 1}, (0,)),
        ({"a": 1.0, "b": {"y": 2}}, (0,)),
        ({"a": "1"}, (1, 2)),
        ({"a": "1", "agent": "y"}, (2,)),
        ({"status": "success"}, (3,)),
        ({"a": True}, (4,)),
        ({"a": None}, ()),
    ):
        on_thread = [receipts[6 + place].run_id for place in places]
        everywhere = on_thread + [receipts[place].run_id for place in places]
        if 1 in places:
            on_thread.append(receipts[1].run_id) if "agent" not in wanted else None
        found = await hub.reads.runs(OWNER, RunFilter(metadata=wanted), limit=100)
        assert {run.run_id async for run in found} == set(everywhere), wanted
        found = await hub.reads.runs(OWNER, RunFilter(metadata=wanted, thread_id=receipts[1].thread_id), limit=100)
        assert {run.run_id async for run in found} == set(on_thread), wanted
        page = await hub.reads.runs(OWNER, RunFilter(metadata=wanted, agent="echo"), limit=1, offset=1)
        assert page.count == (len(everywhere) > 1)


async def test_the_input_of_another_owners_run_is_hidden(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo")
    await ends(hub, receipt)
    run = await hub.reads.run(OWNER, receipt.run_id)
    try:
        await hub.reads.run_input("bob", run)
    except FaultError as error:
        assert error.fault.code == "not_found"
    else:
        raise AssertionError("bob saw it")
