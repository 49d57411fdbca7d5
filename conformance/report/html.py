"""Report of a check as one self-contained HTML page: every requirement with its exchanges, collapsed."""

import json
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any

from babelgate.conformance.report.document import as_json
from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.report.page import page


def html(report: CheckReport) -> str:
    content = as_json(report)
    return page(f"{content['url']}: {report.outcome}", _body(content, report))


def _body(content: dict[str, Any], report: CheckReport) -> Iterator[str]:
    yield f"<h1><code>{escape(content['url'])}</code>: {report.outcome}</h1>"
    yield f"<p>Judged by babelgate {escape(report.version)} in {report.seconds:.1f} s.</p>"
    yield from _filter(content)
    for each, of in zip(content["sets"], report.sets, strict=True):
        yield from _set(each, of)


def _filter(content: dict[str, Any]) -> Iterator[str]:
    """Yield the HTML of the checkboxes that show and hide requirements by verdict. `page.css` makes them work without a
    script."""
    counts = Counter[str]()
    for each in content["sets"]:
        counts.update(each["counts"])
    for verdict, number in counts.items():
        if number:
            kind = verdict.replace(" ", "-")
            yield f'<input type="checkbox" class="filter" id="show-{kind}" checked>'
            yield f'<label for="show-{kind}">{number} {escape(verdict)}</label>'


def _set(content: dict[str, Any], report: SetReport) -> Iterator[str]:
    counts = ", ".join(f"{number} {verdict}" for verdict, number in content["counts"].items() if number)
    yield f"<section><h2>{escape(content['title'])}: {report.outcome}</h2>"
    yield f"<p>{report.tally}.</p>"
    yield f"<p>{escape(content['because'])}</p>"
    messages = f"{content['messages']} messages validated against their schemas"
    yield f"<p>{counts}; {messages}; {content['seconds']:.1f} s.</p>"
    for id in content["stale"]:
        yield f"<p><code>{escape(id)}</code> is expected to be broken but is met; remove it from the baseline.</p>"
    first = [result for result in content["results"] if result["id"] in content["broken"]]
    if first:
        yield "<h3>Failures</h3>"
        for result in first:
            yield from _result(result)
    group = ""
    for result in content["results"]:
        if result["id"] in content["broken"]:
            continue
        here = result["id"].partition("/")[2].partition(".")[0]
        if here != group:
            group = here
            yield f"<h3>{escape(group)}</h3>"
        yield from _result(result)
    yield "</section>"


def _result(result: dict[str, Any]) -> Iterator[str]:
    kind = result["verdict"].replace(" ", "-")
    is_shown = kind in ("fail", "error-of-the-check") and not result.get("prerequisite") and "known" not in result
    is_open = " open" if is_shown else ""
    yield f'<details class="{kind}"{is_open}><summary><b>{escape(result["verdict"])}</b> '
    yield f"<code>{escape(result['id'])}</code> {escape(result['text'])}</summary>"
    source, section = escape(result["source"]), escape(result["section"])
    yield f'<p>{escape(result["level"])}, <a href="{source}">section {section}</a></p>'
    for name, title in (("expected", "expected"), ("known", "known"), ("hint", "what to change")):
        if name in result:
            yield f"<p>{title}: {escape(result[name])}</p>"
    if "got" in result:
        yield f"<p>got:</p><pre>{escape(json.dumps(result['got'], indent=2, ensure_ascii=False))}</pre>"
    for exchange in result["exchanges"]:
        yield from _exchange(exchange)
    yield "</details>"


def _exchange(entry: dict[str, Any]) -> Iterator[str]:
    request = entry["request"]
    answer = entry.get("response")
    status = answer.get("grpcStatus", answer["status"]) if answer else entry.get("error", "no answer")
    yield f"<details><summary>#{entry['number']} {escape(request['method'])} <code>{escape(request['url'])}</code> → "
    yield f"{escape(str(status))}, {entry['seconds']:.3f} s</summary><pre>"
    yield escape(_head(request["headers"]) + request["body"])
    yield "</pre>"
    if answer:
        yield f"<pre>{escape(_head(answer['headers']) + answer['body'])}"
        for event in answer["events"]:
            yield escape(f"[{event['seconds']:.3f} s] {event['text']}\n")
        yield "</pre>"
    if entry.get("error"):
        yield f"<p>{escape(entry['error'])}</p>"
    yield "</details>"


def _head(headers: list[list[str]]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in headers) + "\n"
