"""Indexes that the first databases lack, because revision 0001 was changed after some databases existed."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_OPEN = sa.text("state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling')")
_DUE = {"sqlite_where": sa.text("done IS 0"), "postgresql_where": sa.text("done IS false")}
_INDEXES: tuple[tuple[str, str, list[str], dict[str, Any]], ...] = (
    ("alias_thread", "alias", ["owner", "thread_id"], {}),
    ("interrupt_thread", "interrupt", ["thread_pk"], {}),
    ("run_thread", "run", ["thread_pk", "first_seq"], {}),
    ("task_open", "task", ["thread_pk"], {"sqlite_where": _OPEN, "postgresql_where": _OPEN}),
    ("task_thread", "task", ["thread_pk"], {}),
    ("webhook_due", "webhook", ["task_id"], _DUE),
)


def upgrade() -> None:
    inspector = sa.inspect(op.get_bind())
    for name, table, columns, options in _INDEXES:
        there = {index["name"]: index["column_names"] for index in inspector.get_indexes(table)}
        if there.get(name) == columns:
            continue
        if name in there:
            op.drop_index(name, table)
        op.create_index(name, table, columns, unique=False, **options)
    if "run_task" in {index["name"] for index in inspector.get_indexes("run")}:
        op.drop_index("run_task", "run")
