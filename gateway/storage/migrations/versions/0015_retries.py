"""Columns for the failed attempts of webhooks and the crashes of runs, so that a restart does not forget them."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: they neither read nor write the new columns, each of
which is nullable or has a default."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_WEBHOOK = ("failures", "next_try", "reason", "given_up_at")


def upgrade() -> None:
    op.add_column("run", sa.Column("crashes", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("webhook", sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("webhook", sa.Column("next_try", sa.BigInteger(), nullable=True))
    op.add_column("webhook", sa.Column("reason", _TEXT, nullable=True))
    op.add_column("webhook", sa.Column("given_up_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("run", "crashes")
    for name in _WEBHOOK:
        op.drop_column("webhook", name)
