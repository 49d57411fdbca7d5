"""Entry point for Alembic. It uses the connection that the gateway passes in the configuration."""

from alembic import context
from sqlmodel import SQLModel

connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=SQLModel.metadata, render_as_batch=True, transaction_per_migration=False
)
context.run_migrations()
