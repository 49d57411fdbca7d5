"""Simulation of owners on several databases."""

import pytest

from bench.spread import busiest, loads_of, main


def test_the_shares_of_owners_follow_zipfs_law() -> None:
    loads = loads_of(1000, 1.0)
    assert sum(loads) == pytest.approx(1)
    assert loads[0] / loads[9] == pytest.approx(10)


def test_one_database_has_the_mean_load() -> None:
    assert busiest(loads_of(100, 1.2), 1, 0, seed=1) == pytest.approx(1)


def test_equal_owners_that_are_all_placed_spread_evenly() -> None:
    assert busiest([0.125] * 8, 4, 8, seed=1) == pytest.approx(1)


@pytest.mark.parametrize("placed", [0, 1, 1000])
def test_the_largest_owner_bounds_the_busiest_database(placed: int) -> None:
    loads = loads_of(1000, 1.2)
    assert busiest(loads, 32, placed, seed=3) >= loads[0] * 32


def test_the_report_has_a_row_for_each_number_of_databases(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--owners=100", "--seeds=2", "--databases", "2", "4", "--exponents", "1.0", "1.2", "--placed", "0", "5"])
    heading, empty, columns, *rows = capsys.readouterr().out.splitlines()
    assert heading == "100 owners, 2 seeds; busiest database / mean: median (highest)"
    assert not empty
    assert " ".join(columns.split()) == "exponent largest owner databases bound by hash alone 5 placed"
    assert [row.split()[:4] for row in rows] == [
        ["1", "19.3%", "2", "1.00"],
        ["1", "19.3%", "4", "1.00"],
        ["1.2", "27.8%", "2", "1.00"],
        ["1.2", "27.8%", "4", "1.11"],
    ]
