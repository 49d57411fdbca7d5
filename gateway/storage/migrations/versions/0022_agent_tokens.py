"""Tables of the encrypted tokens with which agents act for users, and of the open requests for users' consent."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: both tables are new."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "consent",
        sa.Column("state", _TEXT, primary_key=True),
        sa.Column("owner", _TEXT, nullable=False),
        sa.Column("subject", _TEXT, nullable=False),
        sa.Column("agent", _TEXT, nullable=False),
        sa.Column("task_id", _TEXT, nullable=False),
        sa.Column("interrupt_id", _TEXT, nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("consent_expires", "consent", ["expires_at"])
    op.create_table(
        "agent_token",
        sa.Column("subject", _TEXT, primary_key=True),
        sa.Column("agent", _TEXT, primary_key=True),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("agent_token")
    op.drop_table("consent")
