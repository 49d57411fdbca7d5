"""Table of the counters of rate limits that the nodes of a cluster share."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: the table is new."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    # Not logged: a row lives for seconds, and losing all of them after a crash only gives callers a new burst.
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "rate",
        sa.Column("key", _TEXT, primary_key=True),
        sa.Column("tat", sa.Float(), nullable=False),
        prefixes=["UNLOGGED"] if is_postgresql else [],
    )


def downgrade() -> None:
    op.drop_table("rate")
