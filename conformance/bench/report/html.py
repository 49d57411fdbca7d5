"""Report of a benchmark as one self-contained HTML page: plots, tables, and every attempt with its agent's output,
collapsed."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import urlsplit

from babelgate.conformance.bench.report import plot, words
from babelgate.conformance.bench.result import AgentAbout, AgentFigures, Attempt, Baseline, Figures, Report
from babelgate.conformance.report.page import page


def html(report: Report) -> str:
    style = (files("babelgate.conformance") / "bench" / "report" / "plot.css").read_text(encoding="utf-8")
    return page(f"Bench: {report.header.suite}", _body(report), more_style=style)


def _body(report: Report) -> Iterator[str]:
    header = report.header
    yield f"<h1>Bench: {escape(header.suite)}</h1>"
    if header.description:
        yield f"<p>{escape(header.description)}</p>"
    yield from (f'<p class="trouble">{escape(line)}</p>' for line in words.trouble(report))
    yield from _agents(report)
    yield from _categories(report)
    yield from _times(report)
    yield from _usage(report)
    if report.comparisons:
        yield "<h2>Compared</h2>"
        yield from _list(words.sentences(report))
    if report.baseline is not None:
        yield from _baseline(report.baseline)
    yield from _tasks(report)
    yield from _attempts(report)
    if header.notes:
        yield "<h2>Notes</h2>"
        yield from _list(header.notes)
    yield "<h2>Settings</h2>"
    yield f"<p>{escape(words.settings(header))}</p>"
    yield from _list(_about(each) for each in header.agents)


def _about(agent: AgentAbout) -> str:
    """Return one line about an agent: its name, version, address and description. The query of the URL is left out,
    because it may contain keys."""
    parts = urlsplit(agent.url)
    where = "behind the bench's own gateway" if agent.fronted else f"at {parts.scheme}://{parts.netloc}{parts.path}"
    facts = (f"{agent.name} {agent.version}".strip(), where, agent.because, agent.description)
    return ", ".join(filter(None, facts))


def _agents(report: Report) -> Iterator[str]:
    yield "<h2>Success rate</h2>"
    yield _rates("Success rate by agent, with its 95 % interval", [(each.agent, each.all) for each in report.agents])
    ks = words.shown_k(report)
    head = ("agent", "passed", "95 %", "score", *(f"pass^{k}" for k in ks), *words.MEASURES)
    yield from _table(head, [[each.agent, *words.row(report, each, ks)] for each in report.agents])


def _rates(title: str, rows: Iterable[tuple[str, Figures]]) -> str:
    drawn = [
        plot.Span(label, of.interval.low, of.rate, of.interval.high, f"{words.rate(of)} ({words.interval(of)})")
        for label, of in rows
        if of.rate is not None and of.interval is not None
    ]
    return plot.spans(title, drawn, 1, words.percent)


def _categories(report: Report) -> Iterator[str]:
    names = dict.fromkeys(category for each in report.agents for category in each.categories)
    if names:
        yield "<h2>Categories</h2>"
    for name in names:
        yield f"<h3>{escape(name)}</h3>"
        found = [(each.agent, each.categories[name]) for each in report.agents if name in each.categories]
        yield _rates(f"Success rate by agent in the category {name}", found)


def _times(report: Report) -> Iterator[str]:
    times = [(each.agent, each.all.times.p50, each.all.times.p95) for each in report.agents]
    rows = [
        plot.Span(agent, p50, p50, p95, f"{words.seconds(p50)}, p95 {words.seconds(p95)}")
        for agent, p50, p95 in times
        if p50 is not None and p95 is not None
    ]
    if rows:
        yield "<h2>Time</h2>"
        most = max(each.high for each in rows) or 1
        yield plot.spans("Time of an attempt by agent, from p50 to p95", rows, most, words.seconds)


def _usage(report: Report) -> Iterator[str]:
    currency = report.header.settings.currency
    total = [(each, each.all.tokens.get("total_tokens")) for each in report.agents]
    tokens = [(each.agent, number, _tokens(each)) for each, number in total if number is not None]
    if tokens:
        yield "<h2>Tokens</h2>"
        yield plot.bars("Tokens by agent", tokens, lambda value: f"{value:,.0f}")
    costs = [(each.agent, each.all.cost) for each in report.agents]
    known_costs = [(agent, cost, words.cost(cost, currency)) for agent, cost in costs if cost is not None]
    if known_costs:
        yield "<h2>Cost</h2>"
        yield plot.bars("Cost by agent", known_costs, lambda value: words.cost(value, currency))


def _tokens(agent: AgentFigures) -> str:
    """Return the number of tokens that an agent used, as text. If not all attempts reported tokens, add how many
    did."""
    reported, attempts = agent.all.told_usage, agent.all.attempts
    note = "" if reported == attempts else f" (reported by {reported} of {attempts} attempts)"
    return words.tokens(agent.all) + note


def _baseline(baseline: Baseline) -> Iterator[str]:
    yield f"<h2>Since {escape(baseline.started_at)}</h2>"
    changed = [
        plot.Change(
            f"{row.agent}, {'all tasks' if row.task is None else row.task}",
            row.before,
            row.now,
            f"{words.percent(row.before)} → {words.percent(row.now)}",
            row.verdict,
        )
        for row in baseline.rows
        if row.verdict != "same"
    ]
    if changed:
        yield plot.changes("Success rates before and now", changed, words.percent)
    yield from _list(words.changes(baseline))


def _tasks(report: Report) -> Iterator[str]:
    agents = [each.agent for each in report.agents]
    yield "<h2>Tasks</h2>"
    rows = [
        [about.name, about.difficulty, *(words.marks(report, agent, about.name) for agent in agents)]
        for about in report.header.tasks
    ]
    yield from _table(("task", "difficulty", *agents), rows)
    yield f"<p>{escape(', '.join(f'{mark} {outcome}' for outcome, mark in words.MARKS.items()))}</p>"


def _attempts(report: Report) -> Iterator[str]:
    yield "<h2>Attempts</h2>"
    for about in report.header.tasks:
        yield f"<h3>{escape(about.name)}</h3>"
        if about.description:
            yield f"<p>{escape(about.description)}</p>"
        for each in report.attempts:
            if each.task == about.name:
                yield from _attempt(each, report.header.settings.currency)


def _attempt(record: Attempt, currency: str) -> Iterator[str]:
    which = record.agent if record.repetition == 0 else f"{record.agent}, repetition {record.repetition + 1}"
    yield f'<details class="{record.outcome}"><summary><b>{record.outcome}</b> {escape(which)}, '
    yield f"{escape(words.seconds(record.seconds))}{': ' if record.why else ''}{escape(record.why)}</summary>"
    if record.checks:
        yield from _list(_check(each.check, each.passed, each.why) for each in record.checks)
    for number, seconds in enumerate(record.step_seconds, 1):
        yield f"<p>Step {number}, {escape(words.seconds(seconds))}:</p>"
        output = record.outputs[number - 1] if number <= len(record.outputs) else None
        yield "<p>It did not end.</p>" if output is None else f"<pre>{escape(output)}</pre>"
    if record.artifacts:
        yield f"<p>Files: {escape(', '.join(record.artifacts))}</p>"
    usage = [f"{name} {number:,.6g}" for name, number in record.usage.items() if name != "cost"]
    if record.cost is not None:
        usage.append(words.cost(record.cost, currency))
    if usage:
        yield f"<p>{escape(', '.join(usage))}</p>"
    yield f"<p>Seed {record.seed}{f', begun {escape(record.started_at)}' if record.started_at else ''}</p></details>"


def _check(name: str, has_passed: bool, why: str) -> str:
    return f"{'✓' if has_passed else '✗'} {name}{': ' if why else ''}{why}"


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{escape(line)}</li>" for line in lines)
    yield "</ul>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"<table><thead><tr>{''.join(f'<th>{escape(each)}</th>' for each in head)}</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>"
    yield "</tbody></table>"
