"""Indexes on the time of creation of runs, for lists of the runs of all threads."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: only indexes are new. docs/performance.md has their
costs."""

_DATED = sa.text("created_at > 0")
"""Condition of the partial index `run_created`. It is true for all runs, and only keeps the planner from using the
index for a lookup by owner and id: such a query does not have the condition."""
_ERRED = sa.text("status IN ('error', 'timeout')")


def upgrade() -> None:
    columns = ["owner", "created_at", "run_id"]
    op.create_index("run_created", "run", columns, sqlite_where=_DATED, postgresql_where=_DATED)
    op.create_index("run_newest", "run", ["created_at", "owner", "run_id"])
    op.create_index("run_erred", "run", columns, sqlite_where=_ERRED, postgresql_where=_ERRED)


def downgrade() -> None:
    for name in ("run_created", "run_newest", "run_erred"):
        op.drop_index(name, "run")
