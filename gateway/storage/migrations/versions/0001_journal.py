"""First schema: the log, and the rows of threads, tasks, runs and questions that are computed from it."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alias",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("protocol", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "protocol", "agent", "alias"),
    )
    op.create_index("alias_thread", "alias", ["owner", "thread_id"], unique=False)
    op.create_table(
        "blob_use",
        sa.Column("thread_pk", sa.BigInteger(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("thread_pk", "blob"),
    )
    op.create_index("blob_use_blob", "blob_use", ["blob"], unique=False)
    op.create_table(
        "event",
        sa.Column("thread_pk", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=True),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("thread_pk", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "interrupt",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("interrupt_id", sa.String(), nullable=False),
        sa.Column("thread_pk", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "task_id", "interrupt_id"),
    )
    op.create_index(
        "interrupt_open",
        "interrupt",
        ["thread_pk", "seq"],
        unique=False,
        sqlite_where=sa.text("action IS NULL"),
        postgresql_where=sa.text("action IS NULL"),
    )
    op.create_index("interrupt_thread", "interrupt", ["thread_pk"], unique=False)
    op.create_table(
        "meta",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "run",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("thread_pk", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("start_after", sa.BigInteger(), nullable=True),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "run_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "run_active",
        "run",
        ["thread_pk"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "run_live",
        "run",
        ["thread_pk"],
        unique=False,
        sqlite_where=sa.text("status IN ('reserved', 'pending', 'running')"),
        postgresql_where=sa.text("status IN ('reserved', 'pending', 'running')"),
    )
    op.create_index("run_thread", "run", ["thread_pk", "first_seq"], unique=False)
    op.create_table(
        "task",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("thread_pk", sa.BigInteger(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("continues", sa.String(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "task_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("task_changed", "task", ["owner", "changed_at", "task_id"], unique=False)
    op.create_index(
        "task_continues", "task", ["owner", "continues"], unique=False, sqlite_where=sa.text("continues IS NOT NULL")
    )
    op.create_index(
        "task_open",
        "task",
        ["thread_pk"],
        unique=False,
        sqlite_where=sa.text("state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling')"),
        postgresql_where=sa.text("state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling')"),
    )
    op.create_index("task_thread", "task", ["thread_pk"], unique=False)
    op.create_table(
        "thread",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("ephemeral", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
    )
    op.create_index("thread_id", "thread", ["owner", "thread_id"], unique=True)
    op.create_table(
        "tombstone",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "thread_id"),
    )
    op.create_table(
        "webhook",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("dialect", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("delivered_seq", sa.Integer(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "task_id", "webhook_id"),
    )
    op.create_index(
        "webhook_due",
        "webhook",
        ["task_id"],
        unique=False,
        sqlite_where=sa.text("done IS 0"),
        postgresql_where=sa.text("done IS false"),
    )


def downgrade() -> None:
    op.drop_table("webhook")
    op.drop_table("tombstone")
    op.drop_table("thread")
    op.drop_table("task")
    op.drop_table("run")
    op.drop_table("meta")
    op.drop_table("interrupt")
    op.drop_table("event")
    op.drop_table("blob_use")
    op.drop_table("alias")
