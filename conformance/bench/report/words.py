"""Texts that all formats of the report share: formatted figures, and sentences about comparisons and changes."""

from collections.abc import Iterator, Sequence

from babelgate.conformance.bench.result import AgentFigures, Baseline, Figures, Header, Report

_NAMES = {
    "failed": "failed",
    "error": "in error",
    "timeout": "timed out",
    "limit": "out of steps",
    "unreachable": "not reachable",
    "skipped": "skipped",
    "broken": "not judged",
}
MEASURES = ("steps", "p50", "p95", "first", "tokens", "cost")
"""Last columns of every table of agents: steps, the median and the 95th percentile of the time, the time to the first
output, tokens and cost."""
MARKS = {
    "passed": "✓",
    "failed": "✗",
    "error": "E",
    "timeout": "T",
    "limit": "L",
    "unreachable": "U",
    "skipped": "–",
    "broken": "?",
}


def rate(figures: Figures) -> str:
    """Return the numbers of passed and judged attempts, such as `7/9`."""
    judged = figures.attempts - figures.outcomes.get("broken", 0)
    return f"{figures.passed}/{judged}" if judged else "–"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def interval(figures: Figures) -> str:
    if figures.interval is None:
        return "–"
    return f"{100 * figures.interval.low:.0f}–{100 * figures.interval.high:.0f} %"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 0.0995:
        return f"{1000 * value:.0f} ms"
    return f"{value:.2f} s" if value < 9.995 else f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}".removesuffix(".0")


def tokens(figures: Figures) -> str:
    total = figures.tokens.get("total_tokens")
    if total is None:
        return "–"
    return f"{total:,.0f}" if total < 1e6 else f"{total / 1e6:.2f} M"


def cost(value: float | None, currency: str) -> str:
    if value is None:
        return "–"
    digits = 2 if value >= 1 else 4
    return f"${value:.{digits}f}" if currency == "USD" else f"{value:.{digits}f} {currency}"


def outcomes(figures: Figures) -> str:
    """Return the number of attempts with each outcome other than `passed`, as text: `2 failed, 1 timed out`."""
    return ", ".join(f"{count} {_NAMES[name]}" for name, count in figures.outcomes.items() if name in _NAMES)


def marks(report: Report, agent: str, task: str) -> str:
    """Return one character for the outcome of each attempt of an agent at a task, such as `✓✓✗`. If there are more than
    five, return `passed/all`."""
    tried = [each for each in report.attempts if each.agent == agent and each.task == task]
    if len(tried) > 5:
        return f"{sum(each.has_passed for each in tried)}/{len(tried)}"
    return "".join(MARKS[each.outcome] for each in tried) or "·"


def shown_k(report: Report) -> tuple[str, ...]:
    """Return the values of k for which tables have a column pass^k: at most three of 2, 3, 5, 8 and the largest
    available."""
    most = min((len(each.all.pass_k) for each in report.agents), default=0)
    return tuple(str(k) for k in range(2, most + 1) if k in (2, 3, 5, 8, most))[-3:]


def row(report: Report, agent: AgentFigures, ks: Sequence[str]) -> list[str]:
    """Return the row of an agent in a table: passed, interval, score, pass^k for each of `ks`, and `MEASURES`."""
    of = agent.all
    return [
        rate(of),
        interval(of),
        percent(agent.score),
        *(percent(of.pass_k.get(k)) for k in ks),
        number(of.steps),
        seconds(of.times.p50),
        seconds(of.times.p95),
        seconds(of.times.first_output_p50),
        tokens(of),
        cost(of.cost, report.header.settings.currency),
    ]


def settings(header: Header) -> str:
    """Return one line with everything that a reader must know to repeat the benchmark: suite, number of tasks, seed,
    date and machine."""
    run_settings, machine = header.settings, header.machine
    each = "once" if run_settings.repetitions == 1 else f"{run_settings.repetitions} times"
    facts = (
        f"suite {header.suite} ({header.suite_hash})",
        f"{len(header.tasks)} tasks {each}, {run_settings.concurrency} at a time, seed {run_settings.seed}",
        header.started_at,
        f"babelgate {machine.babelgate}, Python {machine.python}, {machine.system}, {machine.cpus} CPUs",
    )
    return "; ".join(facts)


def sentences(report: Report, most: int = 10) -> list[str]:
    """Return one sentence for each comparison of two agents, the most significant first: at most `most`, then the
    number of the others."""
    ordered = sorted(report.comparisons, key=lambda each: 1.0 if each.p_adjusted is None else each.p_adjusted)
    lines = [each.sentence for each in ordered[:most]]
    return lines if len(ordered) <= most else [*lines, f"{len(ordered) - most} more comparisons are in result.json."]


def trouble(report: Report) -> list[str]:
    """Return the warnings that a report shows before its figures: attempts are missing, or a check is invalid."""
    warnings: list[str] = []
    if not report.complete:
        warnings.append(f"Not complete: {report.stopped or 'some attempts are missing'}.")
    broken = [each for each in report.attempts if each.outcome == "broken"]
    if broken:
        warnings.append(f"{len(broken)} attempts could not be judged, because a check is wrong: {broken[0].why}")
    return warnings


_CHANGES = {
    "regressed": "is worse",
    "lower": "is lower, which may be chance",
    "higher": "is higher, which may be chance",
    "improved": "is better",
}


def changes(baseline: Baseline) -> Iterator[str]:
    """Yield a sentence for each success rate that has changed since an earlier result, and for the tasks that could not
    be compared."""
    for row in baseline.rows:
        if row.verdict != "same":
            what = "all tasks" if row.task is None else row.task
            change = f"{row.agent}, {what}: {percent(row.now)} and {percent(row.before)} before"
            yield f"{change}: it {_CHANGES[row.verdict]}{'' if row.p is None else f' (p = {row.p:.2g})'}."
    if all(row.verdict == "same" for row in baseline.rows):
        yield f"Nothing has changed on {baseline.compared} tasks."
    if baseline.changed:
        yield f"Not compared, because the task is not what it was: {', '.join(baseline.changed)}."
    if baseline.missing:
        yield f"Not compared, because the earlier result has none of it: {', '.join(baseline.missing)}."
