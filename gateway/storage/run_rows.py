"""Statements on the rows of runs: their crashes, the upstream's ids of earlier runs, and the runs of a period."""

from typing import Final

from sqlalchemy import Connection, select, tuple_, update

from babelgate.canonical.thread import Run
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import sql_of, table_of
from babelgate.gateway.storage.tables import RunRow
from babelgate.gateway.storage.transaction import Transaction

_NEWEST: Final = 20
"""Number of runs in which the ids of the agent's server are looked for. Chosen."""
_PAGE: Final = 2000
"""Number of rows that one call of `read_used_runs` reads. Chosen: a few milliseconds."""


def count_crashes(tx: Transaction, owner: str, run_id: str, pk: int, crashes: int) -> None:
    """Add `crashes` to a run's number of gateway processes that crashed during it. `pk` is the database key of its
    thread."""
    run = table_of(RunRow)
    this = (run.c.owner == owner) & (run.c.run_id == run_id) & (run.c.thread_pk == pk)
    tx.connection.execute(update(run).where(this).values(crashes=run.c.crashes + crashes))


def bound_runs(connection: Connection, pk: int, agent: str) -> list[Run]:
    """Return the newest runs of an agent on a thread, at most `_NEWEST`, the oldest of them first.

    They contain the ids that the agent's server uses for this thread.
    """
    newest = sql_of(connection.dialect).newest_runs.run(connection, (pk, agent, _NEWEST))
    return [decode_row(Run, body) for (body,) in reversed(newest)]


def read_used_runs(
    connection: Connection, after: tuple[str, str], since: int, until: int
) -> tuple[list[tuple[str, Run]], tuple[str, str] | None]:
    """Return one page of the runs that were created from `since` to `until`, each with its owner, for a report on
    usage.

    A page reads `_PAGE` rows of any time, so it may return few runs or none. `after` is the owner and id of the last
    row that was read. The second value is the `after` of the next page, or None after the last page. Times are in
    microseconds since 1970."""
    run = table_of(RunRow)
    key = tuple_(run.c.owner, run.c.run_id)
    selected = select(run.c.owner, run.c.run_id, run.c.created_at, run.c.body).where(key > after)
    rows = connection.execute(selected.order_by(run.c.owner, run.c.run_id).limit(_PAGE)).all()
    found = [(row.owner, decode_row(Run, row.body)) for row in rows if since <= row.created_at < until]
    return found, (rows[-1].owner, rows[-1].run_id) if len(rows) == _PAGE else None
