"""The list of the files that take longest, which begin first."""

from pathlib import Path

from tests.order import listed


def test_the_list_names_files_that_are_there() -> None:
    root = Path(__file__).parents[1]
    assert [file for file in listed() if not (root / file).is_file()] == []
