"""One integer as the key of SQLite's log (`babelgate.gateway.storage.log_key`). PostgreSQL's log does not change."""

import logging

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: their PostgreSQL does not change, and a SQLite
database has only one gateway."""

_BITS = 31
_THREADS = 10_000
"""Number of threads whose records one statement copies. Chosen: a line of the log for each shows the progress."""
_COLUMNS = "at, task_id, run_id, attempt, body"
_PACKED = f"""CREATE TABLE event (
	id INTEGER NOT NULL, 
	thread_pk BIGINT NOT NULL GENERATED ALWAYS AS (id >> {_BITS}) VIRTUAL, 
	seq INTEGER NOT NULL GENERATED ALWAYS AS (id & {2**_BITS - 1}) VIRTUAL, 
	at BIGINT NOT NULL, 
	task_id VARCHAR, 
	run_id VARCHAR, 
	attempt INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (id)
)"""
_OF_TWO_COLUMNS = """CREATE TABLE event (
	thread_pk BIGINT NOT NULL, 
	seq INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	task_id VARCHAR, 
	run_id VARCHAR, 
	attempt INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (thread_pk, seq)
)
 WITHOUT ROWID"""

log = logging.getLogger("babelgate.journal")


def upgrade() -> None:
    _rebuild(
        _PACKED,
        f"INSERT INTO event (id, {_COLUMNS}) SELECT (thread_pk << {_BITS}) | seq, {_COLUMNS} FROM event_before"
        " WHERE thread_pk > ? AND thread_pk <= ? ORDER BY thread_pk, seq",
    )


def downgrade() -> None:
    _rebuild(
        _OF_TWO_COLUMNS,
        f"INSERT INTO event (thread_pk, seq, {_COLUMNS}) SELECT thread_pk, seq, {_COLUMNS} FROM event_before"
        f" WHERE id > (? << {_BITS} | {2**_BITS - 1}) AND id <= (? << {_BITS} | {2**_BITS - 1}) ORDER BY id",
    )


def _rebuild(table: str, copy: str) -> None:
    """Copy the log into a new table in parts. SQLite streams the rows, so memory does not grow with the log."""
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    connection.exec_driver_sql("ALTER TABLE event RENAME TO event_before")
    connection.exec_driver_sql(table)
    # Also the keys of erased threads whose logs are still being deleted.
    newest = connection.exec_driver_sql("SELECT max(thread_pk) FROM event_before").scalar() or 0
    for after in range(0, newest, _THREADS):
        connection.exec_driver_sql(copy, (after, after + _THREADS))
        if newest > _THREADS:
            log.info("log copied threads=%d of=%d", min(after + _THREADS, newest), newest)
    connection.exec_driver_sql("DROP TABLE event_before")
