"""Report of a benchmark for a terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from babelgate.conformance.bench.report import words
from babelgate.conformance.bench.result import Report

_STYLES = {
    "passed": "green",
    "failed": "red",
    "error": "red",
    "timeout": "yellow",
    "limit": "yellow",
    "unreachable": "magenta",
    "broken": "magenta",
    "skipped": "dim",
}
_STYLE_OF = {mark: _STYLES[outcome] for outcome, mark in words.MARKS.items()}


def terminal(report: Report) -> Iterator[RenderableType]:
    """Yield the parts of the report, such as tables, for a Rich console to print in order."""
    for line in words.trouble(report):
        yield Text(line, style="bold red")
    yield _tasks(report)
    yield _agents(report)
    if report.comparisons:
        yield Text("\n".join(words.sentences(report)))
    if report.baseline is not None:
        yield Text(f"Since {report.baseline.started_at}:", style="bold")
        for line in words.changes(report.baseline):
            yield Text(f"  {line}")


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", show_edge=False)


def _tasks(report: Report) -> Table:
    table = _table()
    table.add_column("task", no_wrap=True)
    for each in report.agents:
        table.add_column(each.agent, justify="center", no_wrap=True)
    for about in report.header.tasks:
        table.add_row(
            about.name, *(_style_marks(words.marks(report, each.agent, about.name)) for each in report.agents)
        )
    return table


def _style_marks(marks: str) -> Text:
    text = Text()
    for mark in marks:
        text.append(mark, _STYLE_OF.get(mark, ""))
    return text


def _agents(report: Report) -> Table:
    table = _table()
    table.add_column("agent", no_wrap=True)
    ks = words.shown_k(report)
    for head in ("passed", "95 %", "score", *(f"pass^{k}" for k in ks), *words.MEASURES):
        table.add_column(head, justify="right", no_wrap=True)
    for each in report.agents:
        table.add_row(each.agent, *words.row(report, each, ks))
    return table
