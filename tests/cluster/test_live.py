"""Several gateways on one database: events of one node are read live on the others."""

import asyncio

from babelgate.canonical import Scope, TaskState
from babelgate.canonical.event import PartAdded, PartDelta, RunRemoved
from babelgate.gateway.settings.model import Limits
from tests.cluster.nodes import Nodes, ended
from tests.gateway.hubs import OWNER, Scripted, ends, follow, log, registered, submit, within


async def test_a_run_is_read_live_and_later_on_another_node(cluster: Nodes) -> None:
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", mine))
    b = await cluster.start("b", registered("s", other))
    receipt = await submit(a, "s")
    activation = await mine.called()
    scope = Scope(receipt.thread_id, "run", receipt.run_id)
    activation.open("one ")
    live = await follow(b, scope, until=lambda record: type(record.event) is PartAdded)
    activation.more("two ")
    live += await follow(b, scope, live[-1].seq, until=lambda record: type(record.event) is PartDelta)
    to_its_end = asyncio.ensure_future(follow(b, scope, live[-1].seq))
    activation.more("three").end()
    live += await within(to_its_end)
    assert live == await log(a, receipt, "run") == await log(b, receipt, "run")
    assert (await ends(b, receipt)).state is TaskState.COMPLETED
    assert await follow(b, scope) == live


async def test_a_reader_follows_a_run_across_a_takeover(cluster: Nodes) -> None:
    """Read on a third node while the run moves from the first node to the second."""
    agents = [Scripted() for _ in range(3)]
    a, b, c = [
        await cluster.start(name, registered("s", agent, idempotent=True))
        for name, agent in zip("abc", agents, strict=True)
    ]
    receipt = await submit(a, "s")
    (await agents[0].called()).open("one ")
    reading = asyncio.ensure_future(follow(c, Scope.task(receipt.task)))
    await follow(c, Scope.task(receipt.task), until=lambda record: type(record.event) is PartAdded)
    cluster.silence(c)  # it could take the run over itself
    cluster.silence(a)
    again = await agents[1].called()
    again.open("one ")
    again.more("two").end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert await within(reading) == await log(b, receipt, "task")


async def test_a_run_removed_on_one_node_is_hidden_on_others(cluster: Nodes) -> None:
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", mine))
    b = await cluster.start("b", registered("s", other))
    receipt = await submit(a, "s")
    (await mine.called()).say("secret").end()
    await ends(a, receipt)
    thread = Scope(receipt.thread_id)
    assert "secret" in str(await log(b, receipt))
    reading = asyncio.ensure_future(follow(a, thread, until=lambda record: isinstance(record.event, RunRemoved)))
    await within(b.remove_run(OWNER, receipt.run_id))
    await within(reading)
    for hub in (a, b):
        records = await follow(hub, thread, until=lambda record: isinstance(record.event, RunRemoved))
        assert "secret" not in str(records)


async def test_tokens_are_batched_for_five_milliseconds_by_default(cluster: Nodes) -> None:
    by_default = await cluster.start("a", registered("s", Scripted()))
    configured = await cluster.start("b", registered("s", Scripted()), limits=Limits(window=0.01))
    assert [hub.engine._rules().window.seconds for hub in (by_default, configured)] == [0.005, 0.01]  # pyright: ignore[reportPrivateUsage]
