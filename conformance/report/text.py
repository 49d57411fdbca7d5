"""Report of a check as text for a terminal: each failure with its request, its response, the expected behaviour, and
what to change."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.verdict import NO_TRIGGER, Outcome, Result, Verdict
from babelgate.conformance.wire.exchange import Redactor
from babelgate.conformance.wire.http import TIMED_OUT

MARKS: Final = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.WARNING: "!",
    Verdict.NOT_OBSERVED: "?",
    Verdict.NOT_APPLICABLE: "–",
    Verdict.HARNESS_ERROR: "⚠",
}
_MAX_TEXT: Final = 600
"""Maximum number of characters shown of a body or event. Chosen."""


_BEHAVIOUR_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "plain": ("a plain answer", "what does your agent answer?"),
    "stream": ("answers in pieces", "what makes your agent answer in pieces?"),
    "question": ("questions", "what makes your agent ask?"),
    "questions": ("several questions", "what makes your agent ask two things at once?"),
    "approval": ("approvals", "what makes your agent ask for an approval?"),
    "auth": ("logins", "what makes your agent ask its caller to log in?"),
    "fail": ("failures", "what makes your agent fail?"),
    "reject": ("rejections", "what does your agent decline to do?"),
    "long": ("long work", "what keeps your agent busy for ten seconds?"),
    "silence": ("silence", "what makes your agent pause in the middle of an answer?"),
    "files": ("files", "what makes your agent return a file?"),
    "data": ("structured data", "what makes your agent answer with data?"),
    "steps": ("progress", "what makes your agent report its progress?"),
    "tools": ("tools", "what makes your agent use one of its tools?"),
    "calls": ("tools of the caller", "what makes your agent call a tool of its caller?"),
    "message": ("messages without a task", "what makes your agent answer without a task?"),
    "links": ("links to resources", "what makes your agent return a link to a resource?"),
    "change": ("changed resources", "what makes your agent change a resource?"),
    "resource": ("resources", "what is the URI of a resource?"),
}
"""Words for each behaviour: the subject of its requirements, and the question that asks the user for a trigger."""
_EXAMPLES: Final = {"question": "Book a flight", "long": "Count to a million", "files": "Draw a cat"}


def lines(report: CheckReport, *, is_verbose: bool = False) -> Iterator[str]:
    """Yield the lines of the report, without colours. `is_verbose` adds each requirement that was not shown or not
    tested, and the protocols that the agent does not speak."""
    redactor = Redactor(report.secrets)
    for each in report.sets:
        yield from _set_lines(each, redactor, is_verbose=is_verbose)
    if is_verbose or not report.sets:
        for name, why in report.refused.items():
            yield f"{name}: not spoken: {why}"
        if report.refused:
            yield ""
    yield summary(report)


def summary(report: CheckReport) -> str:
    """Return the outcomes of all judged requirement sets in one line."""
    if not report.sets:
        return f"{report.url}: nothing was judged"
    outcomes = ", ".join(
        f"{each.set.title} {outcome_words(each.outcome)} ({each.passes} of {each.applicable})" for each in report.sets
    )
    return f"{report.url}: {outcomes}, in {report.seconds:.1f} s"


def outcome_words(outcome: Outcome) -> str:
    """Return an outcome as text. A failure has `NOT` in capitals, so that it is not confused with `conformant`."""
    return "NOT conformant" if outcome is Outcome.NOT_CONFORMANT else str(outcome)


def _set_lines(report: SetReport, redactor: Redactor, *, is_verbose: bool) -> Iterator[str]:
    yield f"{report.set.title} at {report.endpoint}"
    yield f"  {report.evidence}"
    if report.capabilities:
        yield f"  capabilities: {', '.join(sorted(report.capabilities))}"
    for origin in report.withheld:
        yield withheld_line(origin)
    yield ""
    harness = [each for each in report.results if each.verdict is Verdict.HARNESS_ERROR]
    caused = report.consequences()
    untested = {each.requirement.id for each in caused}
    for result in report.results:
        if result.verdict in (Verdict.FAIL, Verdict.WARNING) and result.requirement.id not in untested:
            yield from failure(result, report, redactor)
    if late := _count_late(report):
        requests = "1 request" if late == 1 else f"{late} requests"
        yield f"{requests} got no answer in time. If your agent needs longer, pass --timeout 60."
        yield ""
    if caused and not is_verbose:
        yield f"Not tested, because of a failure of something they need: {len(caused)} (--verbose lists them)"
        yield ""
    yield from _brief("Not tested, because of a failure of something they need", caused if is_verbose else [], report)
    unseen = [each for each in report.results if each.verdict is Verdict.NOT_OBSERVED]
    yield from _not_shown(unseen, report, is_verbose=is_verbose)
    yield from _brief("Errors of the check, not of the agent: please report them", harness, report)
    for id in report.stale:
        yield f"  {id} is expected to be broken but is met; remove it from the baseline"
    counts = ", ".join(f"{number} {verdict}" for verdict, number in report.counts().items() if number)
    yield f"{counts}; {report.messages} messages validated against their schemas; {report.seconds:.1f} s"
    yield f"{report.set.title}: {outcome_words(report.outcome)}: {report.tally}"
    yield ""


def withheld_line(origin: str) -> str:
    """Return the line of the report that says that the user's headers were not sent to `origin`, because only the
    agent's card names it."""
    return f"  your headers were not sent to {origin}, which the agent names: check that URL to judge it with them"


def _count_late(report: SetReport) -> int:
    """Return the number of requests that timed out in probes of failed requirements."""
    failed = [result for result in report.results if result.verdict in (Verdict.FAIL, Verdict.WARNING)]
    late = {each.number for result in failed for each in result.exchanges if (each.error or "").startswith(TIMED_OUT)}
    return len(late)


def _not_shown(results: list[Result], report: SetReport, *, is_verbose: bool) -> Iterator[str]:
    """Yield the section on requirements that the agent did not show. Each behaviour has one line, with the option that
    triggers it and the option that excludes it. Requirements that need no behaviour have one line for each reason.
    `is_verbose` lists all these requirements."""
    if not results:
        return
    yield "Not shown:"
    by_behaviour: dict[str, list[Result]] = {}
    for result in results:
        by_behaviour.setdefault(result.trigger, []).append(result)
    for behaviour, group in sorted(by_behaviour.items(), key=lambda each: not each[0]):
        if not behaviour:
            reasons = Counter(result.expected for result in group)
            yield from (f"  ? {number}: {why}" for why, number in reasons.items())
        else:
            about, ask = _BEHAVIOUR_WORDS[behaviour]
            text = _EXAMPLES.get(behaviour, "…")
            option = f"--ask '{text}'" if behaviour == "question" else f"--trigger {behaviour}='{text}'"
            why = {result.expected for result in group}
            tried = "" if why == {NO_TRIGGER} else f" ({'; '.join(sorted(why - {NO_TRIGGER}))})"
            yield f"  ? {len(group)} about {about}: {ask} {option}, or --never {behaviour}{tried}"
        if is_verbose:
            for result in group:
                suffix = " (expected)" if result.requirement.id in report.expected else ""
                yield f"      {result.requirement.id} ({result.requirement.level}){suffix}: {result.expected}"
    yield ""


def failure(result: Result, report: SetReport, redactor: Redactor) -> Iterator[str]:
    """Yield the lines of the report on one broken requirement: its text, the exchange as evidence, the expected and the
    observed behaviour, and what to change."""
    requirement = result.requirement
    expected = report.expected.get(requirement.id)
    yield f"{MARKS[result.verdict]} {requirement.id} ({requirement.level})" + (" (expected)" if expected else "")
    yield f"    {requirement.text}"
    yield f"    {requirement.section}: {requirement.source}"
    if expected:
        yield f"    known: {expected}"
    if result.exchange is not None:
        exchange = redactor.exchange(result.exchange)
        request = exchange["request"]
        yield f"    asked     {request['method']} {request['url']}"
        if request["body"]:
            yield f"              {_short(request['body'])}"
        if "response" in exchange:
            answer = exchange["response"]
            status = answer.get("grpcStatus", answer["status"])
            yield f"    answered  {status} {result.exchange.header('content-type') or ''}".rstrip()
            if answer["body"]:
                yield f"              {_short(answer['body'])}"
            for event in answer["events"][-5:]:
                yield f"              {_short(event['text'])}"
        if exchange.get("error"):
            yield f"    then      {exchange['error']}"
    yield f"    expected  {redactor.text(result.expected)}"
    if result.actual is not None:
        yield f"    got       {_short(_json(redactor.value(result.actual)))}"
    yield f"    change    {requirement.hint}"
    yield ""


def _brief(title: str, results: Sequence[Result], report: SetReport) -> Iterator[str]:
    if not results:
        return
    yield f"{title}:"
    for result in results:
        tail = f" (pass --trigger {result.trigger}='…')" if result.trigger else ""
        suffix = " (expected)" if result.requirement.id in report.expected else ""
        requirement = result.requirement
        name = f"{MARKS[result.verdict]} {requirement.id} ({requirement.level}){suffix}"
        yield f"  {name}: {result.expected}{tail}"
    yield ""


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
