"""A few rounds of the campaign; `make crash-test` has as many as one likes."""

from pathlib import Path

import pytest

from tests.crash.campaign import campaign
from tests.postgres_server import postgres_server

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
async def test_what_was_acknowledged_outlives_kills(tmp_path: Path) -> None:
    async with campaign(tmp_path, seed=7, together=6) as made:
        await made.rounds(2)
    assert not made.faults, made.summary()
    assert sum(made.acknowledged.values()) > 3


@pytest.mark.timeout(300)
async def test_what_was_acknowledged_outlives_kills_of_the_server_of_the_database_too(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with campaign(tmp_path, seed=3, together=6, server=server) as made:
            await made.rounds(2)
    assert not made.faults, made.summary()
    assert sum(made.acknowledged.values()) > 3 and made.kills["server"]
