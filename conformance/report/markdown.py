"""Report of a check as Markdown for a pull request: the failures first, everything else collapsed."""

from collections.abc import Iterator
from typing import Final

from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.report.text import MARKS, summary
from babelgate.conformance.verdict import Outcome, Verdict
from babelgate.conformance.wire.exchange import Redactor

_OUTCOMES: Final = {Outcome.CONFORMANT: "✓", Outcome.NO_VIOLATION: "?", Outcome.NOT_CONFORMANT: "✗"}


def markdown(report: CheckReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CheckReport) -> Iterator[str]:
    redactor = Redactor(report.secrets)
    yield f"## {_OUTCOMES[report.outcome]} {_plain(redactor.text(summary(report)))}"
    for each in report.sets:
        yield ""
        yield from _set(each, redactor)


def _set(report: SetReport, redactor: Redactor) -> Iterator[str]:
    yield f"### {report.set.title}: {report.outcome}: {report.tally}"
    yield ""
    against = report.broken()
    if against:
        yield "| requirement | problem | what to change |"
        yield "|---|---|---|"
        for result in against:
            requirement = result.requirement
            why = f"**{result.verdict}**: {_cell(requirement.text)} Expected: {_cell(redactor.text(result.expected))}"
            yield f"| [{requirement.id}]({requirement.source}) | {why} | {_cell(requirement.hint)} |"
        yield ""
    for id in report.stale:
        yield f"- `{id}` is expected to be broken but is met; remove it from the baseline"
    if report.stale:
        yield ""
    yield f"<details><summary>All {len(report.results)} requirements</summary>"
    yield ""
    yield "| | requirement | level | |"
    yield "|---|---|---|---|"
    for result in report.results:
        requirement = result.requirement
        note = "" if result.verdict is Verdict.PASS else _cell(redactor.text(f"{result.verdict}: {result.expected}"))
        if requirement.id in report.expected:
            note = f"expected: {_cell(report.expected[requirement.id])}"
        yield f"| {MARKS[result.verdict]} | [{requirement.name}]({requirement.source}) | {requirement.level} | {note} |"
    yield ""
    yield "</details>"


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")
