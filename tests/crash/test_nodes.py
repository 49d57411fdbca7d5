"""A few rounds with three gateways; `make cluster-test` runs more."""

from pathlib import Path

import pytest

from tests.crash.nodes import KINDS, WIRE_KINDS, node_campaign
from tests.postgres_server import postgres_server

pytestmark = pytest.mark.slow


@pytest.mark.timeout(400)
async def test_acknowledged_changes_of_any_node_survive_kills(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with node_campaign(tmp_path, 10, server, together=6, frozen=(0.5, 2.0)) as tally:
            await tally.rounds(4)
    assert not tally.faults, tally.summary()
    assert set(tally.kills) == set(KINDS) and sum(tally.acknowledged.values()) > 3


@pytest.mark.timeout(400)
async def test_acknowledged_changes_survive_connection_failures(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with node_campaign(tmp_path, 11, server, together=6, frozen=(0.5, 2.0), kinds=WIRE_KINDS) as tally:
            await tally.rounds(len(WIRE_KINDS))
    assert not tally.faults, tally.summary()
    assert set(tally.kills) == set(WIRE_KINDS) and sum(tally.acknowledged.values()) > 3
