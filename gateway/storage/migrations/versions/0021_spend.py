"""Table of the amounts that runs have used of budgets."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: the table is new. They do not count their runs."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_AMOUNTS = ("input", "output", "cost", "runs", "unknown", "extra_cost", "extra_tokens", "extra_runs", "changed_at")


def upgrade() -> None:
    op.create_table(
        "spend",
        sa.Column("scope", _TEXT, primary_key=True),
        sa.Column("period", _TEXT, primary_key=True),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _AMOUNTS),
    )


def downgrade() -> None:
    op.drop_table("spend")
