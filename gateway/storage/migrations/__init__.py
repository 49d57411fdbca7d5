"""Migrations of the database schema with Alembic. The gateway runs them at startup, from the installed package."""
