"""Nodes: gateways that share a database. Each says every two seconds that it is there. One that has not for eight is
gone, and what it was to see to is another's.

No node can know that another one is gone: it may be slow, stopped for a while, or cut off from the database alone. So
nothing depends on that being true. Whoever takes a run over counts its attempt up, and what the other one still says of
it is refused (`babelgate.gateway.runs.lifecycle`); to be taken for gone costs work and loses nothing.

The clocks of the machines are compared with nobody's: the age of a sign of life is what the database's clock says, and
each node must have seen for itself, by its own steady clock, that none came. A clock that is set makes nobody go.
"""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, exists, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from babelgate.gateway.background import STOPPING, Failures, until_ended
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import LIVE, NodeRow, RunRow, WebhookRow

log = logging.getLogger("babelgate.node")

BEAT: Final = 2.0
"""Seconds from one sign of life to the next."""
GONE: Final = 8.0
"""Seconds without one after which a node is taken for gone."""
_SEEN: Final = 2 * BEAT
"""Seconds for which a node must have looked in vain for itself. After a pause of its own, it begins anew: whoever was
stopped, or could not reach the database, cannot tell a silent node from one that nobody heard."""
_STUCK: Final = 60.0
"""Seconds for which the event loop may do nothing before the node stops to say that it is there: agents that block the
loop for some seconds cost the node none of its runs."""
_SOME: Final = 500
"""Runs, or webhooks, that are taken over in one transaction."""
_REMEMBERED: Final = 10_000
"""Runs of which it is known whose they were."""

_NODE, _RUN, _HOOK = table_of(NodeRow), table_of(RunRow), table_of(WebhookRow)
_NOW: Final = text("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
_LOCK: Final = text("SELECT pg_try_advisory_xact_lock(hashtext('babelgate nodes'), hashtext(current_schema()))")
"""Of those who take something over: of two, the other one looks again with its next beat."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was nobody's, and is this node's now."""

    runs: Sequence[tuple[str, str, str | None]] = ()
    """Owners, ids, and the names of the nodes whose they were; of a node that was gone before this one came, its id."""
    webhooks: Sequence[tuple[str, str, str]] = ()
    """Owners, and ids of tasks and webhooks."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.webhooks)


@dataclass(frozen=True, slots=True)
class Look:
    """What a node finds with a beat."""

    leads: bool
    """Of the nodes that are there it is the first: what one of them does for all is done by this one."""
    was_gone: bool = False
    """The others have taken it for gone meanwhile, and may have taken over what it does."""
    gone: Sequence[str] = ()
    """Names of nodes."""
    adopted: Adopted = Adopted()


@dataclass(slots=True)
class Watch:
    """Who is gone, as one node sees it."""

    _looked: float = float("-inf")
    _since: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """By node, its last sign of life, and since when it was seen to be the last one."""

    def find_gone(self, now: float, nodes: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Of nodes (id, last sign of life, its age; microseconds of the database's clock) those that are gone, with
        that sign. `now` is this node's own steady clock, in seconds."""
        if now - self._looked > _SEEN:
            self._since.clear()
        self._looked = now
        known, self._since = self._since, {}
        gone: list[tuple[str, int]] = []
        for node_id, seen_at, age in nodes:
            sign, since = known.get(node_id, (0, now))
            if sign != seen_at:
                since = now
            self._since[node_id] = seen_at, since
            if age > GONE * 1e6 and now - since >= _SEEN:
                gone.append((node_id, seen_at))
        return gone


class Nodes:
    """This gateway among the others. The beats have a thread and a connection of their own: neither a long transaction
    nor a busy loop keeps them."""

    def __init__(self, database: Database, node_id: str, name: str, tell: Callable[[Look | None], None]) -> None:
        """`tell` is called on the event loop after each beat; with None, when others are about to take this node for
        gone, because it cannot say that it is there."""
        self.node_id = node_id
        self.name = name
        self._database = database
        self._tell = tell
        self.adopts = True
        """Take over what is nobody's. One that is about to leave does not."""
        self._watch = Watch()
        self._names: dict[str, str] = {}
        self._before: OrderedDict[tuple[str, str, int], str | None] = OrderedDict()
        """By owner, id and attempt of a run that was taken over, the name of the node whose it was. Noted before the
        commit, whose answer may get lost."""
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._lost = False
        self._gave_up = False
        """The node leaves without waiting for the database any longer."""
        self._heard = monotonic()
        """When the loop was told of a beat last."""
        self._beaten = monotonic()
        """When a heartbeat succeeded last."""
        self._aborted = 0.0
        """When the connection of a hanging heartbeat was aborted last."""

    async def join(self) -> Adopted:
        """Be there; what is nobody's is this node's from now on. Raises OperationalError."""
        self._loop = asyncio.get_running_loop()
        self._engine = self._database.open_writer()
        try:
            look = await asyncio.to_thread(self.beat)
        except BaseException:
            self._dispose()
            raise
        log.info("node joined node=%s id=%s", self.name, self.node_id)
        adopted = look.adopted
        while look.adopted:  # more than one transaction takes
            look = await asyncio.to_thread(self.beat)
            adopted = Adopted((*adopted.runs, *look.adopted.runs), (*adopted.webhooks, *look.adopted.webhooks))
        return adopted

    def start(self) -> None:
        self._heard = self._beaten = monotonic()
        self._watch_beats()
        self._thread = threading.Thread(target=self._beat_forever, name="babelgate-node", daemon=True)
        self._thread.start()

    async def leave(self, seconds: float = STOPPING) -> None:
        """Delete this node's row, so that the others take over its runs at once.

        If the server does not answer within `seconds`, the other nodes notice by themselves.
        """
        self._ends.set()
        await until_ended(self._leave, self._give_up, seconds)

    def _give_up(self) -> None:
        self._gave_up = True
        if (engine := self._engine) is not None:
            self._database.abort(engine)

    def _leave(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._engine is None:
            return
        try:
            if not self._gave_up:
                self._say_gone()
        except DBAPIError as error:  # then the others find out by themselves
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
            if monotonic() - self._heard > _STUCK:
                continue
            try:
                look = self.beat()
            except Exception as error:
                if not isinstance(error, DBAPIError):
                    failures.note(error)
                elif not self._lost:
                    log.warning("heartbeat failed node=%s error=%s", self.name, error.orig)
                self._lost = True
                self.disconnect()
                continue
            self._beaten = monotonic()
            if self._lost:
                log.warning("heartbeat restored node=%s", self.name)
            self._lost = False
            if not self._ends.is_set():
                self._loop.call_soon_threadsafe(self._hear, look)

    def _watch_beats(self) -> None:
        """Pause this node in time if no heartbeat succeeds: the statement of one may hang instead of failing."""
        if self._ends.is_set():
            return
        if monotonic() - self._beaten >= GONE - BEAT:
            self._tell(None)
            if monotonic() - self._aborted >= GONE - BEAT and (engine := self._engine) is not None:
                self._aborted = monotonic()
                self._database.abort(engine)  # a new connection may get through
        self._loop.call_later(BEAT / 2, self._watch_beats)

    def _hear(self, look: Look) -> None:
        self._heard = monotonic()
        self._tell(look)

    def beat(self) -> Look:
        """Say that this node is there, and look who else is. Raises DBAPIError."""
        connection = self.connect()
        with connection.begin():
            mine = _NODE.c.node_id == self.node_id
            said = connection.execute(update(_NODE).where(mine).values(seen_at=_NOW)).rowcount
            if not said:
                connection.execute(insert(_NODE).values(node_id=self.node_id, name=self.name, seen_at=_NOW))
            age = (_NOW.self_group() - _NODE.c.seen_at).label("age")
            nodes = connection.execute(select(_NODE.c.node_id, _NODE.c.name, _NODE.c.seen_at, age)).all()
        self._names |= {node.node_id: node.name for node in nodes}
        others = [(node.node_id, node.seen_at, node.age) for node in nodes if node.node_id != self.node_id]
        gone = self._watch.find_gone(monotonic(), others)
        adopted, names = self.take_over(connection, gone) if self.adopts else (Adopted(), ())
        first = min(node.node_id for node in nodes if node.age <= GONE * 1e6 or node.node_id == self.node_id)
        return Look(first == self.node_id, not said, names, adopted)

    def take_over(self, connection: Connection, gone: Sequence[tuple[str, int]]) -> tuple[Adopted, tuple[str, ...]]:
        """What is nobody's: of nodes that are gone, of those that have left, and of the gateway that had the database
        alone before."""
        with connection.begin():
            if not gone and not connection.execute(select(_is_left(_RUN) | _is_left(_HOOK))).scalar():
                return Adopted(), ()
            if not connection.execute(_LOCK).scalar():
                return Adopted(), ()
            names: list[str] = []
            for node_id, seen_at in gone:
                # Not if it has said meanwhile that it is there: then it waits here for the row, and is found changed.
                silent = (_NODE.c.node_id == node_id) & (_NODE.c.seen_at == seen_at)
                if connection.execute(delete(_NODE).where(silent)).rowcount:
                    names.append(self._names.get(node_id, node_id))
            runs = self._adopt(connection, _RUN, ("owner", "run_id", "attempt"))
            hooks = self._adopt(connection, _HOOK, ("owner", "task_id", "webhook_id"))
            for owner, run_id, attempt, node in runs:
                self._note_before(owner, run_id, attempt, self._names.get(node, node))
        named = tuple((owner, run_id, self._names.get(node, node)) for owner, run_id, _, node in runs)
        return Adopted(named, tuple(tuple(row[:3]) for row in hooks)), tuple(names)

    def _note_before(self, owner: str, run_id: str, attempt: int, node: str | None) -> None:
        self._before[owner, run_id, attempt] = node
        if len(self._before) > _REMEMBERED:
            self._before.popitem(last=False)

    def node_before(self, owner: str, run_id: str, attempt: int) -> str | None:
        """The name of the node that made this attempt of a run; None where it is not known to have been another one."""
        return self._before.get((owner, run_id, attempt))

    def _adopt(self, connection: Connection, table: Any, key: Sequence[str]) -> Sequence[Any]:
        """Rows that another transaction changes right now are skipped: whoever starts a run is its node, and what is
        still nobody's then is found with the next beat."""
        columns = [table.c[name] for name in key]
        some = select(*columns, table.c.node).where(_left(table)).order_by(*columns).limit(_SOME)
        rows = connection.execute(some.with_for_update(of=table, skip_locked=True)).all()
        for row in rows:
            this = [column == value for column, value in zip(columns, row[:-1], strict=True)]
            connection.execute(update(table).where(*this).values(node=self.node_id))
        return rows

    def _say_gone(self) -> None:
        connection = self.connect()
        with connection.begin():
            connection.execute(delete(_NODE).where(_NODE.c.node_id == self.node_id))

    def connect(self) -> Connection:
        assert self._engine is not None
        if self._connection is None:
            connection = self._engine.connect()
            # A node that is frozen while it takes over holds `_LOCK`, and with it all others that would take over.
            connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = {int(GONE * 1000)}")
            connection.commit()
            self._connection = connection
        return self._connection

    def disconnect(self) -> None:
        """The next beat takes another connection."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            connection.invalidate()
            connection.close()

    def _dispose(self) -> None:
        self.disconnect()
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


def _left(table: Any) -> Any:
    """What is to be seen to, and by nobody who is there. The words of the partial indexes find it."""
    is_unfinished = text(f"run.{LIVE}") if table is _RUN else text("webhook.done IS FALSE")
    there = exists().where(_NODE.c.node_id == table.c.node)
    return is_unfinished & (table.c.node.is_(None) | ~there)


def _is_left(table: Any) -> Any:
    return exists().where(_left(table))
