"""Several gateways on one database that attempt the same thing at the same moment: one of them does it."""

import asyncio

from babelgate.canonical import TaskState
from babelgate.canonical.event import RunStarted
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs.recovery import start_of
from babelgate.gateway.storage import queries
from tests.cluster.nodes import Nodes, ended
from tests.cluster.test_takeover import words_of
from tests.gateway.hubs import OWNER, Activation, PausedWriter, Scripted, eventually, log, registered, submit, within


async def the_call(*agents: Scripted) -> Activation:
    """Wait until one of the agents is called, and return the call."""
    await within(eventually(lambda: any(agent.waiting for agent in agents)), "a call")
    return await next(agent for agent in agents if agent.waiting).called()


def has_room(hub: GatewayHub) -> bool:
    """Return True if the agent's only slot is free."""
    free = hub.engine.slots.reserve("s", OWNER)
    if free:
        hub.engine.slots.release("s", OWNER)
    return free


async def test_one_of_several_nodes_takes_a_run_over(cluster: Nodes) -> None:
    agents = [Scripted() for _ in range(3)]
    a, b, c = [
        await cluster.start(name, registered("s", agent, idempotent=True, concurrency=1))
        for name, agent in zip("abc", agents, strict=True)
    ]
    receipt = await submit(a, "s")
    first = await agents[0].called()
    (lost,) = await b.journal.query(queries.live_runs)
    for hub in (b, c):
        await within(hub.engine.recover(start_of(lost)))
        hub.engine.recover_suspects()
    second = await the_call(*agents[1:])
    first.say("lost")
    await within(first.closed.wait(), "the end of the first")
    second.say("hello").end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert await words_of(b, receipt) == ["hello"]
    assert [record.event.attempt for record in await log(b, receipt) if isinstance(record.event, RunStarted)] == [1, 2]
    for hub in (a, b, c):
        await within(hub.engine.idle())
        assert has_room(hub)


async def test_a_run_offered_by_two_nodes_starts_once(cluster: Nodes) -> None:
    agents = [Scripted() for _ in range(3)]
    a, b, c = [
        await cluster.start(name, registered("s", agent, concurrency=1))
        for name, agent in zip("abc", agents, strict=True)
    ]
    await submit(a, "s")
    await agents[0].called()
    waits = await submit(a, "s")
    for hub in (b, c):
        hub.engine.slots.offer(OWNER, waits.thread_id, "s")
    activation = await the_call(*agents[1:])
    await within(asyncio.gather(b.engine.idle(), c.engine.idle()))
    assert sorted((has_room(b), has_room(c))) == [False, True]
    activation.end()
    winner = b if b.engine.active else c
    assert (await ended(winner, waits)).state is TaskState.COMPLETED
    started = [record for record in await log(winner, waits) if isinstance(record.event, RunStarted)]
    assert len(started) == 1


async def test_events_during_a_takeover_are_logged_once(
    cluster: Nodes,
) -> None:
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", mine, idempotent=True))
    b = await cluster.start("b", registered("s", other, idempotent=True))
    receipt = await submit(a, "s")
    first = await mine.called()
    first.open("one ")
    channel = a.journal.channels.get(a.engine.active[0].pk)
    before = channel.seq
    await within(eventually(lambda: channel.seq > before), "a word")
    (lost,) = await b.journal.query(queries.live_runs)
    async with PausedWriter(b) as held:
        recovering = asyncio.ensure_future(b.engine.recover(start_of(lost)))
        await held.queued(recovering)  # it has read the log
        before = channel.seq
        first.more("two ")
        await within(eventually(lambda: channel.seq > before), "another word")
    await within(recovering)
    second = await other.called()
    second.open("one ")
    second.more("two ")
    second.more("three")
    second.end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert "".join(await words_of(b, receipt)) == "one two three"
    started = [record for record in await log(b, receipt) if isinstance(record.event, RunStarted)]
    assert [record.event.resumed for record in started if isinstance(record.event, RunStarted)] == [False, True]
