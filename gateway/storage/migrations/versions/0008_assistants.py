"""Tables of the assistants that callers configure, and of their versions."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "assistant",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("assistant_id", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "assistant_id"),
    )
    op.create_table(
        "assistant_version",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("assistant_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "assistant_id", "version"),
    )


def downgrade() -> None:
    op.drop_table("assistant_version")
    op.drop_table("assistant")
