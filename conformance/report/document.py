"""Report of a check as JSON, with the schema `report.schema.json`. It contains everything that the other formats
show."""

import json
from typing import Any

from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.verdict import Result
from babelgate.conformance.wire.exchange import Redactor


def document(report: CheckReport) -> str:
    return json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n"


def as_json(report: CheckReport) -> dict[str, Any]:
    redactor = Redactor(report.secrets)
    return {
        "judge": {"name": "babelgate", "version": report.version},
        "url": redactor.text(report.url),
        "conformant": report.is_conformant,
        "outcome": str(report.outcome),
        "seconds": round(report.seconds, 3),
        "sets": [_set(each, redactor) for each in report.sets],
        "refused": {name: redactor.text(why) for name, why in report.refused.items()},
    }


def _set(report: SetReport, redactor: Redactor) -> dict[str, Any]:
    return {
        "set": report.set.name,
        "protocol": report.set.protocol,
        "version": report.set.version,
        "title": report.set.title,
        "endpoint": redactor.text(report.endpoint),
        "because": redactor.text(report.evidence),
        "capabilities": sorted(report.capabilities),
        "conformant": report.is_conformant,
        "outcome": str(report.outcome),
        "passed": report.passes,
        "applicable": report.applicable,
        "broken": [each.requirement.id for each in report.broken()],
        "consequences": [each.requirement.id for each in report.consequences()],
        "withheld": list(report.withheld),
        "counts": {str(verdict): number for verdict, number in report.counts().items()},
        "messages": report.messages,
        "seconds": round(report.seconds, 3),
        "stale": list(report.stale),
        "results": [_result(each, report, redactor) for each in report.results],
    }


def _result(result: Result, report: SetReport, redactor: Redactor) -> dict[str, Any]:
    requirement = result.requirement
    entry: dict[str, Any] = {
        "id": requirement.id,
        "level": requirement.level,
        "section": requirement.section,
        "source": requirement.source,
        "text": requirement.text,
        "verdict": str(result.verdict),
        "seconds": round(result.seconds, 3),
    }
    if requirement.capability:
        entry["capability"] = requirement.capability
    if result.expected:
        entry["expected"] = redactor.text(result.expected)
    if result.actual is not None:
        entry["got"] = redactor.value(result.actual)
    if not result.is_kept or str(result.verdict) == "warning":
        entry["hint"] = requirement.hint
    if result.trigger:
        entry["trigger"] = result.trigger
    if result.is_prerequisite:
        entry["prerequisite"] = True
    if requirement.id in report.expected:
        entry["known"] = report.expected[requirement.id]
    entry["exchanges"] = [redactor.exchange(each) for each in result.exchanges]
    return entry
