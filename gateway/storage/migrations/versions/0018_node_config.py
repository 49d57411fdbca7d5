"""Digest of the configuration of each node, so that a node can tell whether others work with another one."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

expands = True
"""The column may be null, and gateways of the release before neither read nor write it."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("node", sa.Column("config", _TEXT, nullable=True))


def downgrade() -> None:
    op.drop_column("node", "config")
