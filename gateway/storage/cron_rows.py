"""Table of crons: each row has the time at which the cron is next due, and the cron as its body."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, update

from babelgate.canonical.cron import Cron, CronQuery
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.json import has_members
from babelgate.canonical.stored import decode_snapshot, encode_snapshot
from babelgate.gateway.storage.needles import find_needles, has_needles
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import CronRow
from babelgate.gateway.storage.transaction import Transaction

_CRON = table_of(CronRow)
_DUE_LIMIT: Final = 100
"""Maximum number of due crons that one query returns. Chosen."""
_MAX_CRONS: Final = 1000
"""Maximum number of crons per owner. Chosen."""


def _its(owner: str, cron_id: str) -> Any:
    return (_CRON.c.owner == owner) & (_CRON.c.cron_id == cron_id)


def create_cron(tx: Transaction, owner: str, cron: Cron) -> None:
    """Insert a cron. Raises not_found if its thread does not exist, and queue_full if the owner has `_MAX_CRONS`
    crons."""
    if cron.thread_id is not None:
        tx.need_thread(owner, cron.thread_id)
    counted = select(func.count()).select_from(_CRON).where(_CRON.c.owner == owner)
    if tx.connection.execute(counted).scalar_one() >= _MAX_CRONS:
        raise FaultError(FaultCode.QUEUE_FULL, f"There are {_MAX_CRONS} crons: delete one first.")
    row = {"owner": owner, "cron_id": cron.cron_id, "next_run": cron.next_run, "body": encode_snapshot(cron)}
    tx.connection.execute(insert(_CRON), row)


def write_cron(tx: Transaction, owner: str, cron: Cron) -> None:
    """Replace the stored cron that has the same id. Does nothing if there is none."""
    row = {"next_run": cron.next_run, "body": encode_snapshot(cron)}
    tx.connection.execute(update(_CRON).where(_its(owner, cron.cron_id)), row)


def delete_cron(tx: Transaction, owner: str, cron_id: str) -> bool:
    """Delete a cron. Return False if there was none."""
    return tx.connection.execute(delete(_CRON).where(_its(owner, cron_id))).rowcount > 0


def read_cron(connection: Connection, owner: str, cron_id: str, *, change: bool = False) -> Cron | None:
    """Return a cron, or None if there is none. With `change`, lock its row until the end of the transaction."""
    selected = select(_CRON.c.body).where(_its(owner, cron_id))
    body = connection.execute(selected.with_for_update() if change else selected).scalar()
    return None if body is None else decode_snapshot(Cron, body)


def due_crons(connection: Connection, now: int) -> list[tuple[str, Cron]]:
    """Return up to `_DUE_LIMIT` crons that are due at `now`, the earliest first, each with its owner.

    `now` is in microseconds since 1970."""
    selected = select(_CRON.c.owner, _CRON.c.body).where(_CRON.c.next_run <= now).order_by(_CRON.c.next_run)
    rows = connection.execute(selected.limit(_DUE_LIMIT))
    return [(owner, decode_snapshot(Cron, body)) for owner, body in rows]


def read_next_due(connection: Connection) -> int | None:
    """Return the time at which the next cron is due, in microseconds since 1970, or None if no cron is scheduled."""
    return connection.execute(select(func.min(_CRON.c.next_run)).where(_CRON.c.next_run.is_not(None))).scalar()


def search_crons(connection: Connection, owner: str, query: CronQuery) -> list[tuple[str, int]]:
    """Return one page of a search: the id of each matching cron, and the size of its body in bytes."""
    matches = sorted(_matching(connection, owner, query), reverse=query.descending)
    return [(cron_id, size) for *_, cron_id, size in islice(matches, query.offset, query.offset + query.limit)]


def count_crons(connection: Connection, owner: str, query: CronQuery) -> int:
    """Return the number of crons that a search matches."""
    return sum(1 for _ in _matching(connection, owner, query))


def _matching(connection: Connection, owner: str, query: CronQuery) -> Iterator[tuple[bool, Any, str, int]]:
    """Yield a tuple for each matching cron, by which the matches can be sorted: True if the field `query.order` has a
    value, that value, the cron's id, and the size of its body in bytes."""
    preselected = has_needles(_CRON.c.body, find_needles(query.metadata))
    selected = select(_CRON.c.body).where(_CRON.c.owner == owner, *preselected)
    with closing(connection.execute(stream_rows(selected))) as rows:
        for (body,) in rows:
            cron = decode_snapshot(Cron, body)
            if _is_match(cron, query):
                by = getattr(cron, query.order)
                yield by is not None, "" if by is None else by, cron.cron_id, len(body)


def _is_match(cron: Cron, query: CronQuery) -> bool:
    filters = {"assistant_id": query.assistant_id, "thread_id": query.thread_id, "enabled": query.enabled}
    if any(wanted is not None and getattr(cron, name) != wanted for name, wanted in filters.items()):
        return False
    if query.agents is not None and cron.agent not in query.agents:
        return False
    return has_members(cron.metadata, query.metadata)


def read_crons(connection: Connection, *, owner: str, keys: Sequence[str]) -> dict[str, Cron]:
    """Return the crons with these ids, by id. Ids without a cron are left out."""
    selected = select(_CRON.c.cron_id, _CRON.c.body).where(_CRON.c.owner == owner, _CRON.c.cron_id.in_(keys))
    return {cron_id: decode_snapshot(Cron, body) for cron_id, body in connection.execute(selected)}
