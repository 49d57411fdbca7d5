"""Table of crons: requests that are repeated on a schedule."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cron",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("cron_id", sa.String(), nullable=False),
        sa.Column("next_run", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "cron_id"),
    )
    due = sa.text("next_run IS NOT NULL")
    op.create_index("cron_due", "cron", ["next_run"], sqlite_where=due, postgresql_where=due)


def downgrade() -> None:
    op.drop_table("cron")
