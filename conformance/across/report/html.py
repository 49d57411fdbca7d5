"""Report of a comparison as one self-contained HTML page: each difference side by side, with its exchanges."""

from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

from babelgate.conformance.across.compare import aspects_of, show
from babelgate.conformance.across.model import Shot
from babelgate.conformance.across.report.text import MARKS, cell_text, summary
from babelgate.conformance.across.verdict import AcrossVerdict, Cell, Finding
from babelgate.conformance.wire.exchange import Redactor

_STYLE: Final = """
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid #8884; padding: .2rem .6rem; text-align: left; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.sides > div { min-width: 0; }
"""


def html(verdict: AcrossVerdict) -> str:
    style = (files("babelgate.conformance") / "report" / "page.css").read_text(encoding="utf-8") + _STYLE
    outcome = "mean the same" if verdict.is_same else "do not mean the same"
    urls = escape(Redactor(verdict.record.secrets).text(", ".join(verdict.record.urls)))
    body = "\n".join(_body(verdict))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{urls}: its protocols {outcome}</title>
<style>{style}</style>
</head>
<body>
<h1>The protocols of <code>{urls}</code> {outcome}</h1>
<p>{escape(summary(verdict))}. Compared by babelgate {escape(verdict.record.version)}.</p>
{body}
</body>
</html>
"""


def _body(verdict: AcrossVerdict) -> Iterator[str]:
    record, redactor = verdict.record, Redactor(verdict.record.secrets)
    yield "<h2>Scenarios, played through each protocol</h2><table><tr><th></th>"
    yield "".join(f"<th>{escape(record.title(name))}</th>" for name in record.protocols) + "</tr>"
    for each in record.played:
        marks = "".join(f"<td>{verdict.mark(each, name)}</td>" for name in record.protocols)
        about = escape(each.skipped or each.scenario.about)
        yield f"<tr><th>{escape(each.scenario.name)} <small>{about}</small></th>{marks}</tr>"
    yield f"</table><p>{MARKS}</p>"
    yield "<h2>Pairs of protocols</h2>"
    yield from _square(verdict, verdict.pairs)
    if verdict.shared:
        yield "<h2>The same run, created through the protocol of the row and read through that of the column</h2>"
        yield from _square(verdict, verdict.shared)
    yield "<h2>Differences</h2>"
    for id in verdict.stale:
        yield f"<p><code>{escape(id)}</code> is expected to differ but does not; remove it from the baseline.</p>"
    for finding in sorted(verdict.findings, key=lambda each: not each.is_against):
        yield from _finding(finding, verdict, redactor)


def _square(verdict: AcrossVerdict, cells: Mapping[tuple[str, str], Cell]) -> Iterator[str]:
    record = verdict.record
    names = record.protocols
    yield f"<table><tr><th></th>{''.join(f'<th>{escape(record.title(name))}</th>' for name in names)}</tr>"
    for one in names:
        row = "".join(f"<td>{cell_text(cells.get((one, other)))}</td>" for other in names)
        yield f"<tr><th>{escape(record.title(one))}</th>{row}</tr>"
    yield "</table>"


def _finding(finding: Finding, verdict: AcrossVerdict, redactor: Redactor) -> Iterator[str]:
    kind, is_open = ("fail", " open") if finding.is_against else ("warning", "")
    why = redactor.text(finding.reason or finding.difference.declared)
    note = f" declared: {escape(why)}" if finding.difference.declared else f" known: {escape(why)}" if why else ""
    yield f'<details class="{kind}"{is_open}><summary><b>{"✗" if finding.is_against else "◐"}</b> '
    yield f"<code>{escape(finding.id)}</code> {escape(finding.moment)}{note}</summary>"
    yield '<div class="sides">'
    for shot, value in ((finding.here, finding.difference.here), (finding.there, finding.difference.there)):
        title = escape(verdict.record.title(shot.protocol))
        yield f"<div><h4>{title}</h4><pre>{escape(redactor.text(show(value)))}</pre>"
        yield from _shot_details(shot, redactor)
        yield "</div>"
    yield "</div></details>"


def _shot_details(shot: Shot, redactor: Redactor) -> Iterator[str]:
    understood = {name: value for name, value in aspects_of(shot).items() if value not in (None, "", ())}
    yield "<details><summary>all values that were read</summary><pre>"
    yield escape("\n".join(f"{name}: {redactor.text(show(value))}" for name, value in understood.items()))
    yield "</pre></details>"
    for exchange in shot.exchanges:
        yield from _exchange(redactor.exchange(exchange))


def _exchange(entry: dict[str, Any]) -> Iterator[str]:
    request, answer = entry["request"], entry.get("response")
    status = answer["status"] if answer else entry.get("error", "no answer")
    yield f"<details><summary>{escape(request['method'])} <code>{escape(request['url'])}</code> → {escape(str(status))}"
    yield f"</summary><pre>{escape(_head(request['headers']) + request['body'])}</pre>"
    if answer:
        events = "".join(f"[{event['seconds']:.3f} s] {event['text']}\n" for event in answer["events"])
        yield f"<pre>{escape(_head(answer['headers']) + answer['body'] + events)}</pre>"
    yield "</details>"


def _head(headers: list[list[str]]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in headers) + "\n"
