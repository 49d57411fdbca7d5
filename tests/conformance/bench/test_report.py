"""Formats of a report, from sample attempts."""

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from babelgate.conformance.bench.report import csv_text, write_reports
from babelgate.conformance.bench.report.html import html
from babelgate.conformance.bench.report.markdown import markdown
from babelgate.conformance.bench.result import Report, TaskAbout
from babelgate.conformance.bench.summary import against, summarize
from tests.conformance.bench.samples import attempt, attempts, header

VOID = {"meta", "br", "circle", "line", "rect"}
EVIL = "</pre><script src='http://evil.test/x.js'>alert(1)</script>"


class Page(HTMLParser):
    """Parsed page. Asserts that every element is closed, and collects tags, attributes and URLs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.urls: list[str] = []
        self.attributes: set[str] = set()
        self.titles: list[str] = []
        """Titles of plots and of their rows."""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.urls += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.titles.append(data)


@pytest.fixture
def report() -> Report:
    tasks = (
        TaskAbout(name="a", hash="1", category=("text",), difficulty="basic"),
        TaskAbout(name="b", hash="2", category=("text", "files")),
    )
    usage: dict[str, Any] = {"usage": {"input_tokens": 10.0, "output_tokens": 5.0, "total_tokens": 15.0}, "cost": 0.25}
    results = [
        attempt("one", "a", outputs=(EVIL,), **usage),
        attempt("one", "b", "failed", why=EVIL, artifacts=("out/naïve.txt",), seconds=3.0),
        *attempts("other", a="+", b="t"),
    ]
    return summarize(header(("one", "other"), tasks), results)


def test_page_is_well_formed_and_loads_nothing(report: Report) -> None:
    text = html(report)
    page = Page(text)
    assert page.open == []
    assert page.urls == []
    assert not re.search(r"url\(|@import", text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not any(name.startswith("on") for name in page.attributes)


def test_page_escapes_text_of_agents(report: Report) -> None:
    text = html(report)
    assert "<script" not in text
    assert text.count("&lt;script src=") == 2, "once in an output, once as the reason of a failure"


def test_details_of_an_attempt_show_steps_checks_files_and_usage(report: Report) -> None:
    text = html(report)
    folded = re.findall(r'<details class="(\w+)">(.*?)</details>', text, re.DOTALL)
    assert [outcome for outcome, _ in folded] == ["passed", "passed", "failed", "timeout"]
    first, _, failed, _ = (inside for _, inside in folded)
    assert "Step 1, 1.00 s" in first and "✓ output is" in first and "$0.2500" in first and "input_tokens 10" in first
    assert "out/naïve.txt" in failed and "✗ output is" in failed


def test_plots_show_rates_intervals_times_tokens_and_cost(report: Report) -> None:
    titles = Page(html(report)).titles
    assert "Success rate by agent, with its 95 % interval" in titles
    assert "one: 1/2 (9–91 %)" in titles  # Wilson's interval of 1 in 2
    assert "Success rate by agent in the category files" in titles
    assert "one: 0/1 (0–79 %)" in titles
    assert "one: 2.00 s, p95 2.90 s" in titles
    assert "one: 15 (reported by 1 of 2 attempts)" in titles
    assert "one: $0.2500" in titles
    assert not any(title.startswith("other: $") for title in titles), "an unknown cost is not zero"


def test_unknown_values_have_no_plot() -> None:
    titles = Page(
        html(summarize(header(), [attempt(outcome="skipped", step_seconds=(), outputs=(), checks=())]))
    ).titles
    assert [title for title in titles if title.startswith(("Tokens", "Cost", "Time"))] == []


def test_marks_are_at_their_values_on_the_axis() -> None:
    """Test rates of 0 and 1, which are at the ends of the axis."""
    report = summarize(header(("none", "all")), [*attempts("none", a="----"), *attempts("all", a="++++")])
    text = html(report)
    ticks = [float(x) for x in re.findall(r'<text class="tick" text-anchor="middle" x="([\d.]+)"', text)][:3]
    marks = [float(x) for x in re.findall(r'<circle class="mark" cx="([\d.]+)"', text)][:2]
    assert marks == [ticks[0], ticks[2]]
    assert ticks[1] == (ticks[0] + ticks[2]) / 2


def test_regressions_are_marked_in_the_plot() -> None:
    before = summarize(header(tasks=("a", "b")), attempts("one", a="+", b="+"))
    now = against(summarize(header(tasks=("a", "b")), attempts("one", a="-", b="+")), before, "before.json")
    text = html(now)
    assert "one, a: 100 % → 0 %" in Page(text).titles
    assert '<circle class="mark regressed"' in text
    assert "one, b: 100 %" not in text


def test_page_omits_the_query_of_a_url() -> None:
    report = summarize(header(), [attempt()])
    agent = report.header.agents[0].model_copy(update={"url": "http://host.test/a?key=hidden"})
    page = html(report.model_copy(update={"header": report.header.model_copy(update={"agents": (agent,)})}))
    assert "at http://host.test/a" in page
    assert "hidden" not in page


def test_csv_has_one_row_per_attempt_and_no_formula() -> None:
    report = summarize(header(("=SUM(A1)",)), [attempt("=SUM(A1)", outcome="failed", why="@x", cost=1.5)])
    (row,) = csv.DictReader(csv_text(report).splitlines())
    assert (row["agent"], row["why"], row["passed"], row["cost"]) == ("'=SUM(A1)", "'@x", "0", "1.5")


def test_markdown_escapes_text_of_agents() -> None:
    text = markdown(summarize(header(), [attempt(outcome="failed", why="a | <b>\n# c `d`")]))
    assert "- one, a: failed: a \\| \\<b\\> \\# c \\`d\\`" in text


def test_all_formats_are_written(tmp_path: Path, report: Report) -> None:
    write_reports(tmp_path, report)
    assert {each.name for each in tmp_path.iterdir()} == {"result.json", "result.csv", "report.md", "report.html"}
    assert Report.model_validate_json((tmp_path / "result.json").read_text(encoding="utf-8")) == report
