"""From attempts to figures, comparisons and changes, by numbers that were worked out by hand."""

import pytest

from babelgate.conformance.bench.result import TaskAbout
from babelgate.conformance.bench.summary import against, figures, summarize
from tests.conformance.bench.making import attempt, attempts, header

TASKS = tuple("abcdef")


def test_a_rate_leaves_out_what_could_not_be_judged_and_counts_what_was_skipped() -> None:
    of = figures(attempts("one", a="++-?s"))
    assert (of.attempts, of.passed, of.rate) == (5, 2, 0.5)
    assert of.outcomes == {"broken": 1, "failed": 1, "passed": 2, "skipped": 1}
    assert of.interval is not None
    assert (round(of.interval.low, 3), round(of.interval.high, 3)) == (0.15, 0.85)


def test_nothing_is_said_of_no_attempts() -> None:
    of = figures([])
    assert (of.rate, of.interval, of.steps, of.times.p50, of.cost, of.pass_k) == (None, None, None, None, None, {})


def test_a_score_weighs_tasks_and_not_attempts() -> None:
    tasks = (TaskAbout(name="a", hash="1", weight=3), TaskAbout(name="b", hash="2"))
    (told,) = summarize(header(tasks=tasks, repetitions=2), attempts("one", a="++", b="--")).agents
    assert (told.all.rate, told.score) == (0.5, 0.75)


def test_pass_k_is_the_mean_over_tasks_up_to_the_fewest_attempts() -> None:
    """Of 2 in 3, C(2,2)/C(3,2) = 1/3; of 3 in 3, 1."""
    of = figures(attempts("one", a="++-", b="+++"))
    assert of.pass_k == pytest.approx({"1": 5 / 6, "2": 2 / 3, "3": 0.5})
    assert set(figures(attempts("one", a="++", b="+")).pass_k) == {"1"}


def test_times_are_of_attempts_that_had_a_step() -> None:
    made = [attempt(seconds=each, first_output=each / 2) for each in (1.0, 2.0, 3.0)]
    skipped = attempt(outcome="skipped", seconds=0.0, step_seconds=())
    of = figures([*made, skipped])
    assert (of.times.p50, of.times.p95, of.times.first_output_p50) == (2.0, pytest.approx(2.9), 1.0)
    assert of.steps == 1


def test_tokens_and_cost_are_of_those_that_told_them() -> None:
    usage = {"input_tokens": 3.0, "total_tokens": 4.0, "cost": 0.5}
    of = figures([attempt(usage=usage, cost=0.5), attempt(usage=usage, cost=0.5), attempt()])
    assert (of.tokens, of.told_usage, of.cost) == ({"input_tokens": 6, "total_tokens": 8}, 2, 1.0)


def test_a_task_counts_in_each_of_its_categories() -> None:
    tasks = (TaskAbout(name="a", hash="1", category=("x", "y")), TaskAbout(name="b", hash="2", category=("y",)))
    (told,) = summarize(header(tasks=tasks), attempts("one", a="+", b="-")).agents
    assert {name: (of.passed, of.attempts) for name, of in told.categories.items()} == {"x": (1, 1), "y": (1, 2)}


def test_it_is_complete_when_every_agent_was_at_every_task_as_often_as_asked() -> None:
    asked = header(("one", "other"), ("a",), repetitions=2)
    half = summarize(asked, attempts("one", a="++"), stopped="it was interrupted")
    assert (half.complete, half.stopped) == (False, "it was interrupted")
    whole = summarize(asked, [*attempts("one", a="++"), *attempts("other", a="++")])
    assert whole.complete


def test_attempts_stand_in_the_order_of_the_header() -> None:
    asked = header(("one", "other"), ("b", "a"), repetitions=2)
    shuffled = [attempt("other", "a"), attempt("one", "a", "passed", 1), attempt("one", "a"), attempt("one", "b")]
    told = [(each.agent, each.task, each.repetition) for each in summarize(asked, shuffled).attempts]
    assert told == [("one", "b", 0), ("one", "a", 0), ("one", "a", 1), ("other", "a", 0)]


# Agents side by side


def test_six_tasks_of_six_are_no_chance_and_five_may_be() -> None:
    """McNemar, exact and two-sided: 2 / 2^6 = 0.031; 2 / 2^5 = 0.0625."""
    asked = header(("one", "other"), TASKS)
    all_lost = dict.fromkeys(TASKS, "-")
    (six,) = summarize(
        asked, [*attempts("one", **dict.fromkeys(TASKS, "+")), *attempts("other", **all_lost)]
    ).comparisons
    assert (six.test, six.p, six.better, six.worse) == ("McNemar's exact test", 2 / 2**6, 6, 0)
    assert six.sentence.startswith("one is better than other on 6 of 6 tasks, not explained by chance (p = 0.031")
    won_five = dict.fromkeys(TASKS, "+") | {"f": "-"}
    (five,) = summarize(asked, [*attempts("one", **all_lost), *attempts("other", **won_five)]).comparisons
    assert five.p == 2 / 2**5
    assert five.sentence.startswith("other is better than one on 5 of 6 tasks, alike on 1, which may be chance")


def test_rates_between_none_and_all_are_compared_by_permutation() -> None:
    asked = header(("one", "other"), ("a", "b"), repetitions=2)
    (made,) = summarize(asked, [*attempts("one", a="+-", b="++"), *attempts("other", a="--", b="++")]).comparisons
    assert (made.test, made.difference, made.p) == ("paired permutation test", 0.25, 1.0)


def test_agents_that_are_alike_are_called_so() -> None:
    asked = header(("one", "other"), ("a", "b"))
    (made,) = summarize(asked, [*attempts("one", a="+", b="-"), *attempts("other", a="+", b="-")]).comparisons
    assert (made.p, made.sentence) == (1.0, "one and other are alike on all 2 tasks.")


def test_three_agents_are_three_comparisons_and_each_is_believed_less() -> None:
    """Holm: the smallest p of three counts three times."""
    asked = header(("one", "two", "three"), TASKS)
    made = summarize(
        asked,
        [
            *attempts("one", **dict.fromkeys(TASKS, "+")),
            *attempts("two", **dict.fromkeys(TASKS, "+")),
            *attempts("three", **dict.fromkeys(TASKS, "-")),
        ],
    ).comparisons
    assert {(each.first, each.second): each.p_adjusted for each in made} == {
        ("one", "two"): 1.0,
        ("one", "three"): pytest.approx(3 * 2 / 2**6),
        ("two", "three"): pytest.approx(3 * 2 / 2**6),
    }
    assert all("which may be chance" in each.sentence for each in made[1:])


def test_tasks_that_only_one_was_judged_at_are_not_compared() -> None:
    asked = header(("one", "other"), ("a", "b"))
    (made,) = summarize(asked, [*attempts("one", a="+", b="+"), *attempts("other", a="-", b="?")]).comparisons
    assert (made.tasks, made.better) == (1, 1)
    assert summarize(asked, [*attempts("one", a="+"), *attempts("other", b="+")]).comparisons == ()


def test_times_are_compared_on_what_both_passed() -> None:
    asked = header(("one", "other"), ("a", "b"))
    made = [
        attempt("one", "a", seconds=2.0),
        attempt("other", "a", seconds=1.0),
        attempt("one", "b", seconds=100.0),
        attempt("other", "b", "failed", seconds=1.0),
    ]
    (told,) = summarize(asked, made).comparisons
    assert told.time_ratio == pytest.approx(2.0)


# Now and before


def verdicts(before: str, now: str) -> tuple[str, ...]:
    """Of all tasks together and of the one that there is."""
    old, new = (summarize(header(), attempts("one", a=marks)) for marks in (before, now))
    made = against(new, old, "old.json").baseline
    assert made is not None
    return tuple(row.verdict for row in made.rows)


@pytest.mark.parametrize(
    ("before", "now", "of_the_task"),
    [
        ("+", "-", "regressed"),
        ("-", "+", "improved"),
        ("+", "+", "same"),
        ("++++", "++--", "lower"),
        ("++--", "++++", "higher"),
        ("++++++++", "-------+", "regressed"),  # Fisher: 9 / C(16, 8), 0.0007
    ],
)
def test_a_change_is_a_regression_where_it_is_sure(before: str, now: str, of_the_task: str) -> None:
    assert verdicts(before, now)[1] == of_the_task


def test_a_task_that_was_rewritten_is_not_compared() -> None:
    old = summarize(header(tasks=("a", TaskAbout(name="b", hash="other"))), attempts("one", a="+", b="+"))
    new = summarize(
        header(("one", "new"), ("a", "b", "c")), [*attempts("one", a="+", b="-", c="-"), *attempts("new", a="+")]
    )
    made = against(new, old, "old.json").baseline
    assert made is not None
    assert (made.compared, made.changed, made.missing) == (1, ("b",), ("c", "new"))
    assert [(row.agent, row.task, row.verdict) for row in made.rows] == [("one", None, "same"), ("one", "a", "same")]
