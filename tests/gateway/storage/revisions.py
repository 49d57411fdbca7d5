"""Databases with the schemas of earlier releases."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def migrate_to(revision: str, connection: Connection, *, back: bool = False) -> None:
    """Migrate the schema to a revision. `back` = downgrade."""
    config = Config()
    config.set_main_option("script_location", "babelgate.gateway.storage:migrations")
    config.attributes["connection"] = connection
    (command.downgrade if back else command.upgrade)(config, revision)
