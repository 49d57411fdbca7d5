"""Databases as earlier releases left them."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def migrate_to(revision: str, connection: Connection, *, back: bool = False) -> None:
    """Change the schema, also `back`, to what it was with a revision."""
    config = Config()
    config.set_main_option("script_location", "babelgate.gateway.storage:migrations")
    config.attributes["connection"] = connection
    (command.downgrade if back else command.upgrade)(config, revision)
