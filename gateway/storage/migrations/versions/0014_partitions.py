"""Partitioning of PostgreSQL's log table by thread. The existing table becomes the first partition, and no row is
moved."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: they see the same table."""

_THREADS = 1_000_000
_NEWEST = "SELECT greatest((SELECT last_value FROM thread_key), (SELECT max(pk) FROM thread))"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    newest = op.get_bind().exec_driver_sql(_NEWEST).scalar_one()
    end = (newest // _THREADS + 1) * _THREADS
    op.execute("ALTER TABLE event RENAME TO event_0")
    op.execute("ALTER INDEX event_pkey RENAME TO event_0_pkey")
    op.execute("CREATE TABLE event (LIKE event_0 INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY RANGE (thread_pk)")
    op.execute("ALTER TABLE event ADD PRIMARY KEY (thread_pk, seq)")
    op.execute(f"ALTER TABLE event ATTACH PARTITION event_0 FOR VALUES FROM (MINVALUE) TO ({end})")
    op.execute("CREATE TABLE event_rest PARTITION OF event DEFAULT")


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("CREATE TABLE event_whole (LIKE event INCLUDING DEFAULTS INCLUDING STORAGE)")
    op.execute("INSERT INTO event_whole SELECT * FROM event")
    op.execute("DROP TABLE event")
    op.execute("ALTER TABLE event_whole RENAME TO event")
    op.execute("ALTER TABLE event ADD PRIMARY KEY (thread_pk, seq)")
