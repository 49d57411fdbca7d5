"""In which order files of tests are given to processes: those that take longest begin first, so that all processes
end at about the same time.

`tests/durations.json` has the seconds of files that take more than a few; any other takes its place by how many tests
it has. `pytest -n 2 --dist loadfile --time` writes the list anew. Only the order depends on it.
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
"""Seconds from which on a file is listed."""
_PER_TEST: Final = 0.02
"""Seconds, where nothing is known but the number of tests."""


def listed(path: Path = DURATIONS) -> dict[str, float]:
    return json.loads(path.read_text())


class LongestFirst(LoadScopeScheduling):
    """xdist's `loadfile`, which begins with the files that have most tests."""

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
    """The plugin that writes the list."""

    def __init__(self, path: Path = DURATIONS) -> None:
        self._path = path
        self._taken: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken[_file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        rounded = {file: round(taken) for file, taken in sorted(self._taken.items()) if taken >= _LISTED}
        self._path.write_text(json.dumps(rounded, indent=2, ensure_ascii=False) + "\n")


def _file_of(test: str) -> str:
    return test.partition("::")[0]
