"""Table of the values of graph channels: each is stored once, whole or as a difference, and no longer in every
checkpoint."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("channels", sa.LargeBinary(), nullable=True))
    op.create_table(
        "checkpoint_value",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("ns", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=False),
        sa.Column("base_id", sa.String(), nullable=True),
        sa.Column("form", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "thread_id", "ns", "channel", "checkpoint_id"),
    )


def downgrade() -> None:
    """Drop the table of values. Checkpoints whose values are in this table cannot be read afterwards."""
    op.drop_table("checkpoint_value")
    op.drop_column("checkpoint", "channels")
