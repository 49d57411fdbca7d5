"""Table of the numbers of threads and tasks of each owner, and the triggers that update it."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ADD = """INSERT INTO tally (owner, kind, agent, rows) VALUES ({row}, 1)
    ON CONFLICT (owner, kind, agent) DO UPDATE SET rows = rows + 1;"""
_TAKE = "UPDATE tally SET rows = rows - 1 WHERE (owner, kind, agent) = ({row});"
_THREAD, _TASK = "{0}.owner, 'thread', ''", "{0}.owner, 'task', {0}.agent"
_TRIGGERS = (
    ("thread_added", "AFTER INSERT ON thread WHEN NOT new.ephemeral", _ADD, _THREAD.format("new")),
    ("thread_taken", "AFTER DELETE ON thread WHEN NOT old.ephemeral", _TAKE, _THREAD.format("old")),
    (
        "thread_shown",
        "AFTER UPDATE OF ephemeral ON thread WHEN old.ephemeral AND NOT new.ephemeral",
        _ADD,
        _THREAD.format("new"),
    ),
    (
        "thread_hidden",
        "AFTER UPDATE OF ephemeral ON thread WHEN new.ephemeral AND NOT old.ephemeral",
        _TAKE,
        _THREAD.format("old"),
    ),
    ("task_added", "AFTER INSERT ON task", _ADD, _TASK.format("new")),
    ("task_taken", "AFTER DELETE ON task", _TAKE, _TASK.format("old")),
)


def upgrade() -> None:
    op.create_table(
        "tally",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "kind", "agent"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO tally SELECT owner, 'thread', '', count(*) FROM thread WHERE NOT ephemeral GROUP BY owner "
        "UNION ALL SELECT owner, 'task', agent, count(*) FROM task GROUP BY owner, agent"
    )
    for name, when, change, row in _TRIGGERS:
        op.execute(f"CREATE TRIGGER {name} {when} BEGIN {change.format(row=row)} END")


def downgrade() -> None:
    for name, *_ in _TRIGGERS:
        op.execute(f"DROP TRIGGER {name}")
    op.drop_table("tally")
