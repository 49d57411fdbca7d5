"""Order in which xdist assigns test files to processes: the slowest first, so that all processes end at about the same
time.

`tests/durations.json` has the durations of slow files in seconds; the others are ordered by their number of tests.
`pytest -n 2 --dist loadfile --time` rewrites the list. Only the order depends on it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

DURATIONS: Final = Path(__file__).parent / "durations.json"
_LISTED: Final = 4
"""Minimum duration of a listed file, in seconds."""
_PER_TEST: Final = 0.02
"""Estimated duration of one test in other files, in seconds."""


def listed(path: Path = DURATIONS) -> dict[str, float]:
    return json.loads(path.read_text())


class LongestFirst(LoadScopeScheduling):
    """Scheduler like xdist's `loadfile`, but it starts with the files that take longest."""

    def __init__(self, config: pytest.Config, log: Any, durations: Mapping[str, float]) -> None:
        super().__init__(config, log)
        self._durations = durations

    def _split_scope(self, nodeid: str) -> str:
        return _file_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._seconds), last=False)
        super()._assign_work_unit(node)

    def _seconds(self, file: str) -> float:
        return self._durations.get(file, _PER_TEST * len(self.workqueue[file]))


class Durations:
    """Plugin that writes the list."""

    def __init__(self, path: Path = DURATIONS) -> None:
        self._path = path
        self._seconds_by_file: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds_by_file[_file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        rounded = {
            file: round(duration) for file, duration in sorted(self._seconds_by_file.items()) if duration >= _LISTED
        }
        self._path.write_text(json.dumps(rounded, indent=2, ensure_ascii=False) + "\n")


def _file_of(test: str) -> str:
    return test.partition("::")[0]
