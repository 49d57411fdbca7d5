"""Table of grants: threads that an owner shares with other owners and groups."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: the table is new.

Such a gateway does not delete the grants of a thread that it erases, but they apply to no later thread
(`babelgate.gateway.storage.grants`)."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "grant",
        sa.Column("thread_pk", sa.BigInteger(), primary_key=True),
        sa.Column("grantee", _TEXT, primary_key=True),
        sa.Column("level", _TEXT, nullable=False),
        sa.Column("by", _TEXT, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
    )
    op.create_index("grant_grantee", "grant", ["grantee"])


def downgrade() -> None:
    op.drop_table("grant")
