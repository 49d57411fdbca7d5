"""The files that take longest begin first, and a run can write down which these are."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.order import Durations, LongestFirst, listed, unit_of


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


TESTS = [
    "a.py::test_quick",
    "b.py::test_violations_of_one_kind[x]",
    "b.py::test_violations_of_one_kind[y]",
    "b.py::test_other",
    "c.py::test_one",
    "c.py::test_two",
]


def test_the_tests_of_a_file_stay_together_and_violations_go_by_group() -> None:
    units = ["a.py", TESTS[1], TESTS[2], "b.py", "c.py", "c.py"]
    assert [unit_of(test) for test in TESTS] == units


def test_the_longest_file_begins() -> None:
    processes: Any = {"tx": ["popen"]}
    config: Any = SimpleNamespace(getvalue=processes.get, option=SimpleNamespace(loadscopereorder=True))
    process: Any = Process()
    scheduler = LongestFirst(config, None, {"a.py": 9, TESTS[2]: 7, "b.py": 5})
    scheduler.add_node(process)
    scheduler.add_node_collection(process, TESTS)
    scheduler.schedule()
    while not process.shutting_down:
        for place in list(process.told):
            scheduler.mark_test_complete(process, place)
    # What is not listed goes by its tests.
    assert [TESTS[place] for place in process.told] == [TESTS[0], TESTS[2], TESTS[3], TESTS[4], TESTS[5], TESTS[1]]


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
    assert [unit for unit in listed() if not (root / unit.partition("::")[0]).is_file()] == []
