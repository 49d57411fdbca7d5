"""Report of a benchmark as Markdown, for a pull request or a README."""

from collections.abc import Iterable, Iterator, Sequence

from babelgate.conformance.bench.report import words
from babelgate.conformance.bench.result import Figures, Report


def markdown(report: Report) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# Bench: {report.header.suite}"
    yield ""
    for line in words.trouble(report):
        yield f"**{_text(line)}**"
        yield ""
    yield from _agents(report)
    if report.comparisons:
        yield ""
        yield from (f"- {_text(line)}" for line in words.sentences(report))
    if report.baseline is not None:
        yield ""
        yield from _baseline(report)
    yield ""
    yield "## Tasks"
    yield ""
    yield from _tasks(report)
    categories = list(dict.fromkeys(category for each in report.agents for category in each.categories))
    if categories:
        yield ""
        yield "## Categories"
        yield ""
        rows = [
            [category, *(_share(each.categories.get(category)) for each in report.agents)] for category in categories
        ]
        yield from _table(["category", *(each.agent for each in report.agents)], rows)
    failures = [
        each for each in report.attempts if each.is_judged and not each.has_passed and each.outcome != "skipped"
    ]
    if failures:
        yield ""
        yield "## What did not pass"
        yield ""
        for each in failures[:100]:
            yield f"- {_text(each.agent)}, {_text(each.task)}: {each.outcome}: {_text(each.why)}"
        if len(failures) > 100:
            yield f"- and {len(failures) - 100} more, in result.json"
    if report.header.notes:
        yield ""
        yield "## Notes"
        yield ""
        yield from (f"- {_text(note)}" for note in report.header.notes)
    yield ""
    yield f"<sub>{_text(words.settings(report.header))}</sub>"


def _agents(report: Report) -> Iterator[str]:
    ks = words.shown_k(report)
    head = [
        "agent",
        "passed",
        "95 %",
        "score",
        *(f"pass^{k}" for k in ks),
        "steps",
        "p50",
        "p95",
        "first",
        "tokens",
        "cost",
    ]
    rows = [[each.agent, *words.row(report, each, ks)] for each in report.agents]
    yield from _table(head, rows)


def _tasks(report: Report) -> Iterator[str]:
    rows = [
        [about.name, about.difficulty, *(words.marks(report, each.agent, about.name) for each in report.agents)]
        for about in report.header.tasks
    ]
    yield from _table(["task", "difficulty", *(each.agent for each in report.agents)], rows)


def _baseline(report: Report) -> Iterator[str]:
    assert report.baseline is not None
    yield f"## Since {report.baseline.started_at}"
    yield ""
    yield from (f"- {_text(line)}" for line in words.changes(report.baseline))


def _share(figures: Figures | None) -> str:
    return "–" if figures is None else words.rate(figures)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_text, head))} |"
    yield f"|{'|'.join('---' if place == 0 else '--:' for place in range(len(head)))}|"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"


def _text(text: str) -> str:
    """Return the text with Markdown escaped, because agents' outputs are not markup."""
    plain = " ".join(text.split())
    for mark in ("\\", "`", "*", "_", "[", "]", "<", ">", "|", "#"):
        plain = plain.replace(mark, f"\\{mark}")
    return plain
