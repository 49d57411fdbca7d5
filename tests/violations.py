"""Score of the caught violations of scripted servers, in the summary of a run. See tests/conformance/mutation.py.

Each test reports its own violations, and the tests of one set run in several processes.
"""

from collections import Counter
from typing import Final, cast

import pytest

PROPERTY: Final = "violations"
"""Property of a test: the set, the number of caught violations, and their total."""


class ViolationScore:
    """Plugin that prints the score."""

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
