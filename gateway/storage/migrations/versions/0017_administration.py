"""Tables for the administration API: API keys, agents and disabled agents, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

expands = True
"""Marker that gateways of the previous release can keep running: all tables are new."""

_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_REFUSED = "the audit log is append-only"
_SQLITE_TRIGGERS = (
    f"CREATE TRIGGER audit_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END",
    "CREATE TRIGGER audit_deleted BEFORE DELETE ON audit "
    "WHEN old.at > (CAST(strftime('%s', 'now') AS INTEGER) - 2592000) * 1000000 "
    f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END",
)
_POSTGRESQL_TRIGGERS = (
    f"""CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{_REFUSED}' USING ERRCODE = 'insufficient_privilege';
END
$$""",
    "CREATE TRIGGER audit_changed BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()",
    "CREATE TRIGGER audit_deleted BEFORE DELETE ON audit FOR EACH ROW "
    "WHEN (old.at > (extract(epoch FROM clock_timestamp()) - 2592000) * 1000000) "
    "EXECUTE FUNCTION refuse_audit_change()",
    "CREATE TRIGGER audit_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()",
)


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("key_id", _TEXT, primary_key=True),
        sa.Column("owner", _TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", _TEXT, nullable=False),
        sa.Column("digest", _TEXT, nullable=False, unique=True),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("last_used_at", sa.BigInteger()),
        sa.Column("previous_digest", _TEXT),
        sa.Column("previous_until", sa.BigInteger()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "agent",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_by", _TEXT, nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "disabled_agent",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("running", _TEXT, nullable=False),
        sa.Column("reason", _TEXT, nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_by", _TEXT, nullable=False),
    )
    _create_audit()


def _create_audit() -> None:
    names = ("node", "request_id", "trace_id", "protocol", "address", "subject", "owner", "issuer", "credential")
    target = ("action", "kind", "target", "agent", "target_owner", "outcome", "reason")
    op.create_table(
        "audit",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, _TEXT, nullable=False) for name in (*names, *target)),
        sa.Column("count", sa.Integer(), nullable=False),
        *(sa.Column(name, _TEXT, nullable=False) for name in ("before", "after", "previous_hash", "hash")),
    )
    op.create_index("audit_at", "audit", ["at"])
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for statement in _POSTGRESQL_TRIGGERS if is_postgresql else _SQLITE_TRIGGERS:
        op.execute(statement)


def downgrade() -> None:
    op.drop_table("audit")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_audit_change")
    for name in ("disabled_agent", "agent", "api_key"):
        op.drop_table(name)
