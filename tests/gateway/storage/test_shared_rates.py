"""Rate limits that the nodes of a cluster share, on PostgreSQL."""

import asyncio
from collections.abc import AsyncGenerator

import pytest_asyncio

from babelgate.gateway.runs.rates import RateDemand
from babelgate.gateway.storage.database import open_database
from babelgate.gateway.storage.shared_rates import SharedRates
from tests.gateway.hubs import within
from tests.postgres import connect, run

HOUR = 3600.0


@pytest_asyncio.fixture
async def nodes(url: str) -> AsyncGenerator[list[SharedRates]]:
    nodes = [SharedRates(open_database(url, shared=True)) for _ in range(3)]
    yield nodes
    for node in nodes:
        await node.stop(10)


def demand(key: str, runs: int) -> RateDemand:
    """Return the demand of one run under a limit of `runs` runs an hour. `key` names the limit."""
    return RateDemand(key, HOUR / runs, HOUR + 1e-6)


async def test_several_nodes_grant_the_limit_together(nodes: list[SharedRates]) -> None:
    both = [demand("b", 40), demand("a", 25)]
    attempts = [node.take(both if number % 2 else both[::-1]) for number in range(30) for node in nodes]
    granted = await within(asyncio.gather(*attempts), "the answers")
    assert sum(is_charged for is_charged, _ in granted) == 25
    is_charged, used = await nodes[0].take([demand("b", 40)])  # a refusal by "a" has charged no "b"
    assert is_charged and round(used[0] / (HOUR / 40), 1) == 25


async def test_another_node_can_refund_a_charge(nodes: list[SharedRates]) -> None:
    one = [demand("a", 1)]
    assert (await nodes[0].take(one))[0] and not (await nodes[1].take(one))[0]
    await nodes[1].give_back(one)
    assert (await nodes[2].take(one))[0]


async def test_a_lost_connection_is_replaced(nodes: list[SharedRates], postgres_tables: str) -> None:
    assert (await nodes[0].take([demand("a", 2)]))[0]
    with connect(postgres_tables) as other:
        run(
            other,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%FROM rate%' "
            "AND pid <> pg_backend_pid()",
        )
    assert (await nodes[0].take([demand("a", 2)]))[0] and not (await nodes[0].take([demand("a", 2)]))[0]
