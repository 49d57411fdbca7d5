"""`tests/skips.lock`: every skipped test, and why. A run with other skips fails until `pytest --accept` has rewritten
the list.

Review the difference before the commit. A skip for something that the machine lacks does not count: `missing` reports
it, and it is not listed.
"""

import json
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Final, NoReturn

import pytest

LOCK: Final = Path(__file__).parent / "skips.lock"
_MISSING: Final = "not on this machine: "


def missing(what: str) -> NoReturn:
    """Skip the calling test because this machine lacks something that others have."""
    pytest.skip(_MISSING + what)


def listed(path: Path = LOCK) -> dict[str, str]:
    return json.loads(path.read_text()) if path.exists() else {}


class Listing:
    """The skips of one run, compared with the list."""

    def __init__(self, before: Mapping[str, str]) -> None:
        self.before = before
        self.collected: Set[str] = frozenset()
        self.whole = True
        """True if all existing tests were collected."""
        self.skipped: dict[str, str] = {}
        self.ran: set[str] = set()

    def note(self, test: str, reason: str) -> None:
        if not reason.startswith(_MISSING):
            self.skipped[test] = reason

    @property
    def after(self) -> dict[str, str]:
        """Corrected list. Entries of tests that were not part of this run are unchanged."""
        removed = self.before.keys() - self.collected if self.whole else frozenset[str]()
        unchanged = {test: why for test, why in self.before.items() if test not in self.ran and test not in removed}
        return dict(sorted({**unchanged, **self.skipped}.items()))

    def problems(self) -> Sequence[str]:
        found: list[str] = []
        after = self.after
        for test, why in after.items():
            if test not in self.before:
                found.append(f"{test} is skipped and not listed: {why}")
            elif self.before[test] != why:
                found.append(f"{test} is skipped for another reason than listed: {why}")
        return [*found, *(f"{test} is listed and not skipped" for test in self.before if test not in after)]


class SkipLock:
    """Plugin that watches a run, and fails it or rewrites the list."""

    def __init__(self, config: pytest.Config, path: Path = LOCK) -> None:
        self._path = path
        self._accept = bool(config.getoption("--accept"))
        self._listing = Listing(listed(path))
        chosen = config.getoption("keyword") or config.getoption("markexpr")
        self._listing.whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen
        self._problems: Sequence[str] = ()

    def pytest_deselected(self) -> None:
        self._listing.whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._listing.collected = {item.nodeid for item in session.items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Store the test ids of a worker. All workers collect the same."""
        self._listing.collected = frozenset(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note_skip(report)
        if report.failed:
            self._listing.whole = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self._listing.ran.add(report.nodeid)
        self._note_skip(report)

    def _note_skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            self._listing.note(report.nodeid, report.longrepr[2].removeprefix("Skipped: "))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            return
        if self._accept:
            self._path.write_text(json.dumps(self._listing.after, indent=2, ensure_ascii=False) + "\n")
            return
        self._problems = self._listing.problems()
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._problems:
            return
        terminalreporter.section(f"skips that are not as in {self._path.name} (pytest --accept)", red=True)
        for problem in self._problems:
            terminalreporter.line(problem)
