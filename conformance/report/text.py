"""The report for people: each failure with what was asked, what came, what should have been so, and what to change."""

import json
from collections.abc import Iterator
from typing import Any, Final

from babelgate.conformance.report.model import Report, SetReport
from babelgate.conformance.verdict import Result, Verdict
from babelgate.conformance.wire.exchange import Redactor

MARKS: Final = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.WARNING: "!",
    Verdict.NOT_OBSERVED: "?",
    Verdict.NOT_APPLICABLE: "–",
    Verdict.HARNESS_ERROR: "⚠",
}
_LONG: Final = 600
"""Characters of a body that are shown."""


def lines(report: Report) -> Iterator[str]:
    """The whole report, without colours."""
    redactor = Redactor(report.secrets)
    for each in report.sets:
        yield from _set_lines(each, redactor)
    for name, why in report.refused.items():
        yield f"{name}: not spoken: {why}"
    if report.refused:
        yield ""
    yield summary(report)


def summary(report: Report) -> str:
    """The verdict, in one line."""
    if not report.sets:
        return f"{report.url}: nothing was judged"
    told = ", ".join(
        f"{each.set.title} {'conformant' if each.is_conformant else 'NOT conformant'} "
        f"({each.passes} of {each.applicable})"
        for each in report.sets
    )
    return f"{report.url}: {told}, in {report.seconds:.1f} s"


def _set_lines(report: SetReport, redactor: Redactor) -> Iterator[str]:
    yield f"{report.set.title} at {report.endpoint}"
    yield f"  {report.because}"
    if report.capabilities:
        yield f"  capabilities: {', '.join(sorted(report.capabilities))}"
    yield ""
    harness = [each for each in report.results if each.verdict is Verdict.HARNESS_ERROR]
    caused = [each for each in report.results if each.verdict is Verdict.FAIL and each.is_prerequisite]
    for result in report.results:
        if result.verdict in (Verdict.FAIL, Verdict.WARNING) and not result.is_prerequisite:
            yield from failure(result, report, redactor)
    yield from _brief("Not tested, because of a failure of something they need", caused, report)
    unseen = [each for each in report.results if each.verdict is Verdict.NOT_OBSERVED]
    yield from _brief("Not observed", unseen, report)
    yield from _brief("Errors of the judge, not of the agent: please report them", harness, report)
    for id in report.stale:
        yield f"  {id} is expected not to be kept, and is: take it out of the baseline"
    told = ", ".join(f"{number} {verdict}" for verdict, number in report.counts().items() if number)
    yield f"{told}; {report.messages} messages held against their schemas; {report.seconds:.1f} s"
    verdict = "conformant" if report.is_conformant else "NOT conformant"
    yield f"{report.set.title}: {verdict}: {report.passes} of {report.applicable} requirements of level must are kept"
    yield ""


def failure(result: Result, report: SetReport, redactor: Redactor) -> Iterator[str]:
    """One requirement that is not kept."""
    requirement = result.requirement
    expected = report.expected.get(requirement.id)
    yield f"{MARKS[result.verdict]} {requirement.id} ({requirement.level})" + (" (expected)" if expected else "")
    yield f"    {requirement.text}"
    yield f"    {requirement.section}: {requirement.source}"
    if expected:
        yield f"    known: {expected}"
    if result.exchange is not None:
        shown = redactor.exchange(result.exchange)
        request = shown["request"]
        yield f"    asked     {request['method']} {request['url']}"
        if request["body"]:
            yield f"              {_short(request['body'])}"
        if "response" in shown:
            answer = shown["response"]
            yield f"    answered  {answer['status']} {result.exchange.header('content-type') or ''}".rstrip()
            if answer["body"]:
                yield f"              {_short(answer['body'])}"
            for event in answer["events"][-5:]:
                yield f"              {_short(event['text'])}"
        if shown.get("error"):
            yield f"    then      {shown['error']}"
    yield f"    expected  {redactor.text(result.expected)}"
    if result.got is not None:
        yield f"    got       {_short(_json(redactor.value(result.got)))}"
    yield f"    change    {requirement.hint}"
    yield ""


def _brief(title: str, results: list[Result], report: SetReport) -> Iterator[str]:
    if not results:
        return
    yield f"{title}:"
    for result in results:
        tail = f" (give --trigger {result.trigger}='…')" if result.trigger else ""
        known = " (expected)" if result.requirement.id in report.expected else ""
        requirement = result.requirement
        name = f"{MARKS[result.verdict]} {requirement.id} ({requirement.level}){known}"
        yield f"  {name}: {result.expected}{tail}"
    yield ""


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
