"""Statistics for the report of a benchmark, with the standard library only. Every function is tested with published
values."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, median
from typing import Final

_MAX_EXACT: Final = 20
"""Maximum number of pairs for which a test tries all 2^n assignments of signs. For more pairs, it draws `_DRAWS` random
assignments. Chosen."""
_DRAWS: Final = 20_000
_TOLERANCE: Final = 1e-12
"""Maximum difference between two numbers that count as equal, because sums of floats are not exact. Chosen."""


def wilson(passed: int, attempts: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the bounds of the confidence interval of a proportion, `passed` of `attempts` (score interval, Wilson
    1927).

    It is valid also for 0 of n and n of n, for which the normal approximation gives an interval without width.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = passed / attempts
    spread = 1 + z * z / attempts
    centre = (rate + z * z / (2 * attempts)) / spread
    half = z * math.sqrt(rate * (1 - rate) / attempts + z * z / (4 * attempts * attempts)) / spread
    low = 0.0 if passed == 0 else max(0.0, centre - half)
    high = 1.0 if passed == attempts else min(1.0, centre + half)
    return low, high


def pass_hat(passed: int, attempts: int, k: int) -> float:
    """Return pass^k of one task: the probability that k attempts, drawn without replacement from the `attempts` made,
    are all among the `passed` ones (Yao et al. 2024, τ-bench, equation 1)."""
    return math.comb(passed, k) / math.comb(attempts, k)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile `share` (0 to 1) of a sample, interpolated linearly (type 7 of Hyndman and Fan, as in NumPy
    and R)."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided exact p value of paired yes/no results, from the numbers of pairs that differ in either
    direction (McNemar 1947, by the binomial distribution).

    The null hypothesis is that both directions have the same probability.
    """
    pairs = better + worse
    if pairs == 0:
        return 1.0
    tail = sum(math.comb(pairs, i) for i in range(min(better, worse) + 1)) / 2**pairs
    return min(1.0, 2 * tail)


def permutation(differences: Sequence[float], seed: int = 0) -> float:
    """Return the two-sided p value of paired differences (Fisher's randomization test).

    The p value is the share of all assignments of signs to the differences whose sum is at least as far from zero as
    the observed sum. It is exact for up to 20 pairs that differ.
    """
    nonzero = [each for each in differences if abs(each) > _TOLERANCE]
    if not nonzero:
        return 1.0
    return _sign_flip_test(
        nonzero, abs(sum(nonzero)), lambda signs: abs(sum(s * d for s, d in zip(signs, nonzero, strict=True))), seed
    )


def _sign_flip_test(
    values: Sequence[float], observed: float, statistic: Callable[[Sequence[int]], float], seed: int
) -> float:
    count = len(values)
    if count <= _MAX_EXACT:
        hits = sum(
            statistic([1 if number >> i & 1 else -1 for i in range(count)]) >= observed - _TOLERANCE
            for number in range(2**count)
        )
        return hits / 2**count
    source = random.Random(seed)
    hits = sum(
        statistic([1 if source.random() < 0.5 else -1 for _ in range(count)]) >= observed - _TOLERANCE
        for _ in range(_DRAWS)
    )
    return (hits + 1) / (
        _DRAWS + 1
    )  # The observed value counts as one of the draws, so that p is never zero (Phipson and Smyth 2010).


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 1 for the smallest. Equal values share the mean of their ranks."""
    ordered = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(ordered):
        end = start
        while end + 1 < len(ordered) and values[ordered[end + 1]] - values[ordered[start]] <= _TOLERANCE:
            end += 1
        for at in range(start, end + 1):
            ranks[ordered[at]] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def wilcoxon(differences: Sequence[float], seed: int = 0) -> float:
    """Return the two-sided p value of the signed-rank test on paired differences, without zeros (Wilcoxon 1945).

    Up to 20 pairs, the distribution is computed exactly, also with ties, and not by the normal approximation.
    """
    nonzero = [each for each in differences if abs(each) > _TOLERANCE]
    if not nonzero:
        return 1.0
    ranks = _ranks([abs(each) for each in nonzero])
    observed = abs(sum(math.copysign(rank, each) for rank, each in zip(ranks, nonzero, strict=True)))
    return _sign_flip_test(
        ranks, observed, lambda signs: abs(sum(s * r for s, r in zip(signs, ranks, strict=True))), seed
    )


def rank_biserial(differences: Sequence[float]) -> float | None:
    """Return the matched-pairs rank-biserial correlation of paired differences (Kerby 2014), or None if all are zero.

    It is the share of the ranks of positive differences minus that of negative ones, from -1 to 1.
    """
    nonzero = [each for each in differences if abs(each) > _TOLERANCE]
    if not nonzero:
        return None
    ranks = _ranks([abs(each) for each in nonzero])
    return sum(math.copysign(rank, each) for rank, each in zip(ranks, nonzero, strict=True)) / sum(ranks)


def bootstrap_difference(
    differences: Sequence[float], seed: int = 0, draws: int = 2000, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the bounds of the confidence interval of the mean of paired differences, one for each task. Tasks are
    resampled `draws` times (percentile bootstrap, Efron 1979)."""
    source = random.Random(seed)
    means = [fmean(source.choices(differences, k=len(differences))) for _ in range(draws)]
    edge = (1 - confidence) / 2
    return quantile(means, edge), quantile(means, 1 - edge)


def fisher(passed: int, attempts: int, passed_before: int, attempts_before: int) -> float:
    """Return the one-sided exact p value of a fall from the rate `passed_before` of `attempts_before` to the rate
    `passed` of `attempts` (Fisher 1922).

    It is the probability of at most `passed` passes now if the true rate has not changed.
    """
    total, all_passed = attempts + attempts_before, passed + passed_before
    ways = math.comb(total, attempts)
    return sum(math.comb(all_passed, i) * math.comb(total - all_passed, attempts - i) for i in range(passed + 1)) / ways


def holm(values: Sequence[float]) -> list[float]:
    """Return p values adjusted for multiple comparisons by Holm's method (Holm 1979), in the order of `values`."""
    adjusted = [0.0] * len(values)
    highest = 0.0
    for place, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, values[at] * (len(values) - place)))
        adjusted[at] = highest
    return adjusted


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None
