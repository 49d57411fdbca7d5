"""The files that take longest begin first, and a run can write down which these are."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.order import Durations, LongestFirst, listed


class Process:
    """As xdist sees one: it is told which tests to run, by their places in what it has collected."""

    def __init__(self) -> None:
        self.gateway: Any = SimpleNamespace(spec="popen", id="one")
        self.shutting_down = False
        self.told: list[int] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


TESTS = ["a.py::test_one", "b.py::test_one", "b.py::test_two", "c.py::test_one", "d.py::test_one", "d.py::test_two"]


def test_the_longest_file_begins() -> None:
    processes: Any = {"tx": ["popen"]}
    config: Any = SimpleNamespace(getvalue=processes.get, option=SimpleNamespace(loadscopereorder=True))
    process: Any = Process()
    scheduler = LongestFirst(config, None, {"a.py": 5, "b.py": 9})
    scheduler.add_node(process)
    scheduler.add_node_collection(process, TESTS)
    scheduler.schedule()
    while not process.shutting_down:
        for place in list(process.told):
            scheduler.mark_test_complete(process, place)
    # What is not listed goes by how many tests it has.
    assert process.told == [1, 2, 0, 4, 5, 3]


def test_what_takes_seconds_is_listed(tmp_path: Path) -> None:
    durations = Durations(tmp_path / "durations.json")
    for test, seconds in (("b.py::test_one", 3.2), ("b.py::test_two", 2.4), ("a.py::test_quick", 1.0)):
        durations.pytest_runtest_logreport(
            pytest.TestReport(test, ("", 0, ""), {}, "passed", None, "call", (), seconds)
        )
    durations.pytest_sessionfinish()
    assert listed(tmp_path / "durations.json") == {"b.py": 6}


def test_the_list_names_files_that_are_there() -> None:
    root = Path(__file__).parents[1]
    assert [file for file in listed() if not (root / file).is_file()] == []
