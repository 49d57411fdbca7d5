"""Columns for the retries of webhooks, and for the crashes of runs, so that a restart does not forget them."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

expands = True
"""Every column may be null or has a default, and gateways of the release before neither read nor write it."""

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
