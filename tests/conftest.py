"""What every suite shares: `pytest --accept` rewrites goldens and the list of skips instead of comparing with them."""

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
from tests.sample import Sample, today
from tests.skip import SkipLock
from tests.tier import TIERS, tier_of
from tests.violations import ViolationScore

MEMORY: Final = Path("/dev/shm")
"""A file system in memory, where there is one."""
MUCH: Final = 2**31
"""Bytes, of which a sample needs a tenth."""

INSTALLATION: Final = 180
"""Seconds for a test of a peer: the first one makes its environment."""

# Nothing that is imported or collected goes away again: to look for it is a fifth of the time of a collection.
gc.disable()


def pytest_collection_finish() -> None:
    """As `babelgate serve` does when it has started: what was imported stays, and is not looked at again."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test had logged may hold what is no Unicode, and a report is sent from its process to the first one."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the tier `unit` alone, with few examples of each property")
    parser.addoption("--sample", metavar="SEED", help="some cases of the tests that have many; `today` changes daily")
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
            # pytest knows the fixtures of a test, and shows them nowhere else.
            fixtures: dict[str, Any] = item._fixtureinfo.name2fixturedefs  # pyright: ignore[reportPrivateUsage]
            modules = {each.func.__module__ for found in fixtures.values() for each in found} - {__name__}
            on_postgres = hasattr(item, "callspec") and item.callspec.params.get("postgres", False)
            # Not its own `__module__`: a state machine's is Hypothesis.
            tier = "sockets" if on_postgres else tier_of((*modules, item.module.__name__))
            item.add_marker(tier)
            if tier == "peers" and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(INSTALLATION))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In a module that says EACH_DATABASE, what is tested on a database is tested on each kind of them."""
    module = sys.modules[metafunc.function.__module__]
    if "postgres" in metafunc.fixturenames and getattr(module, "EACH_DATABASE", False):
        alone = metafunc.definition.get_closest_marker("sqlite") is not None
        kinds = {"sqlite": False} if alone else {"sqlite": False, "postgres": True}
        metafunc.parametrize("postgres", kinds.values(), ids=kinds.keys(), indirect=True)


@pytest.fixture(scope="session")
def postgres_tables() -> Generator[str]:
    """The name of a schema."""
    from tests.postgres import new_tables  # which costs those who do not need it a tenth of a second

    with new_tables() as schema:
        yield schema


def pytest_unconfigure() -> None:
    """A server that was started for the tests ends with them."""
    if "tests.postgres" in sys.modules:
        from tests.postgres import stop_server

        stop_server()


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> str | None:
    """The URL of an empty database of PostgreSQL, where the test is to use one, and not SQLite."""
    if not getattr(request, "param", False):
        return None
    from tests.postgres import empty, url_of

    schema: str = request.getfixturevalue("postgres_tables")
    empty(schema)
    return url_of(schema)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that opens what its tier does not is in the wrong one, and fails. No fixture: thousands of tests are in
    the tier `unit`, most of which take no longer than to set up two."""
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
    """A command that ran in this process, for an earlier test, has set up logging for all of it."""
    log = logging.getLogger("babelgate")
    if log.level != logging.NOTSET:  # to set it makes every logger forget which levels it has found
        log.setLevel(logging.NOTSET)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that --quick leaves out are not even imported."""
    if not config.option.quick or not collection_path.name.startswith("test_"):
        return None
    module = ".".join(collection_path.relative_to(config.rootpath).with_suffix("").parts)
    return None if tier_of([module]) == "unit" else True


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick:
        config.option.markexpr = "unit and not slow"
    # A database that is made for one test waits for the disk again and again.
    has_memory = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MUCH
    if has_memory and (config.option.quick or config.option.sample):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: the tier of a test, see tests/tier.py")
    if config.option.sample:
        if config.option.sample == "today":  # processes that run tests get what the first one has made of it
            config.option.sample = today()
        config.pluginmanager.register(Sample(config.option.sample), "sample")
    hands_out = config.getoption("dist", "no") != "no" and config.getoption("tx", None)
    if hasattr(config, "workerinput") or not hands_out:
        from tests.ready import make_ready  # which takes a second

        make_ready(bool(config.option.quick or config.option.sample))
    if not hasattr(config, "workerinput"):  # reports of workers come here
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
