"""Index of threads by the members of their metadata."""

import sqlalchemy as sa
from alembic import op

from babelgate.canonical.thread import Thread
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import sql_of
from babelgate.gateway.storage.thread_members import keys_of, write_members

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# Not `expands`: a gateway of the previous release would change metadata without changing the index.

_BATCH = 1000


def upgrade() -> None:
    op.create_table(
        "thread_member",
        sa.Column("key", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column(
            "thread_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=False,
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("thread_member_thread", "thread_member", ["thread_pk"])
    connection = op.get_bind()
    thread = sa.table("thread", sa.column("pk"), sa.column("body"))
    after = 0
    while True:
        page = sa.select(thread.c.pk, thread.c.body).where(thread.c.pk > after).order_by(thread.c.pk).limit(_BATCH)
        rows = connection.execute(page).all()
        if not rows:
            break
        added = {pk: (frozenset[int](), keys_of(decode_row(Thread, bytes(body)))) for pk, body in rows}
        write_members(sql_of(connection.dialect), connection, added)
        after = rows[-1].pk


def downgrade() -> None:
    op.drop_table("thread_member")
