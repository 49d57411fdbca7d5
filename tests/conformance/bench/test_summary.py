"""Figures, comparisons and changes, compared with numbers calculated by hand."""

import pytest

from babelgate.conformance.bench.result import TaskAbout
from babelgate.conformance.bench.summary import against, figures, summarize
from tests.conformance.bench.samples import attempt, attempts, header

TASKS = tuple("abcdef")


def test_rate_excludes_broken_attempts_and_counts_skipped_ones() -> None:
    of = figures(attempts("one", a="++-?s"))
    assert (of.attempts, of.passed, of.rate) == (5, 2, 0.5)
    assert of.outcomes == {"broken": 1, "failed": 1, "passed": 2, "skipped": 1}
    assert of.interval is not None
    assert (round(of.interval.low, 3), round(of.interval.high, 3)) == (0.15, 0.85)


def test_figures_of_no_attempts_are_empty() -> None:
    of = figures([])
    assert (of.rate, of.interval, of.steps, of.times.p50, of.cost, of.pass_k) == (None, None, None, None, None, {})


def test_score_weighs_tasks() -> None:
    tasks = (TaskAbout(name="a", hash="1", weight=3), TaskAbout(name="b", hash="2"))
    (agent,) = summarize(header(tasks=tasks, repetitions=2), attempts("one", a="++", b="--")).agents
    assert (agent.all.rate, agent.score) == (0.5, 0.75)


def test_pass_k_is_the_mean_over_tasks() -> None:
    """Compare with C(2,2)/C(3,2) = 1/3 for 2 of 3, and 1 for 3 of 3."""
    of = figures(attempts("one", a="++-", b="+++"))
    assert of.pass_k == pytest.approx({"1": 5 / 6, "2": 2 / 3, "3": 0.5})
    assert set(figures(attempts("one", a="++", b="+")).pass_k) == {"1"}


def test_times_exclude_attempts_without_a_step() -> None:
    timed = [attempt(seconds=each, first_output=each / 2) for each in (1.0, 2.0, 3.0)]
    skipped = attempt(outcome="skipped", seconds=0.0, step_seconds=())
    of = figures([*timed, skipped])
    assert (of.times.p50, of.times.p95, of.times.first_output_p50) == (2.0, pytest.approx(2.9), 1.0)
    assert of.steps == 1


def test_tokens_and_cost_are_summed_over_attempts_that_report_them() -> None:
    usage = {"input_tokens": 3.0, "total_tokens": 4.0, "cost": 0.5}
    of = figures([attempt(usage=usage, cost=0.5), attempt(usage=usage, cost=0.5), attempt()])
    assert (of.tokens, of.told_usage, of.cost) == ({"input_tokens": 6, "total_tokens": 8}, 2, 1.0)


def test_task_counts_in_each_of_its_categories() -> None:
    tasks = (TaskAbout(name="a", hash="1", category=("x", "y")), TaskAbout(name="b", hash="2", category=("y",)))
    (agent,) = summarize(header(tasks=tasks), attempts("one", a="+", b="-")).agents
    assert {name: (of.passed, of.attempts) for name, of in agent.categories.items()} == {"x": (1, 1), "y": (1, 2)}


def test_report_is_complete_after_all_requested_attempts() -> None:
    planned = header(("one", "other"), ("a",), repetitions=2)
    half = summarize(planned, attempts("one", a="++"), stopped="it was interrupted")
    assert (half.complete, half.stopped) == (False, "it was interrupted")
    whole = summarize(planned, [*attempts("one", a="++"), *attempts("other", a="++")])
    assert whole.complete


def test_attempts_are_in_the_order_of_the_header() -> None:
    planned = header(("one", "other"), ("b", "a"), repetitions=2)
    shuffled = [attempt("other", "a"), attempt("one", "a", "passed", 1), attempt("one", "a"), attempt("one", "b")]
    places = [(each.agent, each.task, each.repetition) for each in summarize(planned, shuffled).attempts]
    assert places == [("one", "b", 0), ("one", "a", 0), ("one", "a", 1), ("other", "a", 0)]


# Comparisons of agents


def test_six_of_six_tasks_are_significant_and_five_are_not() -> None:
    """Compare with McNemar's exact two-sided test: 2 / 2^6 = 0.031, and 2 / 2^5 = 0.0625."""
    planned = header(("one", "other"), TASKS)
    all_lost = dict.fromkeys(TASKS, "-")
    (six,) = summarize(
        planned, [*attempts("one", **dict.fromkeys(TASKS, "+")), *attempts("other", **all_lost)]
    ).comparisons
    assert (six.test, six.p, six.better, six.worse) == ("McNemar's exact test", 2 / 2**6, 6, 0)
    assert six.sentence.startswith("one is better than other on 6 of 6 tasks, not explained by chance (p = 0.031")
    won_five = dict.fromkeys(TASKS, "+") | {"f": "-"}
    (five,) = summarize(planned, [*attempts("one", **all_lost), *attempts("other", **won_five)]).comparisons
    assert five.p == 2 / 2**5
    assert five.sentence.startswith("other is better than one on 5 of 6 tasks, alike on 1, which may be chance")


def test_partial_rates_are_compared_by_permutation() -> None:
    planned = header(("one", "other"), ("a", "b"), repetitions=2)
    (comparison,) = summarize(
        planned, [*attempts("one", a="+-", b="++"), *attempts("other", a="--", b="++")]
    ).comparisons
    assert (comparison.test, comparison.difference, comparison.p) == ("paired permutation test", 0.25, 1.0)


def test_equal_agents_are_reported_as_alike() -> None:
    planned = header(("one", "other"), ("a", "b"))
    (comparison,) = summarize(planned, [*attempts("one", a="+", b="-"), *attempts("other", a="+", b="-")]).comparisons
    assert (comparison.p, comparison.sentence) == (1.0, "one and other are alike on all 2 tasks.")


def test_p_values_of_three_comparisons_are_adjusted() -> None:
    """Compare with Holm's method, which multiplies the smallest of three p values by three."""
    planned = header(("one", "two", "three"), TASKS)
    comparisons = summarize(
        planned,
        [
            *attempts("one", **dict.fromkeys(TASKS, "+")),
            *attempts("two", **dict.fromkeys(TASKS, "+")),
            *attempts("three", **dict.fromkeys(TASKS, "-")),
        ],
    ).comparisons
    assert {(each.first, each.second): each.p_adjusted for each in comparisons} == {
        ("one", "two"): 1.0,
        ("one", "three"): pytest.approx(3 * 2 / 2**6),
        ("two", "three"): pytest.approx(3 * 2 / 2**6),
    }
    assert all("which may be chance" in each.sentence for each in comparisons[1:])


def test_tasks_judged_for_one_agent_only_are_not_compared() -> None:
    planned = header(("one", "other"), ("a", "b"))
    (comparison,) = summarize(planned, [*attempts("one", a="+", b="+"), *attempts("other", a="-", b="?")]).comparisons
    assert (comparison.tasks, comparison.better) == (1, 1)
    assert summarize(planned, [*attempts("one", a="+"), *attempts("other", b="+")]).comparisons == ()


def test_times_are_compared_on_tasks_that_both_passed() -> None:
    planned = header(("one", "other"), ("a", "b"))
    results = [
        attempt("one", "a", seconds=2.0),
        attempt("other", "a", seconds=1.0),
        attempt("one", "b", seconds=100.0),
        attempt("other", "b", "failed", seconds=1.0),
    ]
    (comparison,) = summarize(planned, results).comparisons
    assert comparison.time_ratio == pytest.approx(2.0)


# Comparison with an earlier report


def verdicts(before: str, now: str) -> tuple[str, ...]:
    """Return the verdict of all tasks together, then that of the only task."""
    old, new = (summarize(header(), attempts("one", a=marks)) for marks in (before, now))
    baseline = against(new, old, "old.json").baseline
    assert baseline is not None
    return tuple(row.verdict for row in baseline.rows)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ("+", "-", "regressed"),
        ("-", "+", "improved"),
        ("+", "+", "same"),
        ("++++", "++--", "lower"),
        ("++--", "++++", "higher"),
        ("++++++++", "-------+", "regressed"),  # Fisher: 9 / C(16, 8), 0.0007
    ],
)
def test_only_significant_changes_are_regressions(before: str, now: str, verdict: str) -> None:
    assert verdicts(before, now)[1] == verdict


def test_changed_task_is_not_compared() -> None:
    old = summarize(header(tasks=("a", TaskAbout(name="b", hash="other"))), attempts("one", a="+", b="+"))
    new = summarize(
        header(("one", "new"), ("a", "b", "c")), [*attempts("one", a="+", b="-", c="-"), *attempts("new", a="+")]
    )
    baseline = against(new, old, "old.json").baseline
    assert baseline is not None
    assert (baseline.compared, baseline.changed, baseline.missing) == (1, ("b",), ("c", "new"))
    assert [(row.agent, row.task, row.verdict) for row in baseline.rows] == [
        ("one", None, "same"),
        ("one", "a", "same"),
    ]
