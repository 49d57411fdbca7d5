"""Recorded verdicts of real agents, which the pages in docs/conformance show."""

import fcntl
import json
import os
from typing import Any

from babelgate.conformance.report.model import CheckReport
from docs.traceability import RUNS, recorded


def assert_recorded(agent: str, report: CheckReport, accept: bool) -> None:
    """Assert that the verdicts are the recorded ones. `pytest --accept` records them, `make docs` writes the pages."""
    current = {
        each.set.name: {result.requirement.name: str(result.verdict) for result in each.results} for each in report.sets
    }
    if accept:
        folder = os.open(RUNS.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # another process of the same test run may record at the same time
            _write(agent, current)
        finally:
            os.close(folder)
    runs = recorded()
    for name, verdicts in current.items():
        before = runs.get(name, {}).get(agent, {})
        changed = {each: (before.get(each), now) for each, now in verdicts.items() if before.get(each) != now}
        assert not changed, f"{agent} by {name}, recorded and now: {changed}; pytest --accept, then make docs"
        assert not before.keys() - verdicts.keys()


def _write(agent: str, current: dict[str, dict[str, str]]) -> None:
    runs: dict[str, Any] = {name: dict(each) for name, each in recorded().items()}
    for name, verdicts in current.items():
        runs[name] = {**runs.get(name, {}), agent: verdicts}
    RUNS.write_text(json.dumps(runs, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
