"""Several gateways on one database: requests to one node about runs of another."""

import pytest

from babelgate.canonical import FaultError, RunReason, RunStatus, TaskState
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage import queries
from tests.cluster.nodes import Nodes, ended
from tests.gateway.hubs import OWNER, Scripted, erased, eventually, registered, submit, within

Pair = tuple[GatewayHub, GatewayHub, Scripted, Scripted]
"""Two nodes, and the agent of each."""


@pytest.fixture(params=["notices", "looks"])
def news_source(request: pytest.FixtureRequest) -> str:
    """Way in which a node learns of other nodes' commits: by notices or, without them, by polling."""
    return request.param


@pytest.fixture
async def nodes(cluster: Nodes, news_source: str, monkeypatch: pytest.MonkeyPatch) -> Pair:
    agent_a, agent_b = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", agent_a, concurrency=2))
    b = await cluster.start("b", registered("s", agent_b, concurrency=2))
    if news_source == "notices":
        cluster.look_no_more(a, b)
    else:
        for hub in (a, b):
            monkeypatch.setattr(hub.cluster, "handle_remotes", ignore_commits)
    return a, b, agent_a, agent_b


def ignore_commits(remotes: object) -> None:
    """Ignore the commits of other nodes."""


async def test_a_run_is_cancelled_through_another_node(nodes: Pair) -> None:
    a, b, agent_a, _ = nodes
    receipt = await submit(a, "s")
    activation = await agent_a.called()
    assert (await within(b.cancel(OWNER, receipt.task_id))).state is TaskState.CANCELLING
    await within(activation.cancelled.wait(), "the cancel of the agent")
    assert (await ended(b, receipt)).state is TaskState.CANCELLED
    run = await b.journal.query(queries.run, OWNER, receipt.run_id)
    assert run is not None and (run.status, run.reason) == (RunStatus.CANCELLED, RunReason.CALLER)


@pytest.mark.parametrize(
    ("strategy", "reason"), [("interrupt", RunReason.SUPERSEDED), ("rollback", RunReason.ROLLED_BACK)]
)
async def test_a_run_is_interrupted_through_another_node(nodes: Pair, strategy: str, reason: RunReason) -> None:
    a, b, agent_a, _ = nodes
    first = await submit(a, "s")
    activation = await agent_a.called()
    second = await submit(b, "s", thread_id=first.thread_id, strategy=strategy)
    await within(activation.cancelled.wait(), "the cancel of the agent")
    (await agent_a.called()).say("hello").end()  # by the node that has ended the run before it
    assert (await ended(b, second)).state is TaskState.COMPLETED
    run = await b.journal.query(queries.run, OWNER, first.run_id)
    assert run is not None and run.reason is reason


async def test_a_run_waits_for_a_run_of_another_node(nodes: Pair) -> None:
    a, b, agent_a, agent_b = nodes
    first = await submit(a, "s")
    activation = await agent_a.called()
    second = await submit(b, "s", thread_id=first.thread_id)
    assert not agent_a.waiting and not agent_b.waiting
    activation.end()
    (await agent_a.called()).end()
    assert (await ended(b, first)).state is TaskState.COMPLETED
    assert (await ended(b, second)).state is TaskState.COMPLETED
    assert not agent_b.waiting


async def test_an_erasure_on_another_node_stops_the_agent(nodes: Pair) -> None:
    a, b, agent_a, _ = nodes
    receipt = await submit(a, "s")
    activation = await agent_a.called()
    await within(b.delete_thread(OWNER, receipt.thread_id))
    await within(activation.cancelled.wait(), "the end of the agent")
    await within(eventually(lambda: not a.engine.active), "the end of the run")
    await erased(b, receipt.thread_id)
    again = await submit(a, "s")
    (await agent_a.called()).end()
    assert (await ended(a, again)).state is TaskState.COMPLETED


async def test_events_of_a_thread_erased_on_another_node_are_dropped(nodes: Pair) -> None:
    a, b, agent_a, _ = nodes
    agent_a.stubborn = True
    receipt = await submit(a, "s")
    activation = await agent_a.called()
    await within(b.delete_thread(OWNER, receipt.thread_id))
    activation.say("lost").end()
    await within(activation.closed.wait(), "the end of the agent")
    await within(eventually(lambda: not a.engine.active), "the end of the run")
    rows = "SELECT count(*) FROM event"
    assert await b.journal.query(lambda connection: connection.exec_driver_sql(rows).scalar_one()) == 0
    with pytest.raises(FaultError):
        await within(b.cancel(OWNER, receipt.task_id))
