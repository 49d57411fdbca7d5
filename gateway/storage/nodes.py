"""Membership of gateways in a cluster. A node is one of the gateways that share a database.

Each node sends a heartbeat every two seconds: it updates its row. A node without a heartbeat for eight seconds counts
as gone, and another node takes over its runs and webhooks.

This can be wrong: the node may be slow, paused, or only cut off from the database. So no data depends on the suspicion.
A node that takes over a run increments its attempt, and records that the previous node still writes for the earlier
attempt are refused (`babelgate.gateway.runs.lifecycle`). A wrong suspicion costs work, but loses no data.

The clocks of the machines are never compared. The database's clock gives the age of a heartbeat. In addition, a node
must have observed, by its own monotonic clock, that no newer heartbeat arrived. So setting a clock makes no node appear
gone."""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, exists, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from babelgate.gateway.background import STOPPING, Failures, until_ended
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import LIVE, NodeRow, RunRow, WebhookRow
from babelgate.gateway.storage.writer_link import discard

log = logging.getLogger("babelgate.node")

BEAT: Final = 2.0
"""Seconds from one heartbeat to the next. Chosen."""
DEAD_AFTER: Final = 8.0
"""Seconds without a heartbeat after which a node counts as gone. Chosen."""
_OBSERVATION_TIME: Final = 2 * BEAT
"""Minimum seconds for which this node must have observed that another node sends no heartbeat. Chosen.

If this node observed nothing for longer than that, because it was paused or cut off, its observations start again: it
may have missed heartbeats."""
_STUCK: Final = 60.0
"""Seconds after which a node with a blocked event loop stops its heartbeats. Chosen: an agent that blocks the loop for
a few seconds does not cost the node its runs."""
_ADOPTED_AT_ONCE: Final = 500
"""Maximum number of runs, and of webhooks, that one transaction takes over. Chosen."""
_MAX_REMEMBERED: Final = 10_000
"""Maximum number of adopted runs for which the name of the previous node is kept in memory. Chosen."""

_NODE, _RUN, _HOOK = table_of(NodeRow), table_of(RunRow), table_of(WebhookRow)
_NOW: Final = text("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
_LOCK: Final = text("SELECT pg_try_advisory_xact_lock(hashtext('babelgate nodes'), hashtext(current_schema()))")
"""Statement for the advisory lock that lets one node at a time take over runs. The others retry at their next
heartbeat."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """Runs and webhooks that one heartbeat has taken over, because they belonged to no living node."""

    runs: Sequence[tuple[str, str, str | None]] = ()
    """Owner and id of each run, and the name of the node that had it before.

    Instead of the name, the node's id if this node never saw that node, and None if no node had the run."""
    webhooks: Sequence[tuple[str, str, str]] = ()
    """Owner, task id and webhook id of each webhook."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.webhooks)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Result of one heartbeat of this node."""

    leads: bool
    """True if this node is the leader: the living node with the lowest id, which does the periodic work of the whole
    cluster."""
    was_considered_dead: bool = False
    """True if other nodes had deleted the row of this node, so that they may have taken over its runs. Also True for
    the first heartbeat."""
    gone_nodes: Sequence[str] = ()
    """Names of the nodes that this heartbeat found to be gone, and whose rows it deleted."""
    adopted: Adopted = Adopted()
    """Runs and webhooks that this node has taken over."""


@dataclass(frozen=True, slots=True)
class ListedNode:
    """One living node of the cluster, as operators see it in a list."""

    name: str
    seen_at: int
    """Time of the last heartbeat by the database's clock, in microseconds since 1970, UTC."""
    is_leader: bool
    runs: int
    """Number of active runs that the node executes, or that wait on it."""


def list_nodes(connection: Connection) -> list[ListedNode]:
    """Return the nodes with a heartbeat in the last `DEAD_AFTER` seconds, the leader first. Only for PostgreSQL."""
    now = connection.execute(select(_NOW)).scalar_one()
    is_alive = _NODE.c.seen_at > now - DEAD_AFTER * 1e6
    nodes = select(_NODE.c.node_id, _NODE.c.name, _NODE.c.seen_at).where(is_alive).order_by(_NODE.c.node_id)
    counted = select(_RUN.c.node, func.count().label("runs")).where(text(f"run.{LIVE}"), _RUN.c.node.is_not(None))
    runs = {row.node: row.runs for row in connection.execute(counted.group_by(_RUN.c.node))}
    return [
        ListedNode(name, seen_at, not number, runs.get(node_id, 0))
        for number, (node_id, name, seen_at) in enumerate(connection.execute(nodes))
    ]


@dataclass(slots=True)
class Watch:
    """Observations of the other nodes' heartbeats by this node, timed by its own monotonic clock."""

    _observed_at: float = float("-inf")
    """Time of the last call of `find_dead`, in seconds of the monotonic clock."""
    _last_heartbeats: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Last known heartbeat of each node by the database's clock, and the time at which this node first saw that
    heartbeat, by the monotonic clock. The key is the node id."""

    def find_dead(self, now: float, nodes: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Return id and last heartbeat of each node that is gone: its heartbeat is too old, and no newer one was
        observed.

        `nodes` has the id of each other node, its last heartbeat and the age of that heartbeat, in microseconds of the
        database's clock. `now` is this node's monotonic clock, in seconds."""
        if now - self._observed_at > _OBSERVATION_TIME:
            self._last_heartbeats.clear()
        self._observed_at = now
        earlier, self._last_heartbeats = self._last_heartbeats, {}
        missing: list[tuple[str, int]] = []
        for node_id, heartbeat, age in nodes:
            last_heartbeat, since = earlier.get(node_id, (0, now))
            if last_heartbeat != heartbeat:
                since = now
            self._last_heartbeats[node_id] = heartbeat, since
            if age > DEAD_AFTER * 1e6 and now - since >= _OBSERVATION_TIME:
                missing.append((node_id, heartbeat))
        return missing


class Nodes:
    """Membership of this gateway in its cluster: it sends heartbeats and takes over work of nodes that are gone.

    Heartbeats have a separate thread and connection, so that neither a long transaction nor a busy event loop delays
    them."""

    def __init__(
        self, database: Database, node_id: str, name: str, on_heartbeat: Callable[[Heartbeat | None], None]
    ) -> None:
        """Create the membership of a node. `join` sends the first heartbeat.

        `on_heartbeat` is called on the event loop with the result of each heartbeat. It is called with None if
        heartbeats have failed for so long that the other nodes will soon count this one as gone."""
        self.node_id = node_id
        self.name = name
        self._database = database
        self._on_heartbeat = on_heartbeat
        self.config: str | None = None
        """Digest of this node's configuration, which its next heartbeat stores. None if it is not set yet."""
        self.other_configs: Mapping[str, str | None] = {}
        """Configuration digests of the other living nodes, by node name."""
        self.adopts = True
        """True if heartbeats take over runs of nodes that are gone. Set to False before this node leaves."""
        self._watch = Watch()
        self._names: dict[str, str] = {}
        """Names of all nodes that this node has ever seen, by id."""
        self._previous_nodes: OrderedDict[tuple[str, str, int], str | None] = OrderedDict()
        """Name of the node from which each adopted run came, by owner, run id and attempt. Stored before the commit,
        because the database's response to the commit may be lost."""
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._lost = False
        self._is_abandoned = False
        """True if `leave` has waited too long for the database, so the row of this node is not deleted."""
        self._handled_at = monotonic()
        """Time at which the event loop last handled a heartbeat, in seconds of the monotonic clock."""
        self._succeeded_at = monotonic()
        """Time at which a heartbeat last succeeded, in seconds of the monotonic clock."""
        self._aborted_at = 0.0
        """Time at which the connection of a heartbeat without response was last interrupted, in seconds of the
        monotonic clock."""

    def find_other_configs(self) -> Sequence[str]:
        """Return the names of the living nodes whose configuration differs from that of this node."""
        return [name for name, config in self.other_configs.items() if config not in (None, self.config)]

    async def join(self) -> Adopted:
        """Join the cluster with a first heartbeat, and return all runs and webhooks that this node has taken over with
        it.

        Raises OperationalError if the database cannot be reached."""
        self._loop = asyncio.get_running_loop()
        self._engine = self._database.open_writer()
        try:
            heartbeat = await asyncio.to_thread(self.beat)
        except BaseException:
            self._dispose()
            raise
        log.info("node joined node=%s id=%s", self.name, self.node_id)
        adopted = heartbeat.adopted
        while heartbeat.adopted:  # one transaction takes over a limited number
            heartbeat = await asyncio.to_thread(self.beat)
            adopted = Adopted(
                (*adopted.runs, *heartbeat.adopted.runs), (*adopted.webhooks, *heartbeat.adopted.webhooks)
            )
        return adopted

    def start(self) -> None:
        self._handled_at = self._succeeded_at = monotonic()
        self._watch_beats()
        self._thread = threading.Thread(target=self._beat_forever, name="babelgate-node", daemon=True)
        self._thread.start()

    async def leave(self, seconds: float = STOPPING) -> None:
        """Delete this node's row, so that the other nodes take over its runs at once.

        If the database does not respond within `seconds`, the other nodes notice the missing heartbeats instead."""
        self._ends.set()
        await until_ended(self._leave, self._give_up, seconds)

    def _give_up(self) -> None:
        self._is_abandoned = True
        if (engine := self._engine) is not None:
            self._database.abort(engine)

    def _leave(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._engine is None:
            return
        try:
            if not self._is_abandoned:
                self._delete_row()
        except DBAPIError as error:  # the other nodes will miss the heartbeats
            log.warning(
                "node left without notice: other nodes find out by its missing heartbeat node=%s error=%s",
                self.name,
                error.orig,
            )
        finally:
            self._dispose()

    # In the thread

    def _beat_forever(self) -> None:
        failures = Failures("the heartbeat")
        while not self._ends.wait(BEAT):
            if monotonic() - self._handled_at > _STUCK:
                continue
            try:
                heartbeat = self.beat()
            except Exception as error:
                if not isinstance(error, DBAPIError):
                    failures.note(error)
                elif not self._lost:
                    log.warning("heartbeat failed node=%s error=%s", self.name, error.orig)
                self._lost = True
                self.disconnect()
                continue
            self._succeeded_at = monotonic()
            if self._lost:
                log.warning("heartbeat restored node=%s", self.name)
            self._lost = False
            if not self._ends.is_set():
                self._loop.call_soon_threadsafe(self._handle, heartbeat)

    def _watch_beats(self) -> None:
        """Call `on_heartbeat(None)` if no heartbeat has succeeded for `DEAD_AFTER - BEAT` seconds, and interrupt a
        hanging one.

        Runs on the event loop every second. A heartbeat may hang instead of failing if the server does not respond."""
        if self._ends.is_set():
            return
        if monotonic() - self._succeeded_at >= DEAD_AFTER - BEAT:
            self._on_heartbeat(None)
            if monotonic() - self._aborted_at >= DEAD_AFTER - BEAT and (engine := self._engine) is not None:
                self._aborted_at = monotonic()
                self._database.abort(engine)  # a new connection may get through
        self._loop.call_later(BEAT / 2, self._watch_beats)

    def _handle(self, heartbeat: Heartbeat) -> None:
        self._handled_at = monotonic()
        self._on_heartbeat(heartbeat)

    def beat(self) -> Heartbeat:
        """Send a heartbeat, read those of the other nodes, and take over the runs and webhooks of nodes that are gone.

        Raises DBAPIError if the database cannot be reached."""
        connection = self.connect()
        with connection.begin():
            mine = _NODE.c.node_id == self.node_id
            values = {"seen_at": _NOW, "config": self.config}
            updated = connection.execute(update(_NODE).where(mine).values(**values)).rowcount
            if not updated:
                connection.execute(insert(_NODE).values(node_id=self.node_id, name=self.name, **values))
            age = (_NOW.self_group() - _NODE.c.seen_at).label("age")
            columns = (_NODE.c.node_id, _NODE.c.name, _NODE.c.seen_at, _NODE.c.config, age)
            nodes = connection.execute(select(*columns)).all()
        self._names |= {node.node_id: node.name for node in nodes}
        living = [node for node in nodes if node.age <= DEAD_AFTER * 1e6 and node.node_id != self.node_id]
        self.other_configs = {node.name: node.config for node in living}
        others = [(node.node_id, node.seen_at, node.age) for node in nodes if node.node_id != self.node_id]
        missing = self._watch.find_dead(monotonic(), others)
        adopted, names = self.take_over(connection, missing) if self.adopts else (Adopted(), ())
        first = min(node.node_id for node in nodes if node.age <= DEAD_AFTER * 1e6 or node.node_id == self.node_id)
        return Heartbeat(first == self.node_id, not updated, names, adopted)

    def take_over(self, connection: Connection, missing: Sequence[tuple[str, int]]) -> tuple[Adopted, tuple[str, ...]]:
        """Delete the rows of `missing` nodes, and assign runs and webhooks without a living node to this node.

        Return those, and the names of the deleted nodes. The runs may also come from nodes that left, or from a time
        when one gateway used the database alone."""
        with connection.begin():
            if not missing and not connection.execute(select(_has_unattended(_RUN) | _has_unattended(_HOOK))).scalar():
                return Adopted(), ()
            if not connection.execute(_LOCK).scalar():
                return Adopted(), ()
            names: list[str] = []
            for node_id, seen_at in missing:
                # If the node sends a heartbeat meanwhile, this waits for its row lock, and then finds the row changed.
                silent = (_NODE.c.node_id == node_id) & (_NODE.c.seen_at == seen_at)
                if connection.execute(delete(_NODE).where(silent)).rowcount:
                    names.append(self._names.get(node_id, node_id))
            runs = self._adopt(connection, _RUN, ("owner", "run_id", "attempt"))
            hooks = self._adopt(connection, _HOOK, ("owner", "task_id", "webhook_id"))
            for owner, run_id, attempt, node in runs:
                self._note_previous_node(owner, run_id, attempt, self._names.get(node, node))
        named = tuple((owner, run_id, self._names.get(node, node)) for owner, run_id, _, node in runs)
        return Adopted(named, tuple(tuple(row[:3]) for row in hooks)), tuple(names)

    def _note_previous_node(self, owner: str, run_id: str, attempt: int, node: str | None) -> None:
        self._previous_nodes[owner, run_id, attempt] = node
        if len(self._previous_nodes) > _MAX_REMEMBERED:
            self._previous_nodes.popitem(last=False)

    def node_before(self, owner: str, run_id: str, attempt: int) -> str | None:
        """Return the name of the node from which this attempt of a run was taken over. Return None if it was not taken
        over."""
        return self._previous_nodes.get((owner, run_id, attempt))

    def _adopt(self, connection: Connection, table: Any, key: Sequence[str]) -> Sequence[Any]:
        """Assign rows of a table without a living node to this node, and return their key columns and previous node.

        Rows that another transaction has locked are skipped. If they still have no living node later, the next
        heartbeat adopts them."""
        columns = [table.c[name] for name in key]
        some = select(*columns, table.c.node).where(_is_unattended(table)).order_by(*columns).limit(_ADOPTED_AT_ONCE)
        rows = connection.execute(some.with_for_update(of=table, skip_locked=True)).all()
        for row in rows:
            this = [column == value for column, value in zip(columns, row[:-1], strict=True)]
            connection.execute(update(table).where(*this).values(node=self.node_id))
        return rows

    def _delete_row(self) -> None:
        connection = self.connect()
        with connection.begin():
            connection.execute(delete(_NODE).where(_NODE.c.node_id == self.node_id))

    def connect(self) -> Connection:
        assert self._engine is not None
        if self._connection is None:
            connection = self._engine.connect()
            # A node that freezes while it holds `_LOCK` would keep all others from taking over.
            connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = {int(DEAD_AFTER * 1000)}")
            connection.commit()
            self._connection = connection
        return self._connection

    def disconnect(self) -> None:
        """Close the connection, so that the next heartbeat opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            discard(connection)

    def _dispose(self) -> None:
        self.disconnect()
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


def _is_unattended(table: Any) -> Any:
    """Return the SQL condition for unfinished rows that belong to no living node. Its text matches the partial
    indexes."""
    is_unfinished = text(f"run.{LIVE}") if table is _RUN else text("webhook.done IS FALSE")
    there = exists().where(_NODE.c.node_id == table.c.node)
    return is_unfinished & (table.c.node.is_(None) | ~there)


def _has_unattended(table: Any) -> Any:
    return exists().where(_is_unattended(table))
