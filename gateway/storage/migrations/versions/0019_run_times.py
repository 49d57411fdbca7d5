"""Indexes of runs by their time of creation, for lists of the runs of all threads."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

expands = True
"""All that is new are indexes."""

_ERRED = sa.text("status IN ('error', 'timeout')")


def upgrade() -> None:
    op.create_index("run_created", "run", ["owner", "created_at", "run_id"])
    op.create_index("run_newest", "run", ["created_at", "owner", "run_id"])
    op.create_index("run_erred", "run", ["owner", "created_at", "run_id"], sqlite_where=_ERRED, postgresql_where=_ERRED)


def downgrade() -> None:
    for name in ("run_created", "run_newest", "run_erred"):
        op.drop_index(name, "run")
