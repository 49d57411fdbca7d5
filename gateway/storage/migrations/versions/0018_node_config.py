"""Column with the digest of each node's configuration, so that a node can detect others with a different one."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: they neither read nor write the new column, which is
nullable."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("node", sa.Column("config", _TEXT, nullable=True))


def downgrade() -> None:
    op.drop_column("node", "config")
