"""Report of a comparison as Markdown, for example as a comment on a pull request."""

from collections.abc import Iterator, Mapping
from typing import Any

from babelgate.conformance.across.compare import show
from babelgate.conformance.across.report.document import picture
from babelgate.conformance.across.report.text import MARKS, cell_text, lacking, summary, wire_lines
from babelgate.conformance.across.verdict import AcrossVerdict, Cell, Finding
from babelgate.conformance.wire.exchange import Redactor


def markdown(verdict: AcrossVerdict) -> str:
    return "\n".join(_lines(verdict)) + "\n"


def _lines(verdict: AcrossVerdict) -> Iterator[str]:
    redactor = Redactor(verdict.record.secrets)
    yield f"## {'✓' if verdict.is_same else '✗'} {summary(verdict)}"
    yield ""
    yield from tables(picture(verdict))
    for finding in verdict.findings:
        if finding.is_against:
            yield from _finding(finding, verdict, redactor)
    for id in verdict.stale:
        yield f"- `{id}` is expected to differ but does not; remove it from the baseline"
    excused = [each for each in verdict.findings if not each.is_against]
    if excused:
        yield f"<details><summary>{len(excused)} declared or known</summary>"
        yield ""
        for each in excused:
            yield f"- `{each.id}` ({each.moment}): {_cell(redactor.text(each.reason or each.difference.declared))}"
        yield ""
        yield "</details>"


def tables(picture: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of three Markdown tables: the scenarios, the pairs of protocols, and the runs that two protocols
    share. `picture` is the result of `document.picture`."""
    protocols = picture["protocols"]
    yield f"| scenario | {' | '.join(protocols.values())} |"
    yield f"|---|{'|'.join(':-:' for _ in protocols)}|"
    for name, each in picture["scenarios"].items():
        yield f"| **{name}**: {each['about']} | {' | '.join(each['marks'].values())} |"
    yield ""
    yield MARKS
    yield ""
    if notes := [*lacking({name: each["lacks"] for name, each in picture["scenarios"].items()}, protocols)]:
        yield from (f"- – {each}" for each in notes)
        yield ""
    yield "Each pair of protocols, each with its own runs:"
    yield ""
    yield from _square(protocols, picture["pairs"])
    if picture["shared"]:
        yield "The same run, created through the protocol of the row and read through that of the column:"
        yield ""
        yield from _square(protocols, picture["shared"])


def _square(protocols: Mapping[str, str], cells: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    yield f"| | {' | '.join(protocols.values())} |"
    yield f"|---|{'|'.join(':-:' for _ in protocols)}|"
    for one, row in ((name, cells.get(name, {})) for name in protocols):
        row_cells = (cell_text(Cell(**row[other]) if other in row else None) for other in protocols)
        yield f"| {protocols[one]} | {' | '.join(row_cells)} |"
    yield ""


def _finding(finding: Finding, verdict: AcrossVerdict, redactor: Redactor) -> Iterator[str]:
    title = verdict.record.title
    here, there = finding.here, finding.there
    yield f"### ✗ `{finding.id}`"
    yield ""
    place = f", in the run created through {title(here.protocol)}" if finding.is_shared else ""
    yield f"{finding.scenario}, {finding.moment}{place}: {finding.difference.aspect} differs."
    yield ""
    yield f"| {title(here.protocol)} | {title(there.protocol)} |"
    yield "|---|---|"
    values = (finding.difference.here, finding.difference.there)
    yield f"| {' | '.join(_code(redactor.text(show(value))) for value in values)} |"
    wires = ("<br>".join(_code(line) for line in wire_lines(shot, redactor)) for shot in (here, there))
    yield f"| {' | '.join(wires)} |"
    yield ""


def _code(text: str) -> str:
    """Return the text as an HTML code element for a table cell, because Markdown's code spans cannot hold `|` there."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<code>{_cell(escaped)}</code>"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;").replace("`", "&#96;")
