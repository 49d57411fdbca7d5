"""Lookup of runs and histories that requests name."""

from uuid import uuid4

import pytest

from babelgate.adapters.langchain.server.lookup import apply_task_cancel, find_run, read_history
from babelgate.canonical import FaultError, Principal, RunStatus, TaskState
from tests.gateway.hubs import (
    OWNER,
    PRINCIPAL,
    Echo,
    HubFactory,
    Scripted,
    ends,
    guarded,
    open_questions,
    reaches,
    registered,
    submit,
)


async def test_a_run_is_found_by_its_owner_until_its_removal(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo")
    await ends(hub, receipt)
    assert (await find_run(guarded(hub), PRINCIPAL, receipt.run_id, receipt.thread_id)).run_id == receipt.run_id
    for owner, thread_id in ((OWNER, str(uuid4())), ("another owner", None)):
        with pytest.raises(FaultError, match="Run not found"):
            await find_run(guarded(hub), Principal.of_owner(owner), receipt.run_id, thread_id)
    await hub.remove_run(OWNER, receipt.run_id)
    with pytest.raises(FaultError, match="Run not found"):
        await find_run(guarded(hub), PRINCIPAL, receipt.run_id)


async def test_a_paused_run_is_cancelled_with_its_task(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    receipt = await submit(hub, "a")
    (await agent.called()).ask("Which?").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    assert await open_questions(hub, receipt)
    paused = await find_run(guarded(hub), PRINCIPAL, receipt.run_id)
    assert (await apply_task_cancel(guarded(hub), PRINCIPAL, paused)).status is RunStatus.PAUSED
    await hub.cancel(OWNER, receipt.task_id)
    assert (await apply_task_cancel(guarded(hub), PRINCIPAL, paused)).status is RunStatus.CANCELLED


async def test_a_history_can_end_at_an_earlier_record(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo")
    await ends(hub, receipt)
    now = await read_history(guarded(hub), PRINCIPAL, receipt.thread_id)
    then = await read_history(guarded(hub), PRINCIPAL, receipt.thread_id, receipt.seq)
    assert then.seq == receipt.seq < now.seq
    nobody = str(uuid4())
    with pytest.raises(FaultError, match=f"Thread with ID {nobody} not found"):
        await read_history(guarded(hub), PRINCIPAL, nobody)
