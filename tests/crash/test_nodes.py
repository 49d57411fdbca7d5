"""A few rounds with three gateways; `make cluster-test` has as many as one likes."""

from pathlib import Path

import pytest

from tests.crash.nodes import KINDS, WIRE_KINDS, node_campaign
from tests.postgres_server import postgres_server

pytestmark = pytest.mark.slow


@pytest.mark.timeout(400)
async def test_what_one_of_several_gateways_acknowledged_is_there_for_all_whatever_is_killed(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with node_campaign(tmp_path, 10, server, together=6, frozen=(0.5, 2.0)) as made:
            await made.rounds(4)
    assert not made.faults, made.summary()
    assert set(made.kills) == set(KINDS) and sum(made.acknowledged.values()) > 3


@pytest.mark.timeout(400)
async def test_what_was_acknowledged_is_there_whatever_happens_to_the_connections(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with node_campaign(tmp_path, 11, server, together=6, frozen=(0.5, 2.0), kinds=WIRE_KINDS) as made:
            await made.rounds(len(WIRE_KINDS))
    assert not made.faults, made.summary()
    assert set(made.kills) == set(WIRE_KINDS) and sum(made.acknowledged.values()) > 3
