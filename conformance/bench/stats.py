"""The statistics of a report, in the standard library alone. Every function is tested against published values."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, median
from typing import Final

_EXACT: Final = 20
"""Pairs up to which all 2^n signs are gone through; beyond, as many are drawn as `_DRAWN`."""
_DRAWN: Final = 20_000
_TIE: Final = 1e-12
"""Differences within this are the same: they are sums of floats."""


def wilson(passed: int, attempts: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of a proportion (Wilson 1927). At 0 of n and n of n, where the usual one has no width, it is
    still honest."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = passed / attempts
    spread = 1 + z * z / attempts
    centre = (rate + z * z / (2 * attempts)) / spread
    half = z * math.sqrt(rate * (1 - rate) / attempts + z * z / (4 * attempts * attempts)) / spread
    low = 0.0 if passed == 0 else max(0.0, centre - half)
    high = 1.0 if passed == attempts else min(1.0, centre + half)
    return low, high


def pass_hat(passed: int, attempts: int, k: int) -> float:
    """pass^k of one task: the chance that k attempts, drawn without replacement from those made, all passed
    (Yao et al. 2024, τ-bench, equation 1)."""
    return math.comb(passed, k) / math.comb(attempts, k)


def quantile(values: Sequence[float], share: float) -> float:
    """Of a sample, between its values in a straight line (type 7 of Hyndman and Fan, as in NumPy and R)."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def mcnemar(better: int, worse: int) -> float:
    """Two-sided exact p of pairs that differ: were both alike, each would go either way with the same chance
    (McNemar 1947, by the binomial distribution)."""
    pairs = better + worse
    if pairs == 0:
        return 1.0
    tail = sum(math.comb(pairs, i) for i in range(min(better, worse) + 1)) / 2**pairs
    return min(1.0, 2 * tail)


def permutation(differences: Sequence[float], seed: int = 0) -> float:
    """Two-sided p of paired differences (Fisher's randomization test): the share of all ways to set their signs that
    make a sum at least as far from zero. Exact up to 20 pairs that differ."""
    told = [each for each in differences if abs(each) > _TIE]
    if not told:
        return 1.0
    return _sign_flip_test(
        told, abs(sum(told)), lambda signs: abs(sum(s * d for s, d in zip(signs, told, strict=True))), seed
    )


def _sign_flip_test(
    values: Sequence[float], observed: float, statistic: Callable[[Sequence[int]], float], seed: int
) -> float:
    count = len(values)
    if count <= _EXACT:
        hits = sum(
            statistic([1 if number >> i & 1 else -1 for i in range(count)]) >= observed - _TIE
            for number in range(2**count)
        )
        return hits / 2**count
    source = random.Random(seed)
    hits = sum(
        statistic([1 if source.random() < 0.5 else -1 for _ in range(count)]) >= observed - _TIE for _ in range(_DRAWN)
    )
    return (hits + 1) / (_DRAWN + 1)  # the observed one is among them: never zero (Phipson and Smyth 2010)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; what is the same has the mean of its ranks."""
    ordered = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(ordered):
        end = start
        while end + 1 < len(ordered) and values[ordered[end + 1]] - values[ordered[start]] <= _TIE:
            end += 1
        for at in range(start, end + 1):
            ranks[ordered[at]] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def wilcoxon(differences: Sequence[float], seed: int = 0) -> float:
    """Two-sided p of the signed-rank test, zeros left out (Wilcoxon 1945), by its own distribution under the ties that
    there are, and not by the normal one."""
    told = [each for each in differences if abs(each) > _TIE]
    if not told:
        return 1.0
    ranks = _ranks([abs(each) for each in told])
    observed = abs(sum(math.copysign(rank, each) for rank, each in zip(ranks, told, strict=True)))
    return _sign_flip_test(
        ranks, observed, lambda signs: abs(sum(s * r for s, r in zip(signs, ranks, strict=True))), seed
    )


def rank_biserial(differences: Sequence[float]) -> float | None:
    """Of matched pairs (Kerby 2014): the share of the ranks that speak for the first less the share of those against
    it, from -1 to 1; None where no pair differs."""
    told = [each for each in differences if abs(each) > _TIE]
    if not told:
        return None
    ranks = _ranks([abs(each) for each in told])
    return sum(math.copysign(rank, each) for rank, each in zip(ranks, told, strict=True)) / sum(ranks)


def bootstrap_difference(
    differences: Sequence[float], seed: int = 0, draws: int = 2000, confidence: float = 0.95
) -> tuple[float, float]:
    """The percentile interval of a mean of paired differences (Efron 1979), tasks being what is drawn."""
    source = random.Random(seed)
    means = [fmean(source.choices(differences, k=len(differences))) for _ in range(draws)]
    edge = (1 - confidence) / 2
    return quantile(means, edge), quantile(means, 1 - edge)


def fisher(passed: int, attempts: int, passed_before: int, attempts_before: int) -> float:
    """One-sided exact p that the rate fell: the chance of so few passes, or fewer, were both rates the same
    (Fisher 1922)."""
    total, all_passed = attempts + attempts_before, passed + passed_before
    ways = math.comb(total, attempts)
    return sum(math.comb(all_passed, i) * math.comb(total - all_passed, attempts - i) for i in range(passed + 1)) / ways


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted for their number, so that one of many is not believed by chance (Holm 1979)."""
    adjusted = [0.0] * len(values)
    highest = 0.0
    for place, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, values[at] * (len(values) - place)))
        adjusted[at] = highest
    return adjusted


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None
