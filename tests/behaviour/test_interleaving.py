"""Two conflicting requests at the same moment: the first commit wins, and the other request gets a fault."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from babelgate.canonical import FaultCode, FaultError, Receipt, RunStatus, Task, TaskState
from babelgate.canonical.event import InterruptAnswered, RunEnded, TaskChanged
from babelgate.canonical.state import TERMINAL
from babelgate.gateway.hub import GatewayHub
from tests.gateway.hubs import (
    OWNER,
    Activation,
    HubFactory,
    PausedWriter,
    Scripted,
    answer,
    ends,
    eventually,
    log,
    states,
    submit,
    submit_and_ask,
    within,
)

Step = Callable[[GatewayHub, Receipt, Activation | None], Awaitable[Any]]


async def _answer(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await answer(hub, receipt.task_id, "first")


async def _answer_again(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await answer(hub, receipt.task_id, values={"q": "second"})


async def _cancel(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await hub.cancel(OWNER, receipt.task_id)


async def _supersede(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await submit(hub, "a", "new", thread_id=receipt.thread_id, supersede=True)


async def _interrupt(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await submit(hub, "a", "new", thread_id=receipt.thread_id, strategy="interrupt")


async def _rollback(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await submit(hub, "a", "new", thread_id=receipt.thread_id, strategy="rollback")


async def _delete(hub: GatewayHub, receipt: Receipt, _: Activation | None) -> Any:
    return await hub.delete_thread(OWNER, receipt.thread_id)


async def _finish(hub: GatewayHub, receipt: Receipt, activation: Activation | None) -> Any:
    """Let the agent end, and return when the end of its run is queued."""
    assert activation is not None
    activation.end()
    await within(activation.closed.wait())
    await within(eventually(lambda: not hub.engine.active), "the end of the run")
    for _ in range(3):
        await asyncio.sleep(0)


async def together(
    hub: GatewayHub, receipt: Receipt, activation: Activation | None, steps: Sequence[Step]
) -> list[Any]:
    """Queue the steps in order while the writer is held, so that they become one group. Return the value or the fault
    of each step."""
    async with PausedWriter(hub) as writer:
        started: list[asyncio.Future[Any]] = []
        for step in steps:
            writes = step is _finish and bool(hub.engine.active)
            started.append(asyncio.ensure_future(step(hub, receipt, activation)))
            await writer.queued(started[-1], writes=writes, is_direct=step is not _finish)
    return await within(asyncio.gather(*started, return_exceptions=True))


async def one_by_one(
    hub: GatewayHub, receipt: Receipt, activation: Activation | None, steps: Sequence[Step]
) -> list[Any]:
    """Queue each step after the commit of the one before. Return the value or the fault of each step."""
    results: list[Any] = []
    for step in steps:
        async with PausedWriter(hub) as writer:
            writes = step is _finish and bool(hub.engine.active)
            started = asyncio.ensure_future(step(hub, receipt, activation))
            await writer.queued(started, writes=writes, is_direct=step is not _finish)
        results += await within(asyncio.gather(started, return_exceptions=True))
        await within(hub.journal.write(lambda tx: None))
    return results


def code(result: Any) -> FaultCode | None:
    assert not isinstance(result, BaseException) or isinstance(result, FaultError), result
    return result.fault.code if isinstance(result, FaultError) else None


async def paused(hub: GatewayHub, agent: Scripted) -> Receipt:
    receipt = await submit_and_ask(hub, agent, "q")
    return receipt


async def settle(hub: GatewayHub, agent: Scripted) -> None:
    """Let every running agent end, and wait until all that follows is committed."""
    while True:
        await within(hub.engine.idle(), "the end of what agents left to write")
        if not hub.engine.active:
            return
        for activation in agent.calls:
            activation.end()
        await within(asyncio.gather(*(activation.closed.wait() for activation in agent.calls)))


WAYS = pytest.mark.parametrize("way", [together, one_by_one], ids=["one group", "two groups"])


@dataclass(frozen=True)
class Race:
    """Two steps on a paused task, and their expected outcome."""

    steps: tuple[Step, Step]
    fault: FaultCode | None
    """Fault of the second step."""
    end: TaskState
    answered: tuple[str, Any]
    """Action and value of the record that closes the question."""
    cancel_state: TaskState | None = None
    """State of the task that the cancel returns."""

    def __str__(self) -> str:
        return " ".join(step.__name__ for step in self.steps)


SUPERSEDED = ("superseded", None)
RACES = (
    Race((_answer, _cancel), None, TaskState.CANCELLED, ("answer", "first"), TaskState.CANCELLING),
    Race((_cancel, _answer), FaultCode.TASK_ENDED, TaskState.CANCELLED, SUPERSEDED, TaskState.CANCELLED),
    Race((_answer, _answer_again), FaultCode.NOT_AWAITING, TaskState.COMPLETED, ("answer", "first")),
    Race((_answer_again, _answer), FaultCode.NOT_AWAITING, TaskState.COMPLETED, ("answer", "second")),
    Race((_answer, _supersede), None, TaskState.COMPLETED, ("answer", "first")),
    Race((_supersede, _answer), FaultCode.TASK_ENDED, TaskState.CANCELLED, SUPERSEDED),
)


@WAYS
@pytest.mark.parametrize("race", RACES, ids=str)
async def test_the_first_commit_decides_the_outcome_of_a_question(hubs: HubFactory, race: Race, way: Any) -> None:
    hub, agent = await hubs.scripted()
    receipt = await paused(hub, agent)
    results = await way(hub, receipt, None, race.steps)
    assert [code(result) for result in results] == [None, race.fault]
    cancel_states = [result.state for result in results if isinstance(result, Task)]
    assert cancel_states == ([] if race.cancel_state is None else [race.cancel_state])
    await settle(hub, agent)
    assert (await hub.reads.task(OWNER, receipt.task_id)).state is race.end
    events = [record.event for record in await log(hub, receipt)]
    assert [(e.action, e.value) for e in events if isinstance(e, InterruptAnswered)] == [race.answered]
    if race.cancel_state is not TaskState.CANCELLING:  # a run that is cancelled at once may never call the agent
        started = [result.run_id for result in results if isinstance(result, Receipt)]
        assert [activation.call.run_id for activation in agent.calls[1:]] == started


@WAYS
@pytest.mark.parametrize("first", [_cancel, _finish])
async def test_the_first_of_cancel_and_finish_wins(hubs: HubFactory, first: Step, way: Any) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = await agent.called()
    second = _finish if first is _cancel else _cancel
    one, two = await way(hub, receipt, activation, [first, second])
    task = await ends(hub, receipt)
    if first is _finish:
        assert code(two) is FaultCode.TASK_ENDED
        assert task.state is TaskState.COMPLETED
        assert states(await log(hub, receipt)) == ["working", "completed"]
    else:
        assert code(one) is None and one.state is TaskState.CANCELLING
        assert task.state is TaskState.CANCELLED
        assert states(await log(hub, receipt)) == ["working", "cancelling", "cancelled"]


PAUSED: list[Step] = [_answer, _answer_again, _cancel, _supersede, _interrupt, _rollback, _delete]
WORKING: list[Step] = [_finish, _cancel, _cancel, _supersede, _interrupt, _rollback, _delete]


@pytest.mark.parametrize("seed", range(50))
async def test_fifty_interleavings_have_one_winner_each(hubs: HubFactory, seed: int) -> None:
    """Run three to five random steps at once, in random groups."""
    draw = random.Random(seed)
    hub, agent = await hubs.scripted()
    activation: Activation | None = None
    if draw.random() < 0.6:
        receipt = await paused(hub, agent)
        steps = draw.sample(PAUSED, draw.randint(3, 5))
    else:
        receipt = await submit(hub, "a")
        activation = await agent.called()
        steps = draw.sample(WORKING, draw.randint(3, 5))
        if _finish in steps:  # its commit is queued when the agent has ended
            steps = [_finish, *(step for step in steps if step is not _finish)]
    cut = draw.randint(1, len(steps))
    results = await together(hub, receipt, activation, steps[:cut])
    results += await one_by_one(hub, receipt, activation, steps[cut:])
    by_step = dict(zip(steps, results, strict=True))
    for step, result in by_step.items():
        allowed = {None, FaultCode.TASK_ENDED, FaultCode.NOT_AWAITING, FaultCode.NOT_FOUND}
        assert code(result) in allowed, (step.__name__, result)
    won = [step for step in (_answer, _answer_again) if step in by_step and code(by_step[step]) is None]
    assert len(won) <= 1
    await settle(hub, agent)
    deleted = _delete in by_step and code(by_step[_delete]) is None
    if deleted:
        with pytest.raises(FaultError):
            await hub.reads.thread(OWNER, receipt.thread_id)
        return
    records = await log(hub, receipt, "task")
    terminal = [r for r in records if isinstance(r.event, TaskChanged) and r.event.state in TERMINAL]
    task = await hub.reads.task(OWNER, receipt.task_id)
    assert len(terminal) == (1 if task.is_terminal else 0)
    answers = [r.event.value for r in records if isinstance(r.event, InterruptAnswered) and r.event.action == "answer"]
    assert len(answers) == len(won)
    if by_step.get(_cancel) is not None and code(by_step[_cancel]) is None:
        assert task.state is TaskState.CANCELLED
    for record in records:
        if isinstance(record.event, RunEnded) and record.event.status is RunStatus.ERROR:
            raise AssertionError(f"nobody failed, and yet: {record}")
