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
    House,
    batches,
    begin,
    ends,
    fails,
    finish,
    follow,
    gone,
    registered,
    submit,
    submit_and_ask,
    submit_to_end,
    text,
    within,
)

SOON = Limits(ephemeral_ttl=0.05, input_ttl=0.05)


async def erased(hub: GatewayHub, thread_id: str) -> None:
    """Wait until a thread is erased, which ends its readers."""
    try:
        await follow(hub, Scope(thread_id))
        await hub.reads.thread(OWNER, thread_id)
    except FaultError as error:
        assert error.fault.code is FaultCode.NOT_FOUND
    else:
        raise AssertionError(f"{thread_id} is there")


async def test_a_stateless_runs_thread_is_erased_after_its_end(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)
    receipt = await submit(hub, "echo", ephemeral=True)
    await gone(hub, receipt.thread_id)
    with pytest.raises(FaultError):
        await hub.reads.run(OWNER, receipt.run_id)


async def test_it_stays_while_the_agent_is_at_work_and_while_somebody_reads(hubs: House) -> None:
    hub, agent = await hubs.scripted(limits=SOON)
    receipt, going = await begin(hub, agent, ephemeral=True)
    reading = batches(hub, Scope(receipt.thread_id))
    await anext(reading)
    await finish(hub, going.say("hello"), receipt)
    marker = await submit(hub, "a", ephemeral=True)  # ends later and has no reader, so it is erased first
    (await agent.called()).end()
    await gone(hub, marker.thread_id)
    assert await hub.reads.thread(OWNER, receipt.thread_id)
    await reading.aclose()
    await gone(hub, receipt.thread_id)


async def test_a_question_of_a_stateless_run_fails_when_nobody_answers_in_time(hubs: House) -> None:
    hub, agent = await hubs.scripted(limits=Limits(ephemeral_ttl=60, input_ttl=0.05))
    receipt = await submit(hub, "a", ephemeral=True)
    (await agent.called()).ask("q").end()
    await fails(hub, receipt, FaultCode.EXPIRED)
    assert await hub.reads.open_interrupts(OWNER, receipt.task_id) == []


async def test_other_questions_wait_for_ever(hubs: House) -> None:
    hub, agent = await hubs.scripted(limits=SOON)
    waiting = await submit_and_ask(hub, agent, "q")
    passing = await submit(hub, "a", ephemeral=True)
    (await agent.called()).ask("q").end()
    await gone(hub, passing.thread_id)
    assert (await hub.reads.task(OWNER, waiting.task_id)).state is TaskState.INPUT_REQUIRED


async def test_a_thread_with_a_time_to_live_ends_that_long_after_its_last_change(hubs: House) -> None:
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
    await erased(hub, thread.thread_id)
    assert await hub.reads.thread(OWNER, other.thread_id)


async def test_a_thread_that_keeps_its_newest_state_is_pruned_and_not_erased(hubs: House) -> None:
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


async def test_a_restart_goes_on_with_what_is_to_expire(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo", ephemeral=True)
    await hubs.stop(hub)
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)
    await gone(hub, receipt.thread_id)


async def test_a_thread_that_was_there_before_is_not_made_ephemeral(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()), limits=SOON)
    thread = await hub.create_thread(OWNER, ThreadChange())
    submission = Submission(
        agent="echo", thread_id=thread.thread_id, ephemeral=True, input=RunInput(messages=text("hi"))
    )
    receipt = await hub.submit(OWNER, submission)
    await ends(hub, receipt)
    passing = await submit(hub, "echo", ephemeral=True)
    await gone(hub, passing.thread_id)
    assert not (await hub.reads.thread(OWNER, thread.thread_id)).ephemeral
