"""Gateways on one database, in the test's process, with short heartbeats. A test can silence one of them."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from babelgate.canonical import Receipt, Task, TaskState
from babelgate.canonical.state import TERMINAL
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.storage import nodes, queries
from tests.gateway.hubs import OWNER, HubFactory, within
from tests.postgres import empty, url_of

_TIMES = {"BEAT": 0.05, "_OBSERVATION_TIME": 0.1}
"""Settings of the heartbeat, in seconds."""
_LEASE = nodes.DEAD_AFTER
_SOON = 0.4
"""Seconds without a heartbeat after which a silent node counts as gone.

Not less, because the other nodes may be silent for that long on a busy machine.
"""


async def reached(hub: GatewayHub, receipt: Receipt, *wanted: TaskState) -> Task:
    """Wait until the task in the database is in one of the states, and return it.

    Any node may have changed the state.
    """

    async def look() -> Task:
        while (task := await hub.journal.query(queries.task, OWNER, receipt.task_id)) is None or (
            task.state not in wanted
        ):
            assert task is None or not task.is_terminal, f"the task is {task.state}: {task.fault}"
        return task

    return await within(look(), f"one of {wanted}")


async def ended(hub: GatewayHub, receipt: Receipt) -> Task:
    return await reached(hub, receipt, *TERMINAL)


class Nodes:
    def __init__(self, house: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        self._house = house
        self._monkeypatch = monkeypatch

    async def start(self, name: str, *agents: RegisteredAgent, **settings: Any) -> GatewayHub:
        return await self._house.start(*agents, cluster=name, **settings)

    async def stop(self, hub: GatewayHub) -> None:
        await self._house.stop(hub)

    def look_no_more(self, *hubs: GatewayHub) -> None:
        """Make the nodes rely on notices alone for the commits of others."""
        for hub in hubs:
            assert hub.cluster is not None
            self._monkeypatch.setattr(hub.cluster, "_check_all", _look_at_nothing)

    def silence(self, hub: GatewayHub) -> None:
        """Let the node run without heartbeats, so that the others take it for gone."""
        assert hub.cluster is not None
        self._monkeypatch.setattr(hub.cluster.nodes, "beat", _refuse)
        self._monkeypatch.setattr(nodes, "DEAD_AFTER", _SOON)

    def resume_heartbeats(self, hub: GatewayHub) -> None:
        """Let the node send heartbeats again."""
        assert hub.cluster is not None
        self._monkeypatch.setattr(nodes, "DEAD_AFTER", _LEASE)
        self._monkeypatch.setattr(hub.cluster.nodes, "beat", type(hub.cluster.nodes).beat.__get__(hub.cluster.nodes))


async def _look_at_nothing() -> None: ...


def _refuse() -> None:
    raise OperationalError("the test says so", None, Exception("the test says so"))


@pytest.fixture
async def cluster(tmp_path: Path, postgres_tables: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Nodes]:
    empty(postgres_tables)
    for name, seconds in _TIMES.items():
        monkeypatch.setattr(nodes, name, seconds)
    house = HubFactory(tmp_path, url_of(postgres_tables))
    yield Nodes(house, monkeypatch)
    await house.close()
