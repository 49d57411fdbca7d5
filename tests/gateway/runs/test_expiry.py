"""Tests of the expiry of threads."""

import asyncio

import pytest

from babelgate.canonical import (
    FaultCode,
    FaultError,
    RunInput,
    Scope,
    StateHistory,
    Submission,
    TaskState,
    ThreadChange,
)
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Limits
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    batches,
    begin,
    ends,
    erased,
    eventually,
    fails,
    finish,
    follow,
    registered,
    submit,
    submit_and_ask,
    submit_to_end,
    text,
    within,
)

SOON = Limits(ephemeral_ttl=0.05, input_ttl=0.05)


async def erased_for_readers(hub: GatewayHub, thread_id: str) -> None:
    """Wait until a thread is erased, which ends its readers."""
    try:
        await follow(hub, Scope(thread_id))
        await hub.reads.thread(OWNER, thread_id)
    except FaultError as error:
        assert error.fault.code is FaultCode.NOT_FOUND
    else:
        raise AssertionError(f"{thread_id} is there")


async def test_a_stateless_runs_thread_is_erased_after_its_end(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)
    receipt = await submit(hub, "echo", ephemeral=True)
    await erased(hub, receipt.thread_id)
    with pytest.raises(FaultError):
        await hub.reads.run(OWNER, receipt.run_id)


async def test_a_stateless_thread_stays_during_runs_and_reads(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(limits=SOON)
    receipt, activation = await begin(hub, agent, ephemeral=True)
    reading = batches(hub, Scope(receipt.thread_id))
    await anext(reading)
    await finish(hub, activation.say("hello"), receipt)
    marker = await submit(hub, "a", ephemeral=True)  # ends later and has no reader, so it is erased first
    (await agent.called()).end()
    await erased(hub, marker.thread_id)
    assert await hub.reads.thread(OWNER, receipt.thread_id)
    await reading.aclose()
    await erased(hub, receipt.thread_id)


async def test_an_unanswered_question_of_a_stateless_run_fails(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(limits=Limits(ephemeral_ttl=60, input_ttl=0.05))
    receipt = await submit(hub, "a", ephemeral=True)
    (await agent.called()).ask("q").end()
    await fails(hub, receipt, FaultCode.EXPIRED)
    assert await hub.reads.open_interrupts(OWNER, receipt.task_id) == []


async def test_questions_of_other_runs_have_no_timeout(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(limits=SOON)
    waiting = await submit_and_ask(hub, agent, "q")
    passing = await submit(hub, "a", ephemeral=True)
    (await agent.called()).ask("q").end()
    await erased(hub, passing.thread_id)
    assert (await hub.reads.task(OWNER, waiting.task_id)).state is TaskState.INPUT_REQUIRED


async def test_a_threads_time_to_live_counts_from_its_last_change(hubs: HubFactory) -> None:
    now = 1_000_000_000
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(lambda: now, lambda: now))
    thread = await hub.create_thread(OWNER, ThreadChange(ttl=100))
    other = await hub.create_thread(OWNER, ThreadChange(ttl=1000))
    now += 99_000_000
    await submit_to_end(hub, "echo", thread_id=thread.thread_id)
    await hubs.stop(hub)
    now += 99_000_000
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(lambda: now, lambda: now))
    await within(hub.engine.idle())
    assert await hub.reads.thread(OWNER, thread.thread_id)
    await hubs.stop(hub)
    now += 2_000_000
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(lambda: now, lambda: now))
    await erased_for_readers(hub, thread.thread_id)
    assert await hub.reads.thread(OWNER, other.thread_id)


async def test_a_thread_that_keeps_its_newest_state_is_pruned(hubs: HubFactory) -> None:
    now = 1_000_000_000
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(lambda: now, lambda: now))
    thread = await hub.create_thread(OWNER, ThreadChange(ttl=100, keeps_latest=True))
    for words in ("one", "two"):
        await submit_to_end(hub, "echo", words, thread_id=thread.thread_id)
    await hubs.stop(hub)
    now += 101_000_000
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(lambda: now, lambda: now))

    async def states() -> int:
        history = await hub.reads.snapshot(
            OWNER, thread.thread_id, StateHistory, lambda: StateHistory(thread.thread_id)
        )
        return len(list(history.newest(())))

    async def pruned() -> None:
        while True:
            if await states() == 1:
                return
            await asyncio.sleep(0)

    await within(pruned(), "the end of the thread's older states")
    assert (await hub.reads.thread(OWNER, thread.thread_id)).keeps_latest


async def test_expiry_continues_after_a_restart(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo", ephemeral=True)
    await hubs.stop(hub)
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)
    await erased(hub, receipt.thread_id)


async def test_an_existing_thread_does_not_become_ephemeral(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)
    thread = await hub.create_thread(OWNER, ThreadChange())
    submission = Submission(
        agent="echo", thread_id=thread.thread_id, ephemeral=True, input=RunInput(messages=text("hi"))
    )
    receipt = await hub.submit(OWNER, submission)
    await ends(hub, receipt)
    passing = await submit(hub, "echo", ephemeral=True)
    await erased(hub, passing.thread_id)
    assert not (await hub.reads.thread(OWNER, thread.thread_id)).ephemeral


async def test_threads_that_could_not_be_erased_are_erased_later(
    hubs: HubFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("babelgate.gateway.runs.expiry._RETRY_DELAY", 1000)
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)

    async def rename(old: str, new: str) -> None:
        await hub.journal.write(lambda tx: tx.connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}") and None)

    await rename("tombstone", "hidden")
    receipts = [await submit_to_end(hub, "echo", ephemeral=True) for _ in range(3)]
    await within(eventually(lambda: "expired threads not erased" in caplog.text), "the failed erasure")
    await rename("hidden", "tombstone")
    for receipt in receipts:
        await erased(hub, receipt.thread_id)
