"""Tests of reading one page of runs and their records from a longer thread."""

from typing import Final

import pytest

from babelgate.canonical import FaultCode, FaultError, Receipt, Scope, TaskState
from babelgate.canonical.event import RunCreated, StepStarted
from babelgate.canonical.hub import ThreadChange
from babelgate.gateway.storage import run_page
from tests.gateway.hubs import OWNER, Echo, HubFactory, Scripted, answer, ends, reaches, registered, submit

EACH_DATABASE: Final = True


async def test_a_page_has_the_records_of_its_runs(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), registered("other", Echo()))
    receipts: list[Receipt] = []
    for agent in ("echo", "other", "echo", "echo"):
        receipts.append(await submit(hub, agent, thread_id=receipts[0].thread_id if receipts else None))
        await ends(hub, receipts[-1])
    thread_id = receipts[0].thread_id
    page = await hub.reads.run_page(OWNER, thread_id, "echo", limit=2, offset=1)
    assert page is not None
    assert (page.run_ids, page.total) == ([receipts[2].run_id, receipts[3].run_id], 3)
    assert [each.seq for each in page.records] == sorted(each.seq for each in page.records)
    assert page.records[0].seq == 1
    run_ids = [record.event.run_id for record in page.records if isinstance(record.event, RunCreated)]
    assert run_ids == page.run_ids
    beyond = await hub.reads.run_page(OWNER, thread_id, "echo", limit=2, offset=3)
    assert beyond is not None and (beyond.run_ids, beyond.total) == ([], 3)
    with pytest.raises(FaultError) as caught:
        await hub.reads.run_page("somebody else", thread_id, "echo", limit=2)
    assert caught.value.fault.code is FaultCode.NOT_FOUND


async def test_a_page_has_all_records_of_its_tasks(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("echo", Echo()))
    thread_id = (await hub.create_thread(OWNER, ThreadChange())).thread_id
    asking: list[Receipt] = []
    for _ in range(3):
        asking.append(await submit(hub, "a", thread_id=thread_id))
        (await agent.called()).ask("q").end()
        await reaches(hub, asking[-1], TaskState.INPUT_REQUIRED)
        await ends(hub, await submit(hub, "echo", thread_id=thread_id))
    answered = await answer(hub, asking[0].task_id, bare="yes")
    (await agent.called()).say("done").end()
    await ends(hub, answered)
    await hub.change_thread(OWNER, thread_id, ThreadChange(metadata={"a": 1}))
    await hub.change_run(OWNER, answered.run_id, {"b": 1})
    await hub.remove_run(OWNER, answered.run_id)
    log = await hub.reads.records(OWNER, Scope(thread_id))
    for offset, of_page in ((0, asking[:1]), (1, asking[1:2]), (3, [])):
        page = await hub.reads.run_page(OWNER, thread_id, "a", limit=1, offset=offset)
        assert page is not None and (page.run_ids, page.total) == ([each.run_id for each in of_page], 3)
        tasks = {None, *(each.task_id for each in (*of_page, *asking[1:]))}
        assert page.records == [record for record in log if record.task_id in tasks]


async def test_there_is_no_page_of_runs_with_steps(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    receipt = await submit(hub, "a")
    (await agent.called()).say(StepStarted(step_id="1", name="one")).end()
    await ends(hub, receipt)
    assert await hub.reads.run_page(OWNER, receipt.thread_id, "a", limit=10) is None


async def test_there_is_no_page_over_the_read_limit(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo", "x" * 500)
    await ends(hub, receipt)
    monkeypatch.setattr(run_page, "_ROOM", 500)
    assert await hub.reads.run_page(OWNER, receipt.thread_id, "echo", limit=10) is None
