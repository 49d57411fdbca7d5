"""The report as one page that needs nothing else: every requirement with what was said on the wire for it, folded."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from babelgate.conformance.report.document import as_json
from babelgate.conformance.report.model import Report
from babelgate.conformance.report.page import page


def html(report: Report) -> str:
    shown = as_json(report)
    verdict = "conformant" if report.is_conformant else "not conformant"
    return page(f"{shown['url']}: {verdict}", _body(shown, verdict, report))


def _body(shown: dict[str, Any], verdict: str, report: Report) -> Iterator[str]:
    yield f"<h1><code>{escape(shown['url'])}</code> is {verdict}</h1>"
    yield f"<p>Judged by babelgate {escape(report.version)} in {report.seconds:.1f} s.</p>"
    for each in shown["sets"]:
        yield from _set(each)


def _set(shown: dict[str, Any]) -> Iterator[str]:
    told = ", ".join(f"{number} {verdict}" for verdict, number in shown["counts"].items() if number)
    yield f"<section><h2>{escape(shown['title'])}: {shown['passed']} of {shown['applicable']} kept</h2>"
    yield f"<p>{escape(shown['because'])}</p>"
    yield f"<p>{told}; {shown['messages']} messages held against their schemas; {shown['seconds']:.1f} s.</p>"
    for id in shown["stale"]:
        yield f"<p><code>{escape(id)}</code> is expected not to be kept, and is: take it out of the baseline.</p>"
    group = ""
    for result in shown["results"]:
        here = result["id"].partition("/")[2].partition(".")[0]
        if here != group:
            group = here
            yield f"<h3>{escape(group)}</h3>"
        yield from _result(result)
    yield "</section>"


def _result(result: dict[str, Any]) -> Iterator[str]:
    kind = result["verdict"].replace(" ", "-")
    is_open = " open" if kind in ("fail", "harness-error") and "known" not in result else ""
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


def _exchange(shown: dict[str, Any]) -> Iterator[str]:
    request = shown["request"]
    answer = shown.get("response")
    status = answer["status"] if answer else shown.get("error", "no answer")
    yield f"<details><summary>#{shown['number']} {escape(request['method'])} <code>{escape(request['url'])}</code> → "
    yield f"{escape(str(status))}, {shown['seconds']:.3f} s</summary><pre>"
    yield escape(_head(request["headers"]) + request["body"])
    yield "</pre>"
    if answer:
        yield f"<pre>{escape(_head(answer['headers']) + answer['body'])}"
        for event in answer["events"]:
            yield escape(f"[{event['seconds']:.3f} s] {event['text']}\n")
        yield "</pre>"
    if shown.get("error"):
        yield f"<p>{escape(shown['error'])}</p>"
    yield "</details>"


def _head(headers: list[list[str]]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in headers) + "\n"
