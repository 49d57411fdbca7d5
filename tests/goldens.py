"""Goldens: the output of each protocol for one log. `tests/golden/<case>/canonical.json` is the log."""

import json
from pathlib import Path
from typing import Any, Final

from babelgate.canonical import Record
from tests.golden_json import event_from_json

GOLDEN: Final = Path(__file__).parent / "golden"
CASES: Final = sorted(path.parent.name for path in GOLDEN.glob("*/canonical.json"))
assert len(CASES) >= 10, "the goldens are not there"


def log_of(case: str) -> list[Record]:
    """Return the log of a case."""
    rows: list[dict[str, Any]] = json.loads((GOLDEN / case / "canonical.json").read_text())
    return [Record(event=event_from_json(row.pop("event")), **row) for row in rows]


def compare(path: Path, text: str, accept: bool) -> None:
    """Assert that the golden equals the text, or write it if `pytest --accept` runs."""
    if accept:
        path.write_text(text)
    assert path.exists(), f"{path} is missing: run pytest --accept and review the file"
    assert path.read_text() == text
