"""Fixtures of the tests of the storage."""

import pytest

from tests.postgres import empty, url_of


@pytest.fixture
def url(postgres_tables: str) -> str:
    """URL of PostgreSQL with empty tables."""
    empty(postgres_tables)
    return url_of(postgres_tables)
