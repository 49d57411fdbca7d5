"""The list of the slowest test files, which start first."""

from pathlib import Path

from tests.order import listed


def test_the_listed_files_exist() -> None:
    root = Path(__file__).parents[1]
    assert [file for file in listed() if not (root / file).is_file()] == []
