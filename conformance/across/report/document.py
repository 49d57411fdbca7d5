"""The picture as JSON. The other forms draw their tables from it, and so does whoever keeps a record of a run."""

import json
from collections.abc import Mapping
from typing import Any

from babelgate.conformance.across.compare import show
from babelgate.conformance.across.model import Shot
from babelgate.conformance.across.verdict import Cell, Finding, Verdict
from babelgate.conformance.wire.exchange import Redactor


def document(verdict: Verdict) -> str:
    redactor = Redactor(verdict.record.secrets)
    made = {
        "judge": {"name": "babelgate", "version": verdict.record.version},
        "urls": [redactor.text(url) for url in verdict.record.urls],
        "same": verdict.is_same,
        "seconds": round(verdict.record.seconds, 3),
        **picture(verdict),
        "stale": list(verdict.stale),
        "findings": [_finding(each, redactor) for each in verdict.findings],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def picture(verdict: Verdict) -> dict[str, Any]:
    """What is the same from run to run: the three tables, and what was declared."""
    record, redactor = verdict.record, Redactor(verdict.record.secrets)
    return {
        "protocols": {each.name: each.driver.title for each in record.found},
        "scenarios": {
            each.scenario.name: {
                "about": each.scenario.about,
                "skipped": each.skipped,
                "marks": {name: verdict.mark(each, name) for name in record.protocols},
                "lacks": dict(each.lacks),
            }
            for each in record.played
        },
        "pairs": _square(verdict.pairs),
        "shared": _square(verdict.shared),
        "declared": {
            each.id: redactor.text(each.difference.declared) for each in verdict.findings if each.difference.declared
        },
        "known": {each.id: each.known for each in verdict.findings if each.known},
    }


def _square(cells: Mapping[tuple[str, str], Cell]) -> dict[str, dict[str, dict[str, int]]]:
    made: dict[str, dict[str, dict[str, int]]] = {}
    for (one, other), cell in cells.items():
        told = {"compared": cell.compared, "declared": cell.declared, "undeclared": cell.undeclared}
        made.setdefault(one, {})[other] = told
    return made


def _finding(finding: Finding, redactor: Redactor) -> dict[str, Any]:
    difference = finding.difference
    return {
        "id": finding.id,
        "scenario": finding.scenario,
        "moment": finding.moment,
        "aspect": difference.aspect,
        "same run": finding.is_shared,
        "declared": redactor.text(difference.declared),
        "known": finding.known,
        "sides": [
            _side(finding.here, difference.here, redactor),
            _side(finding.there, difference.there, redactor),
        ],
    }


def _side(shot: Shot, value: Any, redactor: Redactor) -> dict[str, Any]:
    exchanges = [redactor.exchange(each) for each in shot.exchanges]
    return {"protocol": shot.protocol, "value": redactor.text(show(value)), "exchanges": exchanges}
