"""How many violations of scripted servers were caught, in the summary of a run: each test tells of its own, and the
tests of one set run in several processes. See tests/conformance/mutation.py."""

from collections import Counter
from typing import Final, cast

import pytest

PROPERTY: Final = "violations"
"""Of a test: [set, caught, of how many]."""


class ViolationScore:
    """The plugin."""

    def __init__(self) -> None:
        self._caught: Counter[str] = Counter()
        self._of: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name == PROPERTY:
                    chosen, caught, of = cast("tuple[str, int, int]", value)
                    self._caught[chosen] += caught
                    self._of[chosen] += of

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._of:
            terminalreporter.section("violations caught")
        for chosen, of in sorted(self._of.items()):
            caught = self._caught[chosen]
            terminalreporter.write_line(f"{chosen}: {caught} of {of} ({caught / of:.0%})")
