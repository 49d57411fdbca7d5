"""Statistics, compared with published values."""

import random

import pytest

from babelgate.conformance.bench import stats

DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Heights of cross- and self-fertilized maize, in eighths of an inch: Fisher, The Design of Experiments, section 17."""
DEPRESSION = [0.952, -0.147, 1.022, 0.430, 0.620, 0.590, 0.490, -0.080, 0.010]
"""Hollander and Wolfe 1973, page 29, as in the documentation of R's wilcox.test."""


@pytest.mark.parametrize(
    ("passed", "attempts", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_matches_newcombes_table(passed: int, attempts: int, low: float, high: float) -> None:
    """Compare with Newcombe 1998, Statistics in Medicine 17, table I, method 3."""
    assert stats.wilson(passed, attempts) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_wilsons_interval_is_symmetric() -> None:
    low, high = stats.wilson(7, 9)
    assert stats.wilson(2, 9) == (pytest.approx(1 - high), pytest.approx(1 - low))
    assert stats.wilson(9, 9)[1] == 1.0


def test_mcnemars_test_is_the_binomial_test_of_discordant_pairs() -> None:
    assert stats.mcnemar(121, 59) == pytest.approx(4.434444e-06, rel=1e-5)  # statsmodels' documentation
    assert stats.mcnemar(6, 16) == pytest.approx(0.05248, abs=5e-6)  # R: binom.test(6, 22)
    assert stats.mcnemar(0, 6) == 2 / 2**6
    assert stats.mcnemar(3, 3) == stats.mcnemar(0, 0) == 1.0


def test_permutation_test_matches_fishers_number() -> None:
    assert stats.permutation(DARWIN) == 2 * 863 / 2**15


def test_permutation_test_ignores_equal_pairs() -> None:
    assert stats.permutation([*DARWIN, 0, 0, 0]) == stats.permutation(DARWIN)
    assert stats.permutation([0.0, 0.0]) == stats.permutation([]) == 1.0


def test_permutation_test_samples_many_pairs() -> None:
    """Test 25 pairs of 25 in one direction: p = 2/2^25, but samples cannot show less than one in their number."""
    assert stats.permutation([1.0] * 25) == pytest.approx(1 / 20_001)
    source = random.Random(1)
    noise = [source.gauss(0, 1) for _ in range(40)]
    drawn = stats.permutation(noise, seed=3)
    assert drawn == stats.permutation(noise, seed=3)
    assert drawn == pytest.approx(stats.permutation(noise, seed=4), abs=0.02)


def test_wilcoxons_test_matches_r() -> None:
    assert stats.wilcoxon(DEPRESSION) == pytest.approx(2 * 0.01953125)
    assert stats.wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 / 2**5


def test_rank_biserial_correlation_is_the_difference_of_rank_sums() -> None:
    assert stats.rank_biserial(DEPRESSION) == pytest.approx((40 - 5) / 45)  # R's V is 40, of 45
    assert stats.rank_biserial([1, 2, 3]) == 1.0
    assert stats.rank_biserial([1, -1]) == 0.0
    assert stats.rank_biserial([0, 0]) is None


def test_fishers_exact_test_matches_the_lady_tasting_tea() -> None:
    assert stats.fisher(1, 4, 3, 4) == pytest.approx(17 / 70)
    assert stats.fisher(0, 10, 10, 10) == pytest.approx(1 / 184756)
    assert stats.fisher(4, 4, 4, 4) == 1.0


def test_pass_hat_is_the_share_of_draws_without_a_failure() -> None:
    """Compare with τ-bench: if 3 of 4 attempts passed, 3 of the 6 pairs of attempts passed."""
    assert [stats.pass_hat(3, 4, k) for k in (1, 2, 3, 4)] == [3 / 4, 3 / 6, 1 / 4, 0.0]


def test_holms_method_matches_the_textbook() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == [
        pytest.approx(0.03),
        pytest.approx(0.06),
        pytest.approx(0.06),
        pytest.approx(0.02),
    ]
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]


def test_quantiles_match_r_and_numpy() -> None:
    ten = list(range(1, 11))
    assert [stats.quantile(ten, share) for share in (0, 0.25, 0.5, 0.95, 1)] == [1, 3.25, 5.5, pytest.approx(9.55), 10]
    assert stats.quantile([7.0], 0.95) == 7.0


def test_bootstrap_interval_contains_the_mean_and_is_reproducible() -> None:
    low, high = stats.bootstrap_difference(DARWIN, seed=1)
    assert low < 314 / 15 < high
    # Fisher's own interval by the t distribution is 0.03 to 41.84.
    assert (low, high) == (pytest.approx(1.5, abs=4), pytest.approx(38.5, abs=4))
    assert stats.bootstrap_difference(DARWIN, seed=1) == (low, high)
    assert stats.bootstrap_difference([0.5] * 4) == (0.5, 0.5)
