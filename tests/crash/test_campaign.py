"""A few rounds of the campaign; `make crash-test` runs more."""

from pathlib import Path

import pytest

from tests.crash.campaign import campaign
from tests.postgres_server import postgres_server

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
async def test_acknowledged_changes_survive_kills(tmp_path: Path) -> None:
    async with campaign(tmp_path, seed=7, together=6) as tally:
        await tally.rounds(2)
    assert not tally.faults, tally.summary()
    assert sum(tally.acknowledged.values()) > 3


@pytest.mark.timeout(300)
async def test_acknowledged_changes_survive_kills_of_the_database_server(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with campaign(tmp_path, seed=3, together=6, server=server) as tally:
            await tally.rounds(2)
    assert not tally.faults, tally.summary()
    assert sum(tally.acknowledged.values()) > 3 and tally.kills["server"]
