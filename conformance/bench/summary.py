"""Summary of a journal as a report: figures by agent, category and task, comparisons of agents, and changes since an
earlier result.

The computation is deterministic: the same attempts give the same report.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from math import exp, log
from statistics import fmean
from typing import Final, Literal

from babelgate.conformance.bench import stats as st
from babelgate.conformance.bench.result import (
    AgentFigures,
    Attempt,
    Baseline,
    Comparison,
    Figures,
    Header,
    Interval,
    Regression,
    Report,
    TaskAbout,
    Times,
)
from babelgate.usage import add_usages

ALPHA: Final = 0.05
"""Significance level of all tests: a smaller p value counts as significant. Chosen, as is usual."""


def summarize(header: Header, attempts: Sequence[Attempt], *, stopped: str = "") -> Report:
    """Return the report on a benchmark's attempts. `stopped` is the reason why attempts are missing; empty if there are
    all."""
    expected = len(header.tasks) * len(header.agents) * header.settings.repetitions
    ordered = _sort_attempts(header, attempts)
    figures_by_agent = tuple(
        _agent(header, about.name, [each for each in ordered if each.agent == about.name]) for about in header.agents
    )
    return Report(
        header=header,
        complete=len(attempts) >= expected,
        stopped=stopped,
        seconds=_span(attempts),
        agents=figures_by_agent,
        comparisons=_comparisons(header, ordered),
        attempts=tuple(ordered),
    )


def _sort_attempts(header: Header, attempts: Iterable[Attempt]) -> list[Attempt]:
    agents = {about.name: place for place, about in enumerate(header.agents)}
    tasks = {about.name: place for place, about in enumerate(header.tasks)}
    return sorted(attempts, key=lambda each: (agents[each.agent], tasks[each.task], each.repetition))


def _span(attempts: Sequence[Attempt]) -> float:
    begun = [datetime.fromisoformat(each.started_at).timestamp() for each in attempts if each.started_at]
    ended = [datetime.fromisoformat(each.started_at).timestamp() + each.seconds for each in attempts if each.started_at]
    return round(max(ended) - min(begun), 3) if begun else 0.0


def _agent(header: Header, name: str, attempts: Sequence[Attempt]) -> AgentFigures:
    by_task = _by_task(attempts)
    categories: dict[str, list[Attempt]] = defaultdict(list)
    for about in header.tasks:
        for category in about.category:
            categories[category] += by_task.get(about.name, [])
    return AgentFigures(
        agent=name,
        all=figures(attempts),
        score=_score(header.tasks, by_task),
        categories={category: figures(each) for category, each in sorted(categories.items())},
        tasks={about.name: figures(by_task.get(about.name, [])) for about in header.tasks},
    )


def _by_task(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = defaultdict(list)
    for each in attempts:
        found[each.task].append(each)
    return dict(found)


def _rate(attempts: Iterable[Attempt]) -> float | None:
    judged = [each for each in attempts if each.is_judged]
    return sum(each.has_passed for each in judged) / len(judged) if judged else None


def _score(tasks: Iterable[TaskAbout], by_task: Mapping[str, Sequence[Attempt]]) -> float | None:
    rates = [(about.weight, _rate(by_task.get(about.name, ()))) for about in tasks]
    weighted = [(weight, rate) for weight, rate in rates if rate is not None]
    total = sum(weight for weight, _ in weighted)
    return sum(weight * rate for weight, rate in weighted) / total if total else None


def figures(attempts: Sequence[Attempt]) -> Figures:
    judged = [each for each in attempts if each.is_judged]
    passed = sum(each.has_passed for each in judged)
    stepped = [each for each in attempts if each.step_seconds]
    with_usage = [each for each in attempts if each.usage]
    costs = [each.cost for each in attempts if each.cost is not None]
    return Figures(
        attempts=len(attempts),
        passed=passed,
        rate=passed / len(judged) if judged else None,
        interval=_interval(st.wilson(passed, len(judged))) if judged else None,
        outcomes=dict(sorted(Counter(each.outcome for each in attempts).items())),
        pass_k=_pass_k(judged),
        steps=fmean(len(each.step_seconds) for each in stepped) if stepped else None,
        artifacts=sum(len(each.artifacts) for each in attempts),
        times=_times(stepped),
        tokens=add_usages({k: v for k, v in each.usage.items() if k != "cost"} for each in with_usage),
        told_usage=len(with_usage),
        cost=sum(costs) if costs else None,
    )


def _interval(bounds: tuple[float, float]) -> Interval:
    return Interval(low=bounds[0], high=bounds[1])


def _pass_k(judged: Sequence[Attempt]) -> dict[str, float]:
    """Return the mean of pass^k over all tasks, by k as text. The largest k is the smallest number of judged attempts
    at a task."""
    counts = [(sum(each.has_passed for each in tried), len(tried)) for tried in _by_task(judged).values()]
    most = min((attempts for _, attempts in counts), default=0)
    return {str(k): fmean(st.pass_hat(passed, tried, k) for passed, tried in counts) for k in range(1, most + 1)}


def _times(stepped: Sequence[Attempt]) -> Times:
    seconds = [each.seconds for each in stepped]
    first = [each.first_output for each in stepped if each.first_output is not None]
    if not seconds:
        return Times()
    return Times(p50=st.quantile(seconds, 0.5), p95=st.quantile(seconds, 0.95), first_output_p50=st.middle(first))


# Comparison of agents


def _comparisons(header: Header, attempts: Sequence[Attempt]) -> tuple[Comparison, ...]:
    of = {about.name: _by_task(each for each in attempts if each.agent == about.name) for about in header.agents}
    comparisons = [compare(one, of[one], other, of[other], header.settings.seed) for one, other in combinations(of, 2)]
    found = [each for each in comparisons if each is not None]
    adjusted = st.holm([each.p if each.p is not None else 1.0 for each in found])
    return tuple(
        each.model_copy(update={"p_adjusted": p, "sentence": _sentence(each, p)})
        for each, p in zip(found, adjusted, strict=True)
    )


def compare(
    first: str,
    ones: Mapping[str, Sequence[Attempt]],
    second: str,
    others: Mapping[str, Sequence[Attempt]],
    seed: int = 0,
) -> Comparison | None:
    """Compare two agents on the tasks at which both were judged, or return None if there is no such task. `first` and
    `second` are their names, `ones` and `others` their attempts by task.

    The statistical unit is the task, because attempts at the same task are not independent.
    """
    rates = {
        task: (one, other)
        for task in ones
        if (one := _rate(ones[task])) is not None and (other := _rate(others.get(task, ()))) is not None
    }
    if not rates:
        return None
    differences = [one - other for one, other in rates.values()]
    better, worse = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    if all(abs(each) in (0, 1) for each in differences):
        test, p = "McNemar's exact test", st.mcnemar(better, worse)
    else:
        test, p = "paired permutation test", st.permutation(differences, seed)
    ratio, time_p = _time_ratio(ones, others, rates, seed)
    return Comparison(
        first=first,
        second=second,
        tasks=len(rates),
        better=better,
        worse=worse,
        test=test,
        p=p,
        p_adjusted=None,
        difference=fmean(differences),
        interval=_interval(st.bootstrap_difference(differences, seed)),
        effect=st.rank_biserial(differences),
        time_ratio=ratio,
        time_p=time_p,
        sentence="",
    )


def _time_ratio(
    ones: Mapping[str, Sequence[Attempt]],
    others: Mapping[str, Sequence[Attempt]],
    tasks: Iterable[str],
    seed: int,
) -> tuple[float | None, float | None]:
    """Return the median over tasks of the first agent's time divided by the second's, and its p value. Only tasks that
    both agents passed count; without any, return None twice.

    The times of failed attempts are ignored, because an agent may fail early.
    """
    logs: list[float] = []
    for task in tasks:
        one = st.middle([each.seconds for each in ones[task] if each.has_passed and each.seconds > 0])
        other = st.middle([each.seconds for each in others[task] if each.has_passed and each.seconds > 0])
        if one is not None and other is not None:
            logs.append(log(one / other))
    middle = st.middle(logs)
    return (None, None) if middle is None else (exp(middle), st.wilcoxon(logs, seed))


def _sentence(comparison: Comparison, p: float) -> str:
    """Return a comparison of two agents as a sentence for readers who do not know p values. `p` is the adjusted p
    value."""
    ties = comparison.tasks - comparison.better - comparison.worse
    if comparison.better + comparison.worse == 0:
        return f"{comparison.first} and {comparison.second} are alike on all {_tasks(comparison.tasks)}."
    ahead, behind, wins, losses = comparison.first, comparison.second, comparison.better, comparison.worse
    if comparison.difference < 0 or (comparison.difference == 0 and losses > wins):
        ahead, behind, wins, losses = behind, ahead, losses, wins
    rest = "".join(
        (f", worse on {losses}" if losses else "", f", alike on {ties}" if ties else ""),
    )
    chance = "not explained by chance" if p < ALPHA else "which may be chance"
    if comparison.difference == 0:
        result = f"{ahead} is better on {wins} of {_tasks(comparison.tasks)}{rest}: no difference in all, {chance}"
        return f"{result} (p {_p(p)}, {comparison.test})."
    result = f"{ahead} is better than {behind} on {wins} of {_tasks(comparison.tasks)}{rest}, {chance}"
    return f"{result} (p {_p(p)}, {comparison.test})."


def _tasks(number: int) -> str:
    return f"{number} task{'' if number == 1 else 's'}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


# Comparison with an earlier result


def against(report: Report, earlier: Report, file: str) -> Report:
    """Return the report with a section on the changes since an earlier result. Only tasks that are the same in both are
    compared. `file` is the path of the earlier result, to be shown."""
    before = {about.name: about.hash for about in earlier.header.tasks}
    now = {about.name: about.hash for about in report.header.tasks}
    same = [name for name in now if before.get(name) == now[name]]
    earlier_agents = {about.name for about in earlier.header.agents}
    rows: list[Regression] = []
    for about in report.header.agents:
        if about.name in earlier_agents:
            rows += _changes(about.name, same, report.attempts, earlier.attempts, report.header.settings.seed)
    missing = [name for name in now if name not in before]
    missing += [about.name for about in report.header.agents if about.name not in earlier_agents]
    baseline = Baseline(
        file=file,
        started_at=earlier.header.started_at,
        compared=len(same),
        changed=tuple(name for name in now if name in before and before[name] != now[name]),
        missing=tuple(missing),
        rows=tuple(rows),
    )
    return report.model_copy(update={"baseline": baseline})


def _changes(
    agent: str, tasks: Iterable[str], now: Iterable[Attempt], before: Iterable[Attempt], seed: int
) -> list[Regression]:
    """Return the changes of an agent's success rates from the attempts `before` to the attempts `now`: first that of
    all tasks together, then that of each task."""
    new, old = (
        _by_task(each for each in attempts if each.agent == agent and each.is_judged) for attempts in (now, before)
    )
    rows: list[Regression] = []
    differences: list[float] = []
    for task in tasks:
        if new.get(task) and old.get(task):
            rows.append(_change(agent, task, new[task], old[task]))
            differences.append(rows[-1].now - rows[-1].before)
    if not differences:
        return rows
    p = st.permutation(differences, seed)
    ratio = fmean(differences)
    verdict = "same" if ratio == 0 else _verdict(ratio, p < ALPHA)
    whole = Regression(
        agent=agent,
        task=None,
        before=fmean(row.before for row in rows),
        now=fmean(row.now for row in rows),
        p=p,
        verdict=verdict,
    )
    return [whole, *rows]


def _change(agent: str, task: str, now: Sequence[Attempt], before: Sequence[Attempt]) -> Regression:
    """Return the change of an agent's success rate at one task.

    With one attempt before and one now, no p value can be significant, so a different outcome counts as a change. The
    same holds if all attempts passed before and none passes now, or the reverse.
    """
    passed, passed_before = sum(each.has_passed for each in now), sum(each.has_passed for each in before)
    rate, rate_before = passed / len(now), passed_before / len(before)
    if rate == rate_before:
        return Regression(agent=agent, task=task, before=rate_before, now=rate, p=None, verdict="same")
    if rate < rate_before:
        p = st.fisher(passed, len(now), passed_before, len(before))
    else:
        p = st.fisher(passed_before, len(before), passed, len(now))
    certain = p < ALPHA or {rate, rate_before} == {0.0, 1.0}
    verdict = _verdict(rate - rate_before, certain)
    return Regression(agent=agent, task=task, before=rate_before, now=rate, p=p, verdict=verdict)


def _verdict(difference: float, certain: bool) -> Literal["regressed", "lower", "higher", "improved"]:
    if difference < 0:
        return "regressed" if certain else "lower"
    return "improved" if certain else "higher"
