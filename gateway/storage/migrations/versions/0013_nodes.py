"""Clusters: the table of nodes, the node of each run and webhook, and a sequence for the keys of threads."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_SEQUENCE = "thread_key"
_LATEST = "SELECT greatest((SELECT max(pk) FROM thread), (SELECT max(thread_pk) FROM remnant), 0) + 1"


def upgrade() -> None:
    op.create_table(
        "node",
        sa.Column("node_id", _TEXT, primary_key=True),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
    )
    op.add_column("run", sa.Column("node", _TEXT))
    op.add_column("webhook", sa.Column("node", _TEXT))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"CREATE SEQUENCE {_SEQUENCE}")
        op.execute(f"SELECT setval('{_SEQUENCE}', ({_LATEST}), false)")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"DROP SEQUENCE {_SEQUENCE}")
    op.drop_column("webhook", "node")
    op.drop_column("run", "node")
    op.drop_table("node")
