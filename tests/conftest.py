"""Hooks and fixtures of all suites.

`pytest --accept` rewrites goldens and the list of skips instead of comparing them.
"""

import gc
import logging
import os
import shutil
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from tests.order import Durations, LongestFirst, listed
from tests.sample import Sample, Thinning, share_of_today, today
from tests.skip import SkipLock
from tests.tier import TIERS, can_be_slow, tier_of
from tests.violations import ViolationScore

MEMORY: Final = Path("/dev/shm")
"""Folder of a file system in memory, for the files of tests. It exists only on some machines."""
MUCH: Final = 2**31
"""Free space in bytes that `MEMORY` must have to be used. A sample of the tests needs a tenth of it."""

INSTALLATION: Final = 180
"""Timeout of a test of a peer, in seconds. The first one creates the peer's environment."""

# Imported modules and collected tests stay, so garbage collection would only cost a fifth of the collection time.
gc.disable()


def pytest_collection_finish() -> None:
    """Enable garbage collection as `babelgate serve` does at startup: without the objects from the imports."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape text that is not valid Unicode in reports, which workers send to the first process."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the tier `unit` alone, with few examples of each property")
    parser.addoption("--sample", metavar="SEED", help="some cases of the tests that have many; `today` changes daily")
    parser.addoption("--thin", metavar="SHARE", help="of tests/pairs and the violations, a third: 0, 1, 2, or `today`")
    parser.addoption("--accept", action="store_true", help="rewrite the goldens; read the diff before you commit it")
    parser.addoption("--time", action="store_true", help="write tests/durations.json, by which files are ordered")
    parser.addoption(
        "--postgres", action="store_true", help="of tests/pairs: every gateway keeps its data in PostgreSQL"
    )
    parser.addoption(
        "--whole-sets", action="store_true", help="show each violation to all requirements of its set: takes far longer"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.module is not None:
            # Only this private member of pytest has the fixtures of a test.
            fixtures: dict[str, Any] = item._fixtureinfo.name2fixturedefs  # pyright: ignore[reportPrivateUsage]
            modules = {each.func.__module__ for found in fixtures.values() for each in found} - {__name__}
            on_postgres = hasattr(item, "callspec") and item.callspec.params.get("postgres", False)
            # Not `__module__` of the test: for a state machine that is Hypothesis.
            tier = "sockets" if on_postgres else tier_of((*modules, item.module.__name__))
            item.add_marker(tier)
            if tier == "peers" and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(INSTALLATION))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a database once with each kind of database, in modules with EACH_DATABASE."""
    module = sys.modules[metafunc.function.__module__]
    if "postgres" in metafunc.fixturenames and getattr(module, "EACH_DATABASE", False):
        alone = metafunc.definition.get_closest_marker("sqlite") is not None
        kinds = {"sqlite": False} if alone else {"sqlite": False, "postgres": True}
        metafunc.parametrize("postgres", kinds.values(), ids=kinds.keys(), indirect=True)


@pytest.fixture(scope="session")
def postgres_tables() -> Generator[str]:
    """Name of a schema with the tables of a gateway."""
    from tests.postgres import new_tables  # imported here, because it takes a tenth of a second

    with new_tables() as schema:
        yield schema


def pytest_unconfigure() -> None:
    """Stop the PostgreSQL server that was started for the tests."""
    if "tests.postgres" in sys.modules:
        from tests.postgres import stop_server

        stop_server()


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> str | None:
    """URL of an empty PostgreSQL database, or None if the test uses SQLite."""
    if not getattr(request, "param", False):
        return None
    from tests.postgres import empty, url_of

    schema: str = request.getfixturevalue("postgres_tables")
    empty(schema)
    return url_of(schema)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that opens connections or databases which its tier excludes.

    This is not a fixture, because most of the thousands of tests in the tier `unit` take no longer than the setup of
    two fixtures.
    """
    is_unit = item.get_closest_marker("unit") is not None
    if not is_unit and item.get_closest_marker("database") is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "bind", _refuse_connection)
        patch.setattr(socket.socket, "connect", _refuse_connection)
        if is_unit:
            patch.setattr("sqlite3.connect", _refuse_database)
            patch.setattr("sqlite3.dbapi2.connect", _refuse_database)
        return (yield)


def _refuse_connection(*_: object) -> NoReturn:
    raise AssertionError("a test of the tiers `unit` and `database` opens a connection: see tests/tier.py")


def _refuse_database(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a test of the tier `unit` opens a database: see tests/tier.py")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Reset the log level, which a command that ran in this process for an earlier test may have set."""
    log = logging.getLogger("babelgate")
    if log.level != logging.NOTSET:  # setting it makes every logger drop its cached levels
        log.setLevel(logging.NOTSET)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of modules that --quick or `-m slow` leave out, which takes each process twenty seconds."""
    if not collection_path.name.startswith("test_"):
        return None
    module = ".".join(collection_path.relative_to(config.rootpath).with_suffix("").parts)
    is_left_out = (config.option.quick and tier_of([module]) != "unit") or (
        config.option.markexpr == "slow" and not can_be_slow(module)
    )
    return True if is_left_out else None


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick:
        config.option.markexpr = "unit and not slow"
    # A database that is created for a single test waits for the disk repeatedly.
    has_memory = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MUCH
    if has_memory and (config.option.quick or config.option.sample):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: the tier of a test, see tests/tier.py")
    if config.option.sample:
        if config.option.sample == "today":  # worker processes use the first process's value
            config.option.sample = today()
        config.pluginmanager.register(Sample(config.option.sample), "sample")
    if config.option.thin:
        if config.option.thin == "today":
            config.option.thin = share_of_today()
        config.pluginmanager.register(Thinning(config.option.thin), "thinning")
    hands_out = config.getoption("dist", "no") != "no" and config.getoption("tx", None)
    if hasattr(config, "workerinput") or not hands_out:
        from tests.ready import make_ready  # which takes a second

        make_ready(bool(config.option.quick or config.option.sample))
    if not hasattr(config, "workerinput"):  # workers send their reports here
        config.pluginmanager.register(SkipLock(config), "skip-lock")
        config.pluginmanager.register(ViolationScore(), "violation-score")
        if config.option.time:
            config.pluginmanager.register(Durations(), "durations")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    return LongestFirst(config, log, listed()) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def accept(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept"))
