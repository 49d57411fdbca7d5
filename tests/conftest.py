"""What every suite shares: `pytest --accept` rewrites goldens and the list of skips instead of comparing with them."""

import gc
from collections.abc import Generator

import hypothesis
import pytest

from tests.skip import SkipLock

# How long an example takes tells of the machine, not of the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """As `babelgate serve` does when it has started: what was imported stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test had logged may hold what is no Unicode, and a report is sent from its process to the first one."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite the goldens; read the diff before you commit it")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # reports of workers come here
        config.pluginmanager.register(SkipLock(config), "skip-lock")


@pytest.fixture(scope="session")
def accept(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept"))
