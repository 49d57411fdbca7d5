"""Table of erased threads whose long logs are deleted in steps."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "remnant",
        sa.Column("thread_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("thread_pk"),
    )


def downgrade() -> None:
    op.drop_table("remnant")
