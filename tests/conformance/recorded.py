"""What real runs have found, as the pages in docs/conformance show it: a test that judges somebody compares with it."""

import fcntl
import json
import os
from typing import Any

from babelgate.conformance.report.model import CheckReport
from docs.traceability import RUNS, recorded


def assert_recorded(who: str, report: CheckReport, accept: bool) -> None:
    """The verdicts are those that are written down; `pytest --accept` writes them, and `make docs` the pages."""
    found = {
        each.set.name: {result.requirement.name: str(result.verdict) for result in each.results} for each in report.sets
    }
    if accept:
        folder = os.open(RUNS.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # another process of the same test run may write its own
            _write(who, found)
        finally:
            os.close(folder)
    known = recorded()
    for name, verdicts in found.items():
        before = known.get(name, {}).get(who, {})
        changed = {each: (before.get(each), now) for each, now in verdicts.items() if before.get(each) != now}
        assert not changed, f"{who} by {name}, recorded and now: {changed}; pytest --accept, then make docs"
        assert not before.keys() - verdicts.keys()


def _write(who: str, found: dict[str, dict[str, str]]) -> None:
    runs: dict[str, Any] = {name: dict(each) for name, each in recorded().items()}
    for name, verdicts in found.items():
        runs[name] = {**runs.get(name, {}), who: verdicts}
    RUNS.write_text(json.dumps(runs, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
