"""Several gateways on one database, one of which cannot read from it for a while.

The pending work of that gateway is done as soon as it can read again.
"""

import logging
from collections.abc import Generator

import pytest

from babelgate.canonical import FaultCode, TaskState
from babelgate.gateway.runs.cluster import Cluster
from babelgate.gateway.storage import unavailable
from tests.cluster.nodes import Nodes, ended, reached
from tests.cluster.test_questions import agent, parked
from tests.gateway.hubs import OWNER, Scripted, eventually, registered, submit, within
from tests.gateway.storage.wire import Wire
from tests.postgres import url_of


@pytest.fixture
def wire(postgres_tables: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Wire]:
    """Connection through which a node reads. It writes and listens through another one."""
    monkeypatch.setattr(unavailable, "PATIENCE", 0.05)
    with Wire(url_of(postgres_tables)).running() as connection:
        yield connection


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "babelgate.node")
    return caplog


async def test_an_answered_generator_is_closed_when_the_database_returns(
    wire: Wire, cluster: Nodes, log: pytest.LogCaptureFixture
) -> None:
    a = await cluster.start("a", agent(), pooler=wire.url)
    b = await cluster.start("b", agent())
    receipt = await submit(a, "ask")
    other = await submit(a, "ask")
    for each in (receipt, other):
        await reached(b, each, TaskState.INPUT_REQUIRED)
    await within(eventually(lambda: parked(a) == 2), "generators that wait")
    wire.cut()
    await within(b.cancel(OWNER, receipt.task_id))
    await within(eventually(lambda: "check of paused agents failed" in log.text), "a look in vain")
    assert parked(a) == 2
    wire.mend()
    await within(eventually(lambda: parked(a) == 1), "the end of the generator")


async def test_a_fault_names_the_lost_node_after_a_late_takeover(
    wire: Wire, cluster: Nodes, log: pytest.LogCaptureFixture
) -> None:
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", mine))
    b = await cluster.start("b", registered("s", other), pooler=wire.url)
    receipt = await submit(a, "s")
    await mine.called()
    wire.cut()
    cluster.silence(a)
    await within(eventually(lambda: "not continued yet" in log.text), "a takeover in vain")
    wire.mend()
    task = await ended(b, receipt)
    assert task.fault is not None and task.fault.code is FaultCode.GATEWAY_RESTARTED
    assert "The gateway's node a stopped" in task.fault.message


async def test_a_fault_names_the_lost_node_without_a_notice(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", mine))
    b = await cluster.start("b", registered("s", other))
    receipt = await submit(a, "s")
    await mine.called()

    async def hear_nothing(cluster: Cluster, adopted: object) -> None: ...

    monkeypatch.setattr(Cluster, "_take_over", hear_nothing)
    cluster.silence(a)
    task = await ended(b, receipt)
    assert task.fault is not None and "The gateway's node a stopped" in task.fault.message
