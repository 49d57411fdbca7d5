"""Index of tombstones by time, so that old ones are found without reading all."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: there is only a new index."""


def upgrade() -> None:
    op.create_index("tombstone_at", "tombstone", ["at"])


def downgrade() -> None:
    op.drop_index("tombstone_at", "tombstone")
