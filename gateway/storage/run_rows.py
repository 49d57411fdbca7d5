"""Rows of runs: the number of crashes, and the ids of the upstream."""

from sqlalchemy import Connection, select, update

from babelgate.canonical.thread import Run
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import RunRow
from babelgate.gateway.storage.transaction import Transaction


def count_crashes(tx: Transaction, owner: str, run_id: str, pk: int, crashes: int) -> None:
    """Add to the number of crashes of a run: processes that ended during it. `pk` = key of its thread."""
    run = table_of(RunRow)
    this = (run.c.owner == owner) & (run.c.run_id == run_id) & (run.c.thread_pk == pk)
    tx.connection.execute(update(run).where(this).values(crashes=run.c.crashes + crashes))


def bound_runs(connection: Connection, pk: int, agent: str) -> list[Run]:
    """Return the 20 newest runs of an agent on a thread, the oldest first.

    They have the upstream's ids for the thread.
    """
    run = table_of(RunRow)
    newest = (
        select(run.c.body).where(run.c.thread_pk == pk, run.c.agent == agent).order_by(run.c.first_seq.desc()).limit(20)
    )
    return [decode_row(Run, body) for (body,) in reversed(connection.execute(newest).all())]
