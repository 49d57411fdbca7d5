"""What every suite shares: `pytest --accept` rewrites the goldens instead of comparing with them."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite the goldens; read the diff before you commit it")


@pytest.fixture(scope="session")
def accept(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept"))
