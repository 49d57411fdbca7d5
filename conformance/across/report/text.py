"""Report of a comparison for a terminal: the tables, then each difference with the messages of both protocols."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from babelgate.conformance.across.compare import show
from babelgate.conformance.across.model import Shot
from babelgate.conformance.across.verdict import AcrossVerdict, Cell, Finding
from babelgate.conformance.report.text import withheld_line
from babelgate.conformance.wire.exchange import Redactor

MARKS: Final = "✓ same as the others, ◐ with a declared loss, ✗ different, – not in the protocol, ? not played."
_MAX_TEXT: Final = 400
"""Maximum number of characters shown of a message's body. Chosen."""
_MAX_EVENTS: Final = 4
"""Maximum number of events shown of a stream: the last ones. Chosen."""
_MAX_DECLARED: Final = 12
"""Maximum number of declared losses that are listed. Chosen."""


def lines(verdict: AcrossVerdict) -> Iterator[str]:
    record, redactor = verdict.record, Redactor(verdict.record.secrets)
    for found in record.found:
        yield f"{found.driver.title} at {redactor.text(found.driver.place.own_url)}"
    for origin in record.withheld:
        yield withheld_line(origin)
    yield ""
    yield "Each scenario, played through each protocol:"
    yield ""
    titles = [record.title(name) for name in record.protocols]
    rows = [[each.scenario.name, *(verdict.mark(each, name) for name in record.protocols)] for each in record.played]
    yield from table(["", *titles], rows)
    yield f"  {MARKS}"
    for each in record.played:
        if each.skipped:
            yield f"  ? {each.scenario.name}: {each.skipped}"
    lacks = {each.scenario.name: each.lacks for each in record.played if not each.skipped}
    yield from (f"  – {note}" for note in lacking(lacks, {name: record.title(name) for name in record.protocols}))
    yield ""
    yield "Each pair of protocols, by the number of differences:"
    yield ""
    yield from _square(verdict, verdict.pairs)
    if verdict.shared:
        yield "The same run, created through the protocol of the row and read through that of the column:"
        yield ""
        yield from _square(verdict, verdict.shared)
    else:
        yield "The server does not report the ids of a run in its other protocols; each was compared by its own runs."
        yield ""
    yield from _findings(verdict, redactor)
    yield summary(verdict)


def summary(verdict: AcrossVerdict) -> str:
    record = verdict.record
    titles = ", ".join(record.title(name) for name in record.protocols)
    against = len(verdict.against) + len(verdict.stale)
    counts = {
        "undeclared": against,
        "declared": sum(1 for each in verdict.findings if each.difference.declared),
        "known": sum(1 for each in verdict.findings if each.reason),
    }
    found = ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "no"
    outcome = "the same" if verdict.is_same else "NOT the same" if against else "not played"
    return f"{titles}: {outcome}; {found} differences in {verdict.played} scenarios, in {record.seconds:.1f} s"


def lacking(scenarios: Mapping[str, Mapping[str, str]], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the scenarios that protocols cannot express, as lines such as `ACP, files: reason`. `scenarios` has the
    reasons by scenario and protocol, and `titles` the protocols' titles by name."""
    found: dict[tuple[str, str], list[str]] = {}
    for scenario, lacks in scenarios.items():
        for protocol, why in lacks.items():
            found.setdefault((protocol, why), []).append(scenario)
    for (protocol, why), names in sorted(found.items(), key=lambda each: [*titles].index(each[0][0])):
        yield f"{titles[protocol]}, {', '.join(names)}: {why}"


def cell_text(cell: Cell | None) -> str:
    if cell is None or not cell.compared + cell.undeclared:
        return "–"
    counts = ([f"✗ {cell.undeclared}"] if cell.undeclared else []) + ([f"◐ {cell.declared}"] if cell.declared else [])
    return " ".join(counts) or "✓"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _square(verdict: AcrossVerdict, cells: Mapping[tuple[str, str], Cell]) -> Iterator[str]:
    record = verdict.record
    names = record.protocols
    rows = [
        [record.title(one), *(cell_text(cells.get((one, other))) for other in names)]
        for one in names
        if any((one, other) in cells for other in names)
    ]
    yield from table(["", *(record.title(name) for name in names)], rows)
    yield ""


def _findings(verdict: AcrossVerdict, redactor: Redactor) -> Iterator[str]:
    own_differences = {(_place(each), each.there.protocol) for each in verdict.against if not each.is_shared}
    repeated: list[str] = []
    for each in verdict.against:
        if each.is_shared and own_differences & {
            (_place(each), each.here.protocol),
            (_place(each), each.there.protocol),
        }:
            repeated.append(each.id)
        else:
            yield from _finding(each, verdict, redactor)
    if repeated:
        yield "The same differences in runs that two protocols share:"
        yield from (f"  ✗ {id}" for id in dict.fromkeys(repeated))
        yield ""
    for id in verdict.stale:
        yield f"✗ {id} is expected to differ but does not; remove it from the baseline"
    for each in verdict.findings:
        if each.reason:
            yield f"◐ {each.id} (known): {each.reason}"
    losses = dict.fromkeys(
        f"◐ {each.scenario}, {each.difference.aspect}: {redactor.text(each.difference.declared)}"
        for each in verdict.findings
        if each.difference.declared
    )
    if losses:
        yield "Declared losses:"
        yield from (f"  {each}" for each in [*losses][:_MAX_DECLARED])
        if len(losses) > _MAX_DECLARED:
            yield f"  … and {len(losses) - _MAX_DECLARED} more"
        yield ""


def _place(finding: Finding) -> tuple[str, str, str]:
    return finding.scenario, finding.moment, finding.difference.aspect


def _finding(finding: Finding, verdict: AcrossVerdict, redactor: Redactor) -> Iterator[str]:
    yield f"✗ {finding.id}"
    title = verdict.record.title
    place = f", in the run created through {title(finding.here.protocol)}" if finding.is_shared else ""
    yield f"    {finding.scenario}, {finding.moment}{place}: {finding.difference.aspect} differs"
    for shot, value in ((finding.here, finding.difference.here), (finding.there, finding.difference.there)):
        yield f"    {title(shot.protocol)}: {redactor.text(show(value))}"
        for line in wire_lines(shot, redactor):
            yield f"        {line}"
    yield ""


def wire_lines(shot: Shot, redactor: Redactor) -> Iterator[str]:
    """Yield the lines that show the exchange with most of the result: the request, the response, and the last events.
    Secrets are removed by `redactor`."""
    telling = shot.telling or next(reversed(shot.exchanges), None)
    if telling is None:
        return
    entry = redactor.exchange(telling)
    request = entry["request"]
    yield f"asked     {request['method']} {request['url']}"
    if request["body"]:
        yield f"          {_short(request['body'])}"
    answer = entry.get("response")
    if answer:
        yield f"answered  {answer['status']} {_short(answer['body'])}".rstrip()
        for event in answer["events"][-_MAX_EVENTS:]:
            yield f"          {_short(event['text'])}"
    if entry.get("error"):
        yield f"then      {entry['error']}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
