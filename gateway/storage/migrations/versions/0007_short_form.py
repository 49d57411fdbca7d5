"""Records and rows in a shorter form (`babelgate.gateway.storage.short_form`), which earlier releases cannot read.

Existing records and rows are not changed.
"""

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    raise NotImplementedError("records would have to be written anew")
