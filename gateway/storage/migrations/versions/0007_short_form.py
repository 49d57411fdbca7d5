"""Compact encoding of records and rows (`babelgate.gateway.storage.short_form`), which earlier releases cannot read.

No table changes, and existing records and rows stay as they are."""

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    raise NotImplementedError("all records would have to be rewritten")
