"""Columns and indexes for lists of threads and runs and for the expiry of threads, and the table of the key-value
store."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_LIVE = sa.text("status IN ('pending', 'running')")


def upgrade() -> None:
    op.add_column("thread", sa.Column("expires", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_index("thread_created", "thread", ["owner", "created_at"], unique=False)
    passing = sa.text("expires")
    op.create_index("thread_expires", "thread", ["pk"], unique=False, sqlite_where=passing, postgresql_where=passing)
    op.add_column("run", sa.Column("removed", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.drop_index("run_live", "run")
    op.create_index("run_live", "run", ["thread_pk"], unique=False, sqlite_where=_LIVE, postgresql_where=_LIVE)
    op.create_table(
        "item",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("ttl", sa.BigInteger(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "namespace", "key"),
    )
    ending = sa.text("expires_at IS NOT NULL")
    op.create_index("item_expires", "item", ["expires_at"], sqlite_where=ending, postgresql_where=ending)
