"""What every suite shares: `pytest --accept` rewrites goldens and the list of skips instead of comparing with them."""

import pytest

from tests.skip import SkipLock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite the goldens; read the diff before you commit it")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipLock(config), "skip-lock")


@pytest.fixture(scope="session")
def accept(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept"))
