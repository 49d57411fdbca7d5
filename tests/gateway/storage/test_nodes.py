"""Tests of nodes: heartbeats, the detection of nodes that are gone, and the takeover of their runs."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from babelgate.gateway.storage.database import open_database
from babelgate.gateway.storage.nodes import BEAT, DEAD_AFTER, Adopted, Heartbeat, Nodes, Watch
from tests.gateway.hubs import within
from tests.gateway.storage.wire import Wire
from tests.postgres import connect, empty, run, url_of

SECOND = 1_000_000


# Detection of nodes that are gone


def look(watch: Watch, now: float, **nodes: tuple[float, float]) -> list[str]:
    """Return the ids of nodes that are gone. `nodes` = last heartbeat of each and its age, in seconds."""
    observed = [(name, round(heartbeat * SECOND), round(age * SECOND)) for name, (heartbeat, age) in nodes.items()]
    return [node_id for node_id, _ in watch.find_dead(now, observed)]


def test_a_node_without_heartbeat_for_eight_seconds_is_lost() -> None:
    watch = Watch()
    gone_by_time = {now: look(watch, now, a=(0, now), b=(now, 0)) for now in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)}
    assert gone_by_time == {0.0: [], 2.0: [], 4.0: [], 6.0: [], 8.0: [], 10.0: ["a"]}


def test_a_node_silent_at_the_first_check_gets_two_heartbeats() -> None:
    watch = Watch()
    assert look(watch, 0, a=(0, 1000)) == []
    assert look(watch, BEAT, a=(0, 1000 + BEAT)) == []
    assert look(watch, 2 * BEAT, a=(0, 1000 + 2 * BEAT)) == ["a"]


def test_a_forward_jump_of_the_databases_clock_loses_no_node() -> None:
    watch = Watch()
    ages = (0, 0, 3600, 1, 1)
    assert [look(watch, now, a=(now, ages[number])) for number, now in enumerate((0, 2, 4, 6, 8))] == [[]] * 5


def test_a_paused_observer_declares_no_node_lost_at_once() -> None:
    """Pause the observation: the node was stopped, or the database did not answer, so that no heartbeat was stored."""
    watch = Watch()
    assert look(watch, 0, a=(0, 0)) == []
    assert look(watch, 30, a=(0, 30)) == []
    assert look(watch, 32, a=(31, 1)) == []
    assert look(watch, 34, a=(33, 1)) == []


def test_a_returning_node_is_watched_from_the_start() -> None:
    watch = Watch()
    for now in (0, 2, 4, 6, 8):
        assert look(watch, now, a=(0, now)) == []
    assert look(watch, 10, a=(10, 0)) == []
    assert look(watch, 12, a=(10, 2)) == []


# On a database


class Station:
    """Nodes on one database. The test controls their clocks and heartbeats."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self.nodes: list[Nodes] = []
        self._numbers = count()
        self._monkeypatch = monkeypatch
        self.set_time(1000)
        monkeypatch.setattr("babelgate.gateway.storage.nodes.monotonic", lambda: self.now)

    async def join(self, name: str = "") -> tuple[Nodes, Adopted]:
        number = next(self._numbers)
        node = Nodes(open_database(self.url), f"id-{number}", name or f"node-{number}", lambda _: None)
        self.nodes.append(node)
        return node, await within(node.join())

    async def beat(self, *nodes: Nodes) -> list[Heartbeat]:
        return [await asyncio.to_thread(node.beat) for node in nodes]

    async def pass_time(self, *alive: Nodes) -> list[Heartbeat]:
        """Let time pass until all nodes except `alive` are gone. Return the last result of each of these."""
        looks: list[Heartbeat] = []
        for _ in range(round(DEAD_AFTER / BEAT) + 1):
            self.set_time(self.now + BEAT)
            looks = await self.beat(*alive)
        return looks

    def set_time(self, now: float) -> None:
        """Set all clocks, in seconds."""
        self.now = now
        clock = text(f"({round(now * SECOND)})::bigint")
        self._monkeypatch.setattr("babelgate.gateway.storage.nodes._NOW", clock)


def connect_to(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


@pytest.fixture
async def station(postgres_tables: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Station]:
    empty(postgres_tables)
    opened = Station(url_of(postgres_tables), monkeypatch)
    yield opened
    for node in opened.nodes:
        with suppress(DBAPIError):
            await within(node.leave())


def put_run(url: str, run_id: str, node: str | None, status: str = "running", pk: int = 1) -> None:
    with connect_to(url) as other:
        other.execute(
            "INSERT INTO run VALUES ('o', %s, %s, 't', 'a', %s, 1, 1, NULL, 1, 1, false, %s, '')",
            (run_id, pk, status, node),
        )


def put_webhook(url: str, webhook_id: str, node: str | None, *, done: bool = False) -> None:
    with connect_to(url) as other:
        other.execute(
            "INSERT INTO webhook VALUES ('o', 'task', %s, 't', 'd', 'http://x', 1, %s, %s, '{}')",
            (webhook_id, done, node),
        )


def nodes_of(url: str) -> dict[str, str | None]:
    with connect_to(url) as other:
        return dict(other.execute("SELECT run_id, node FROM run ORDER BY run_id").fetchall())


async def test_a_starting_node_adopts_only_orphaned_runs(station: Station) -> None:
    first, _ = await station.join()
    put_run(station.url, "mine", first.node_id, pk=1)
    put_run(station.url, "alone", None, pk=2)
    put_run(station.url, "left", "who was there", "pending", pk=3)
    put_run(station.url, "ended", "who was there", "success", pk=4)
    put_webhook(station.url, "due", "who was there")
    put_webhook(station.url, "told", "who was there", done=True)
    second, adopted = await station.join()
    assert sorted(adopted.runs) == [("o", "alone", None), ("o", "left", "who was there")]
    assert adopted.webhooks == (("o", "task", "due"),)
    assert nodes_of(station.url) == {
        "alone": second.node_id,
        "ended": "who was there",
        "left": second.node_id,
        "mine": first.node_id,
    }


async def test_one_node_adopts_the_runs_of_a_lost_node(station: Station) -> None:
    silent, _ = await station.join("gone")
    others = [(await station.join())[0] for _ in range(2)]
    for number in range(3):
        put_run(station.url, f"r{number}", silent.node_id, pk=number)
    looks = await station.pass_time(*others)
    assert [each.gone_nodes for each in looks if each.gone_nodes] == [("gone",)]
    (adopted,) = [each.adopted for each in looks if each.adopted]
    assert [run_id for _, run_id, _ in adopted.runs] == ["r0", "r1", "r2"]
    assert len(set(nodes_of(station.url).values())) == 1
    assert silent.node_id not in nodes_of(station.url).values()


async def test_concurrent_checks_adopt_a_run_only_once(station: Station) -> None:
    nodes = [(await station.join())[0] for _ in range(3)]
    for number in range(50):
        put_run(station.url, f"r{number}", None, pk=number)
    looks = await asyncio.gather(*(station.beat(node) for node in nodes))
    adopted = [each for (look,) in looks for each in look.adopted.runs]
    assert len(adopted) == len(set(adopted)) == 50


async def test_a_run_that_begins_elsewhere_is_not_adopted(station: Station) -> None:
    node, _ = await station.join()
    other, _ = await station.join()
    put_run(station.url, "r", None, "pending")
    with connect_to(station.url) as starting:
        starting.autocommit = False
        run(starting, f"UPDATE run SET status = 'running', node = '{other.node_id}'")
        assert [look.adopted for look in await station.beat(node)] == [Adopted()]
        starting.commit()
    assert [look.adopted for look in await station.beat(node)] == [Adopted()]
    assert nodes_of(station.url) == {"r": other.node_id}


async def test_a_node_declared_lost_rejoins(station: Station) -> None:
    slow, _ = await station.join()
    other, _ = await station.join()
    put_run(station.url, "r", slow.node_id)
    await station.pass_time(other)
    (result,) = await station.beat(slow)
    assert result.was_considered_dead
    assert not result.adopted
    assert nodes_of(station.url) == {"r": other.node_id}
    (result,) = await station.beat(slow)
    assert not result.was_considered_dead


async def test_a_heartbeat_at_the_last_moment_counts(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, _ = await station.join()
    other, _ = await station.join()
    put_run(station.url, "r", slow.node_id)
    take_over: Callable[..., Any] = other.take_over

    def late(connection: Any, silent: Any) -> Any:
        if silent:
            slow.beat()
        return take_over(connection, silent)

    monkeypatch.setattr(other, "take_over", late)
    assert [result.gone_nodes for result in await station.pass_time(other)] == [()]
    assert nodes_of(station.url) == {"r": slow.node_id}


async def test_runs_of_a_leaving_node_are_adopted_soon(station: Station) -> None:
    leaves, _ = await station.join()
    stays, _ = await station.join()
    put_run(station.url, "r", leaves.node_id)
    await within(leaves.leave())
    (result,) = await station.beat(stays)
    assert result.adopted.runs == (("o", "r", leaves.name),)


async def test_a_leaving_node_adopts_no_runs(station: Station) -> None:
    leaves, _ = await station.join()
    stays, _ = await station.join()
    put_run(station.url, "r", None)
    leaves.adopts = False
    assert [result.adopted for result in await station.beat(leaves)] == [Adopted()]
    (result,) = await station.beat(stays)
    assert result.adopted.runs == (("o", "r", None),)


async def test_another_node_leads_when_the_leader_is_lost(station: Station) -> None:
    first, _ = await station.join()
    second, _ = await station.join()
    assert [result.leads for result in await station.beat(first, second)] == [True, False]
    assert [result.leads for result in await station.pass_time(second)] == [True]


async def test_a_node_sends_heartbeats_over_a_new_connection(station: Station) -> None:
    node, _ = await station.join()
    connection = node.connect()
    with connection.begin():
        process = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    with connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (process,))
    with pytest.raises(DBAPIError):
        await station.beat(node)
    node.disconnect()
    assert [result.was_considered_dead for result in await station.beat(node)] == [False]


async def test_a_hanging_heartbeat_pauses_the_node(postgres_tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the connection: the other nodes take over, so a run that started now would be taken over at once."""
    monkeypatch.setattr("babelgate.gateway.storage.nodes.BEAT", 0.02)
    monkeypatch.setattr("babelgate.gateway.storage.nodes.DEAD_AFTER", 0.2)
    empty(postgres_tables)
    looks: asyncio.Queue[Heartbeat | None] = asyncio.Queue()
    with Wire(url_of(postgres_tables)).running() as wire:
        node = Nodes(open_database(wire.url), "id", "name", looks.put_nowait)
        await within(node.join())
        node.start()
        assert await within(looks.get()) is not None
        wire.freeze()
        while await within(looks.get()) is not None:
            pass
        await within(node.leave(0.1))


@pytest.mark.parametrize("started", [False, True])
async def test_a_node_can_leave_while_the_server_hangs(postgres_tables: str, started: bool) -> None:
    empty(postgres_tables)
    with Wire(url_of(postgres_tables)).running() as wire:
        node = Nodes(open_database(wire.url), "id", "name", lambda _: None)
        await within(node.join())
        if started:
            node.start()
        wire.freeze()
        await within(node.leave(0.1))
