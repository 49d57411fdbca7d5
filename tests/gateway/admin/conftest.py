"""Fixtures of the tests of the administration API."""

from typing import Any

import pytest

from tests.postgres import empty, url_of


@pytest.fixture
def postgres_url(postgres_tables: str) -> str:
    """URL of PostgreSQL with empty tables."""
    empty(postgres_tables)
    return url_of(postgres_tables)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Setting of a database: SQLite in the folder of the test, or PostgreSQL."""
    if request.param == "sqlite":
        return {}
    return {"database": request.getfixturevalue("postgres_url")}
