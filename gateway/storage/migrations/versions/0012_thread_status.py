"""Columns with the status of a thread and the time of its newest record, for searches and sorting."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_INDEXES = (
    ("thread_updated", ["owner", "updated_at"]),
    ("thread_status", ["owner", "status", "created_at"]),
    ("thread_status_updated", ["owner", "status", "updated_at"]),
)
_FILL = """UPDATE thread SET
    updated_at = COALESCE(
        (SELECT at FROM event WHERE thread_pk = thread.pk ORDER BY seq DESC LIMIT 1), changed_at
    ),
    status = CASE
        WHEN EXISTS (SELECT 1 FROM run WHERE thread_pk = thread.pk AND status IN ('pending', 'running')) THEN 'busy'
        WHEN EXISTS (
            SELECT 1 FROM task WHERE thread_pk = thread.pk AND state IN ('input_required', 'auth_required')
        ) THEN 'interrupted'
        WHEN (
            SELECT status FROM run WHERE thread_pk = thread.pk AND NOT removed ORDER BY first_seq DESC LIMIT 1
        ) IN ('error', 'timeout') THEN 'error'
        ELSE 'idle'
    END"""


def upgrade() -> None:
    op.add_column("thread", sa.Column("status", sa.String(), server_default="idle", nullable=False))
    op.add_column("thread", sa.Column("updated_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.execute(_FILL)
    for name, columns in _INDEXES:
        op.create_index(name, "thread", columns)


def downgrade() -> None:
    for name, _ in _INDEXES:
        op.drop_index(name, "thread")
    op.drop_column("thread", "updated_at")
    op.drop_column("thread", "status")
