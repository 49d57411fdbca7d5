"""Alembic's migrations of the journal's database, run at start from the installed package."""
