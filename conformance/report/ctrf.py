"""Report of a check in the Common Test Report Format: https://ctrf.io/docs/specification/overview"""

import json
from typing import Any, Final

from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.verdict import Result, Verdict
from babelgate.conformance.wire.exchange import Redactor

_STATUS: Final = {
    Verdict.PASS: "passed",
    Verdict.FAIL: "failed",
    Verdict.WARNING: "other",
    Verdict.NOT_OBSERVED: "skipped",
    Verdict.NOT_APPLICABLE: "skipped",
    Verdict.HARNESS_ERROR: "other",
}


def ctrf(report: CheckReport) -> str:
    redactor = Redactor(report.secrets)
    tests: list[dict[str, Any]] = []
    for each in report.sets:
        caused = {result.requirement.id for result in each.consequences()}
        tests += [_test(result, each, redactor, is_caused=result.requirement.id in caused) for result in each.results]
    statuses = [test["status"] for test in tests]
    names = ("passed", "failed", "pending", "skipped", "other")
    summary = {"tests": len(tests), **{name: statuses.count(name) for name in names}, "start": 0}
    report_document = {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {
            "tool": {"name": "babelgate check", "version": report.version},
            "summary": {**summary, "stop": round(report.seconds * 1000)},
            "tests": tests,
        },
    }
    return json.dumps(report_document, indent=2, ensure_ascii=False) + "\n"


def _test(result: Result, report: SetReport, redactor: Redactor, *, is_caused: bool) -> dict[str, Any]:
    requirement = result.requirement
    status = _STATUS[result.verdict]
    if status == "failed" and (result.is_kept or requirement.id in report.expected):
        status = "other"
    if is_caused:
        status = "skipped"
    entry: dict[str, Any] = {
        "name": requirement.id,
        "status": status,
        "duration": round(result.seconds * 1000),
        "suite": [report.set.name, requirement.group],
        "tags": [requirement.level],
        "rawStatus": str(result.verdict),
    }
    if result.expected:
        entry["message"] = redactor.text(result.expected)
        entry["extra"] = {"text": requirement.text, "source": requirement.source, "hint": requirement.hint}
    return entry
