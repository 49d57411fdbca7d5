"""Report of a comparison as JSON. The Markdown and HTML reports draw their tables from a part of it, `picture`."""

import json
from collections.abc import Mapping
from typing import Any

from babelgate.conformance.across.compare import show
from babelgate.conformance.across.model import Shot
from babelgate.conformance.across.verdict import AcrossVerdict, Cell, Finding
from babelgate.conformance.wire.exchange import Redactor


def document(verdict: AcrossVerdict) -> str:
    redactor = Redactor(verdict.record.secrets)
    report = {
        "judge": {"name": "babelgate", "version": verdict.record.version},
        "urls": [redactor.text(url) for url in verdict.record.urls],
        "same": verdict.is_same,
        "seconds": round(verdict.record.seconds, 3),
        **picture(verdict),
        "stale": list(verdict.stale),
        "findings": [_finding(each, redactor) for each in verdict.findings],
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def picture(verdict: AcrossVerdict) -> dict[str, Any]:
    """Return the part of the report that does not change from run to run: the table of scenarios, the two tables of
    pairs of protocols, the declared losses and the known differences."""
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
        "known": {each.id: each.reason for each in verdict.findings if each.reason},
    }


def _square(cells: Mapping[tuple[str, str], Cell]) -> dict[str, dict[str, dict[str, int]]]:
    rows: dict[str, dict[str, dict[str, int]]] = {}
    for (one, other), cell in cells.items():
        counts = {"compared": cell.compared, "declared": cell.declared, "undeclared": cell.undeclared}
        rows.setdefault(one, {})[other] = counts
    return rows


def _finding(finding: Finding, redactor: Redactor) -> dict[str, Any]:
    difference = finding.difference
    return {
        "id": finding.id,
        "scenario": finding.scenario,
        "moment": finding.moment,
        "aspect": difference.aspect,
        "same run": finding.is_shared,
        "declared": redactor.text(difference.declared),
        "known": finding.reason,
        "sides": [
            _side(finding.here, difference.here, redactor),
            _side(finding.there, difference.there, redactor),
        ],
    }


def _side(shot: Shot, value: Any, redactor: Redactor) -> dict[str, Any]:
    exchanges = [redactor.exchange(each) for each in shot.exchanges]
    return {"protocol": shot.protocol, "value": redactor.text(show(value)), "exchanges": exchanges}
