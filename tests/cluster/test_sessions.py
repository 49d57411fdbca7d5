"""Database sessions of a node: a session ends soon after its machine is lost, and a stalled session does not block
others.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy.engine import make_url

from babelgate.canonical import TaskState
from babelgate.gateway.storage import nodes
from tests.cluster.nodes import Nodes, ended
from tests.gateway.hubs import OWNER, Scripted, registered, submit, within
from tests.gateway.storage.wire import Wire
from tests.postgres import connect, server, url_of
from tests.skip import missing

_KEEPALIVE: Final = "02"
"""Number of the keepalive timer of an idle connection, as in proc(5)."""
_TICKS: Final = 100
"""Ticks per second in /proc."""


def timers(port: int) -> Mapping[int, tuple[str, int]]:
    """Return the kernel's timer and its ticks for each connection accepted by the server, by client port."""
    found: dict[int, tuple[str, int]] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, near, far, _, _, timer, *_ = line.split()
        kind, _, ticks = timer.partition(":")
        if int(near.partition(":")[2], 16) == port:
            found[int(far.partition(":")[2], 16)] = kind, int(ticks, 16)
    return found


async def test_the_server_probes_every_session_of_a_node(cluster: Nodes, postgres_tables: str) -> None:
    url = make_url(server())
    if sys.platform != "linux" or url.host not in ("127.0.0.1", "localhost"):
        missing("Linux, and PostgreSQL on this machine")
    name = f"sessions {postgres_tables}"[:60]
    agent = Scripted()
    a = await cluster.start("a", registered("s", agent), database=f"{url_of(postgres_tables)}&application_name={name}")
    receipt = await submit(a, "s")
    (await agent.called()).end()
    assert (await ended(a, receipt)).state is TaskState.COMPLETED
    await asyncio.gather(*(a.reads.task(OWNER, receipt.task_id) for _ in range(20)))

    async def look(ports: list[int]) -> None:
        while left := ports:
            found = timers(url.port or 5432)
            if not found.keys() & set(left):
                missing("PostgreSQL in this network namespace")
            ports = [port for port in left if not (found[port][0] == _KEEPALIVE and found[port][1] <= 5 * _TICKS)]
            await asyncio.sleep(0)

    with connect() as other:
        rows = other.execute(
            "SELECT client_port, query FROM pg_stat_activity WHERE application_name = %s", (name,)
        ).fetchall()
    queries = " ".join(query for _, query in rows)
    assert len(rows) >= 5 and all(words in queries for words in ("LISTEN", "pg_notify", "COMMIT")), rows
    await within(look([port for port, _ in rows]), "a probe of each session")


async def test_a_node_frozen_in_a_takeover_blocks_no_other(
    cluster: Nodes, postgres_tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "DEAD_AFTER", 0.4)
    mine, other = Scripted(), Scripted()
    left = await cluster.start("left", registered("s", mine, idempotent=True))
    receipt = await submit(left, "s")
    await mine.called()
    await cluster.stop(left)
    with Wire(url_of(postgres_tables)).running() as wire:
        wire.freeze_after = b"babelgate nodes"
        agents = registered("s", Scripted(), idempotent=True)
        starting = asyncio.ensure_future(cluster.start("frozen", agents, database=wire.url))
        assert await asyncio.to_thread(wire.frozen.wait, 10)
        b = await cluster.start("b", registered("s", other, idempotent=True))
        (await other.called()).end()
        assert (await ended(b, receipt)).state is TaskState.COMPLETED
        wire.cut()
        with pytest.raises(Exception, match="connection"):
            await within(starting)
