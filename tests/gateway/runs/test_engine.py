"""Tests of the ends of runs: cancels, time limits, failing agents."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from babelgate.canonical import (
    Event,
    FaultCode,
    FaultError,
    Invocation,
    Receipt,
    RunReason,
    RunStatus,
    Scope,
    TaskState,
)
from babelgate.canonical.event import Custom, RunEnded
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.settings.model import Limits
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    PausedWriter,
    Scripted,
    answer,
    begin,
    converse,
    ends,
    eventually,
    fails,
    finish,
    follow,
    log,
    open_questions,
    reaches,
    refused,
    registered,
    say,
    states,
    submit,
    submit_and_ask,
    within,
)
from tests.gateway.log_capture import capture_log


async def test_a_run_continues_when_its_caller_disconnects(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    caller = asyncio.ensure_future(submit(hub, "a", "left alone"))
    await asyncio.sleep(0)
    caller.cancel()
    activation = await agent.called()
    scope = Scope(activation.call.thread_id, "task", activation.call.task_id)
    activation.end()
    assert states(await follow(hub, scope)) == ["working", "completed"]
    await converse(hub, agent, "the slot is free again")


# Cancel


async def test_an_agent_that_ends_in_time_ends_its_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("half a ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    assert (await hub.cancel(OWNER, receipt.task_id)).state is TaskState.CANCELLING
    await ends(hub, receipt)
    assert activation.closed.is_set()
    run = await hub.reads.run(OWNER, receipt.run_id)
    assert (run.status, run.reason) == (RunStatus.CANCELLED, RunReason.CALLER)
    assert states(await log(hub, receipt)) == ["working", "cancelling", "cancelled"]


async def test_an_agent_that_ignores_a_cancel_keeps_its_slot(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True, concurrency=1, limits=Limits(cancel_grace=0.05))
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("half")
    waiting = await submit(hub, "a", "next")
    await hub.cancel(OWNER, receipt.task_id)
    await ends(hub, receipt)
    assert not activation.closed.is_set()
    ended = await log(hub, receipt)
    other = await submit(hub, "a", "another thread")
    assert (await hub.reads.run(OWNER, waiting.run_id)).status is RunStatus.PENDING
    assert not agent.waiting
    activation.say(Custom(name="dropped"))  # the agent yields an event, and is closed
    (await agent.called()).end()
    assert activation.closed.is_set()
    (await agent.called()).end()
    await asyncio.gather(ends(hub, waiting), ends(hub, other))
    assert await log(hub, receipt) == ended


async def test_the_thread_of_an_abandoned_run_continues(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True, limits=Limits(cancel_grace=0.05))
    old, activation = await begin(hub, agent, "old")
    new, following = await begin(hub, agent, "new", thread_id=old.thread_id, strategy="interrupt")
    assert following.call.text == "new"
    assert not activation.closed.is_set()
    activation.say("too late").end()
    await within(activation.closed.wait())
    await finish(hub, following.say("in time"), new)
    assert "too late" not in str(await log(hub, new))
    assert (await hub.reads.run(OWNER, old.run_id)).reason is RunReason.SUPERSEDED


async def test_a_second_cancel_changes_nothing(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True)
    receipt, activation = await begin(hub, agent)
    await hub.cancel(OWNER, receipt.task_id)
    before = await log(hub, receipt)
    assert (await hub.cancel(OWNER, receipt.task_id)).state is TaskState.CANCELLING
    assert await log(hub, receipt) == before
    activation.end()
    assert (await ends(hub, receipt)).state is TaskState.CANCELLED


async def test_a_cancel_committed_first_wins_over_the_agents_end(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True)
    receipt, activation = await begin(hub, agent)
    await hub.cancel(OWNER, receipt.task_id)
    activation.say("done after all").ask("and a question").end()
    task = await ends(hub, receipt)
    assert (task.state, task.fault) == (TaskState.CANCELLED, None)
    assert await open_questions(hub, receipt) == []


async def test_a_cancel_before_the_call_prevents_it(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, cancelled = await asyncio.gather(*_submit_and_cancel(hub, "11111111-1111-4111-8111-111111111111"))
    assert cancelled.state in (TaskState.CANCELLING, TaskState.CANCELLED)
    assert (await ends(hub, receipt)).state is TaskState.CANCELLED
    assert agent.calls == [] or agent.calls[0].closed.is_set()


def _submit_and_cancel(hub: Any, task_id: str) -> Iterator[Any]:
    yield submit(hub, "a", task_id=task_id)
    yield hub.cancel(OWNER, task_id)


# Time


async def test_a_run_over_its_time_limit_fails_with_a_timeout(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(total=0.05)
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("half")
    await fails(hub, receipt, FaultCode.AGENT_TIMEOUT)
    assert activation.closed.is_set()
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.TIMEOUT


async def test_a_timeout_ends_the_run_of_an_uncooperative_agent(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True, limits=Limits(run=0.05, cancel_grace=0.05))
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("half")
    assert (await ends(hub, receipt)).state is TaskState.FAILED
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.TIMEOUT
    assert not activation.closed.is_set()
    activation.end()
    await within(activation.closed.wait())


async def test_a_timeout_error_of_the_agent_is_a_failure(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(total=100)
    for error in (TimeoutError(), TimeoutError("upstream took long")):
        receipt = await submit(hub, "a")
        (await agent.called()).fail(error)
        await fails(hub, receipt, FaultCode.AGENT_FAILED)


# Agents that fail


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        for event in say("before"):
            yield event
        raise self.error


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit(3), asyncio.CancelledError("inside"), RuntimeError("lone \ud800")]
)
async def test_any_exception_of_an_agent_fails_only_its_run(hubs: HubFactory, error: BaseException) -> None:
    hub = await hubs.start(registered("a", Raising(error)), registered("echo", Echo()))
    receipt, beside = await submit(hub, "a"), await submit(hub, "echo")
    await fails(hub, receipt, FaultCode.AGENT_FAILED)
    assert "before" in str(await log(hub, receipt))
    await ends(hub, beside)


async def test_a_broken_agent_refuses_runs_and_fails_waiting_ones(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    first = await submit_and_ask(hub, agent, "name")
    await hubs.stop(hub)
    hub = await hubs.start(registered("a", None, broken="no module named agent"))
    with capture_log() as logs, pytest.raises(FaultError, match="Agent a is not available") as error:
        await submit(hub, "a")
    assert error.value.fault.code is FaultCode.AGENT_UNREACHABLE
    assert "no module named agent" not in error.value.fault.message, "the reason is for the operator"
    assert "broken agent called agent=a run=- reason=no module named agent" in logs.of("babelgate.registry")
    await answer(hub, first.task_id, "Bob")
    await fails(hub, first, FaultCode.AGENT_UNREACHABLE)


# How agents end


@pytest.mark.parametrize(
    ("ended", "state", "status", "reason"),
    [
        (RunEnded(output={"a": 1}, usage={"tokens": 2}), TaskState.COMPLETED, RunStatus.SUCCESS, RunReason.DONE),
        (RunEnded(reason=RunReason.ROLLED_BACK), TaskState.COMPLETED, RunStatus.SUCCESS, RunReason.DONE),
        (RunEnded(status=RunStatus.ERROR), TaskState.FAILED, RunStatus.ERROR, RunReason.FAULT),
        (RunEnded(status=RunStatus.TIMEOUT), TaskState.FAILED, RunStatus.TIMEOUT, RunReason.FAULT),
        (
            RunEnded(status=RunStatus.CANCELLED, reason=RunReason.ROLLED_BACK),
            TaskState.CANCELLED,
            RunStatus.CANCELLED,
            RunReason.CALLER,
        ),
        (RunEnded(status=RunStatus.PAUSED), TaskState.FAILED, RunStatus.ERROR, RunReason.FAULT),
        (RunEnded(status=RunStatus.RUNNING), TaskState.FAILED, RunStatus.ERROR, RunReason.FAULT),
        (RunEnded(status=RunStatus.PENDING), TaskState.FAILED, RunStatus.ERROR, RunReason.FAULT),
    ],
)
async def test_an_agent_sets_the_status_but_not_the_reason(
    hubs: HubFactory, ended: RunEnded, state: TaskState, status: RunStatus, reason: RunReason
) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    (await agent.called()).end(ended)
    task = await ends(hub, receipt)
    run = await hub.reads.run(OWNER, receipt.run_id)
    assert (task.state, run.status, run.reason, run.removed) == (state, status, reason, False)
    assert (run.fault is not None) == (state is TaskState.FAILED)
    if state is TaskState.COMPLETED:
        assert (run.output, run.usage) == (ended.output, ended.usage)


async def test_an_agent_may_end_as_paused_with_an_open_question(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    (await agent.called()).ask("login", kind="auth").end(RunEnded(status=RunStatus.PAUSED))
    assert (await reaches(hub, receipt, TaskState.AUTH_REQUIRED)).is_waiting
    assert (await hub.reads.run(OWNER, receipt.run_id)).reason is RunReason.AUTH


async def test_an_event_after_the_end_is_refused(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    (await agent.called()).say(RunEnded()).say("more").end()
    await fails(hub, receipt, FaultCode.AGENT_INVALID)


@pytest.mark.slow
async def test_more_threads_are_followed_than_channels_are_cached(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipts = [await submit(hub, "a", str(number)) for number in range(530)]
    activations = [await agent.called() for _ in receipts]

    async def hear(receipt: Receipt) -> None:
        await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")

    async with asyncio.TaskGroup() as readers:
        for receipt in receipts:
            readers.create_task(hear(receipt))
        await asyncio.sleep(0)
        for each in activations:
            each.open("a word")
    for each in activations:
        each.end()
    for receipt in receipts:
        await ends(hub, receipt)


async def test_an_agent_whose_run_moved_elsewhere_is_closed(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    receipt, activation = await begin(hub, agent)
    (start,) = hub.engine.active
    seq = (await log(hub, receipt))[-1].seq
    with pytest.raises(lifecycle.Moved):
        await within(hub.journal.write(lifecycle.restart, start, seq - 1))
    begun = await within(hub.journal.write(lifecycle.restart, start, seq))
    activation.say("lost")
    await within(activation.closed.wait(), "the end of the agent")
    await within(hub.engine.idle())
    run = await hub.reads.run(OWNER, receipt.run_id)
    assert (run.status, run.attempt) == (RunStatus.RUNNING, 2)
    await within(eventually(lambda: hub.engine.slots.reserve("a", OWNER)), "its slot")
    hub.engine.slots.release("a", OWNER)
    await within(hub.engine.recover(begun))
    await fails(hub, receipt, FaultCode.GATEWAY_RESTARTED)


async def test_a_run_committed_during_the_stop_does_not_begin(hubs: HubFactory) -> None:
    """Leave the run to the next start. Otherwise its agent's server would cancel it when the loop ends."""
    hub, agent = await hubs.scripted()
    async with PausedWriter(hub) as writer:
        asking = asyncio.ensure_future(submit(hub, "a"))
        await writer.queued(asking)
        stopping = asyncio.ensure_future(hub.engine.stop())
        await asyncio.sleep(0)  # it has begun
    receipt = await within(asking)
    await within(stopping)
    assert not agent.calls
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.RUNNING
    await within(hub.stop())
    again = await hubs.start(registered("a", agent))
    await fails(again, receipt, FaultCode.GATEWAY_RESTARTED)


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.ERROR])
async def test_a_stop_does_not_cancel_runs(hubs: HubFactory, status: RunStatus) -> None:
    """Detach from a run. Its agent reports that it was cancelled, or has failed, and this does not count."""
    hub, agent = await hubs.scripted(stubborn=True)
    receipt, activation = await begin(hub, agent)
    stopping = asyncio.ensure_future(hub.engine.stop())
    await within(activation.cancelled.wait(), "the stop")
    activation.end(RunEnded(status=status))
    await within(stopping)
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.RUNNING
    await within(hub.stop())
    again = await hubs.start(registered("a", Scripted()))
    await fails(again, receipt, FaultCode.GATEWAY_RESTARTED)


async def test_a_draining_hub_waits_for_runs_and_refuses_new_ones(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    receipt, activation = await begin(hub, agent)
    waiting = await submit(hub, "a")
    draining = asyncio.ensure_future(hub.drain())
    await asyncio.sleep(0)
    with refused(FaultCode.SHUTTING_DOWN):
        await submit(hub, "a")
    assert await hub.ready() == "the gateway is shutting down"
    assert not draining.done()
    activation.end()
    await within(draining)
    assert (await hub.reads.task(OWNER, receipt.task_id)).state is TaskState.COMPLETED
    assert (await hub.reads.run(OWNER, waiting.run_id)).status is RunStatus.PENDING
