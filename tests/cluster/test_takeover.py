"""Several gateways on one database: runs of a node that the others take for gone."""

import pytest

from babelgate.canonical import FaultCode, FaultError, Receipt, RunStatus, TaskState, TextPart
from babelgate.canonical.event import PartAdded, PartDelta, RunStarted
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs.cluster import Cluster
from tests.cluster.nodes import Nodes, ended
from tests.gateway.hubs import OWNER, Scripted, eventually, log, registered, submit, within


async def words_of(hub: GatewayHub, receipt: Receipt) -> list[str]:
    """Return the text of a run in the log, piece by piece."""
    words: list[str] = []
    for record in await log(hub, receipt, "run"):
        match record.event:
            case PartAdded(part=TextPart(text=text)) | PartDelta(text=text):
                words.append(text)
            case _:
                pass
    return words


async def test_a_run_of_a_silent_node_continues_on_another(cluster: Nodes) -> None:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a, idempotent=True, concurrency=1))
    b = await cluster.start("b", registered("s", agent_b, idempotent=True))
    receipt = await submit(a, "s")
    first = await agent_a.called()
    first.open("one ")
    first.more("two ")
    await within(eventually(lambda: a.journal.channels.get(a.engine.active[0].pk).seq >= 6), "two words")
    cluster.silence(a)
    second = await agent_b.called()
    assert second.call.attempt == 2
    first.more("lost ")  # it is refused, and the agent is released
    await within(first.closed.wait(), "the end of the agent")
    second.open("one ")
    second.more("two ")
    second.more("three")
    second.end()
    task = await ended(b, receipt)
    assert task.state is TaskState.COMPLETED
    assert "".join(await words_of(b, receipt)) == "one two three"
    assert not a.engine.active
    cluster.resume_heartbeats(a)
    await within(eventually(lambda: a.engine.slots.reserve("s", OWNER)), "the slot of what was let go of")
    a.engine.slots.release("s", OWNER)


async def test_a_run_that_cannot_continue_fails_and_unblocks_its_thread(
    cluster: Nodes,
) -> None:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a))
    b = await cluster.start("b", registered("s", agent_b))
    receipt = await submit(a, "s")
    await agent_a.called()
    behind = await submit(a, "s", thread_id=receipt.thread_id)
    cluster.silence(a)
    (await agent_b.called()).say("hello").end()
    assert (await ended(b, behind)).state is TaskState.COMPLETED
    task = await ended(b, receipt)
    assert task.fault is not None and task.fault.code is FaultCode.GATEWAY_RESTARTED
    assert "The gateway's node a stopped" in task.fault.message


async def test_queued_runs_of_a_lost_node_start_elsewhere(cluster: Nodes) -> None:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a, concurrency=1))
    b = await cluster.start("b", registered("s", agent_b))
    await submit(a, "s")
    await agent_a.called()
    waits = await submit(a, "s")
    later = await submit(a, "s", start_in=1_000_000)
    cluster.silence(a)
    activations = [await agent_b.called() for _ in range(2)]
    assert {each.call.run_id for each in activations} == {waits.run_id, later.run_id}
    for activation in activations:
        activation.end()
    for receipt in (waits, later):
        assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert not agent_a.waiting, "a silent node must free its slot and begin no run"
    comes_late = await submit(a, "s")
    activation = await agent_b.called()
    assert activation.call.run_id == comes_late.run_id
    cluster.resume_heartbeats(a)
    activation.end()
    assert (await ended(b, comes_late)).state is TaskState.COMPLETED
    await within(eventually(lambda: a.engine.slots.reserve("s", OWNER)), "a slot of a node that is there again")
    a.engine.slots.release("s", OWNER)
    back = await submit(a, "s")
    (await agent_a.called()).end()
    assert (await ended(b, back)).state is TaskState.COMPLETED


async def test_runs_of_a_stopped_node_are_adopted(cluster: Nodes) -> None:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a, idempotent=True))
    b = await cluster.start("b", registered("s", agent_b, idempotent=True))
    receipt = await submit(a, "s")
    await agent_a.called()
    await cluster.stop(a)
    (await agent_b.called()).say("hello").end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED


async def test_a_starting_node_takes_over_abandoned_runs(cluster: Nodes) -> None:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a, idempotent=True))
    receipt = await submit(a, "s")
    await agent_a.called()
    await cluster.stop(a)
    b = await cluster.start("b", registered("s", agent_b, idempotent=True))
    (await agent_b.called()).end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED


async def test_a_node_leaves_runs_of_others_alone_when_it_starts(cluster: Nodes) -> None:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a, idempotent=True))
    receipt = await submit(a, "s")
    activation = await agent_a.called()
    await cluster.start("b", registered("s", agent_b, idempotent=True))
    activation.end()
    assert (await ended(a, receipt)).state is TaskState.COMPLETED
    assert not agent_b.waiting
    started = [record for record in await log(a, receipt) if isinstance(record.event, RunStarted)]
    assert len(started) == 1


async def test_a_run_returns_to_a_node_that_was_silent(cluster: Nodes) -> None:
    agent_a, agent_b = Scripted(stubborn=True), Scripted()
    a = await cluster.start("a", registered("s", agent_a, idempotent=True))
    b = await cluster.start("b", registered("s", agent_b, idempotent=True))
    receipt = await submit(a, "s")
    stuck = await agent_a.called()
    cluster.silence(a)
    await agent_b.called()
    cluster.resume_heartbeats(a)
    cluster.silence(b)
    again = await agent_a.called()
    assert again.call.attempt == 3
    stuck.say("lost").end()  # it was released long ago
    await within(stuck.closed.wait(), "the end of the first")
    again.say("found").end()
    assert (await ended(a, receipt)).state is TaskState.COMPLETED
    assert await words_of(a, receipt) == ["found"]
    assert (await a.reads.run(OWNER, receipt.run_id)).status is RunStatus.SUCCESS


async def test_a_node_that_fails_to_start_is_not_registered(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a = await cluster.start("a", registered("s", Scripted()))
    start = Cluster.start

    async def fail(joins: Cluster) -> None:
        await start(joins)
        raise FaultError(FaultCode.INTERNAL, "the test says so")

    monkeypatch.setattr(Cluster, "start", fail)
    with pytest.raises(FaultError, match="the test says so"):
        await cluster.start("b", registered("s", Scripted()))
    nodes = "SELECT name FROM node"
    assert await a.journal.query(lambda connection: connection.exec_driver_sql(nodes).scalars().all()) == ["a"]
