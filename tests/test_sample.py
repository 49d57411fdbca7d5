"""The sample of tests: it has some cases of each test, selected by the seed."""

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from tests.sample import MOST, PEERS, SHARE, THIRDS, is_in_share, sampled, thinned


def items(test: str, *marks: str, **axes: Iterable[Any]) -> list[Any]:
    """Return items as pytest collects them: one case for each combination of values."""
    return [
        SimpleNamespace(
            nodeid=f"{test}[{'-'.join(map(str, values))}]",
            callspec=SimpleNamespace(params=dict(zip(axes, values, strict=True)), indices=dict.fromkeys(axes, at)),
            get_closest_marker=lambda name: name if name in marks else None,  # pyright: ignore[reportUnknownLambdaType]
        )
        for at, values in enumerate(itertools.product(*axes.values()))
    ]


def names(chosen: Iterable[Any]) -> set[str]:
    return {each.nodeid for each in chosen}


def test_each_value_of_each_axis_is_chosen() -> None:
    chosen: Any = sampled(items("t.py::test", one="abcde", other="vwxyz"), "1")
    for axis in ("one", "other"):
        assert len({each.callspec.params[axis] for each in chosen}) == 5
    assert len(chosen) < 12


def test_one_in_several_of_a_list_is_chosen() -> None:
    assert len(sampled(items("t.py::test", at=range(40)), "1")) == 40 // SHARE


def test_the_number_of_cases_is_limited() -> None:
    assert len(sampled(items("t.py::test", at=range(40), other=range(20)), "1")) == MOST


def test_one_database_is_enough() -> None:
    assert len(sampled(items("t.py::test", postgres=[False, True]), "1")) == 1


def test_a_unit_test_runs_completely() -> None:
    assert len(sampled(items("t.py::test", "unit", at=range(40)), "1")) == 40


def test_a_skipped_case_is_not_chosen() -> None:
    skipped = items("t.py::test", "skip", at=["skipped"])
    assert names(sampled([*items("t.py::test", at=[1, 2]), *skipped], "1")) == {"t.py::test[1]", "t.py::test[2]"}


def test_the_seed_selects_the_cases() -> None:
    cases = items("t.py::test", at=range(400))
    assert sampled(cases, "1") == sampled(cases, "1")
    assert sampled(cases, "1") != sampled(cases, "2")


def test_one_in_several_modules_of_peers_is_chosen() -> None:
    cases = [each for number in range(2 * PEERS) for each in items(f"t{number}.py::test", "peers", at=[1])]
    assert len(sampled(cases, "1")) == 2


def test_a_third_of_the_pairs_has_every_value() -> None:
    pairs = items("tests/pairs/t.py::test", house="abcdefghi", caller=range(12))
    chosen: Any = thinned(pairs, "1")
    assert len(chosen) == len(pairs) / THIRDS
    for axis, count in (("house", 9), ("caller", 12)):
        assert len({each.callspec.params[axis] for each in chosen}) == count


def test_a_lonely_pair_is_never_left_out() -> None:
    lonely = [items(f"tests/pairs/t{at}.py::test", house="a", caller=[1])[0] for at in range(THIRDS)]
    assert thinned(lonely, "0") == lonely


def test_only_pairs_that_run_are_left_out() -> None:
    others = items("tests/t.py::test", house="abc", caller=range(12))
    skipped = items("tests/pairs/t.py::test", "skip", house="abc", caller=range(12))
    assert thinned([*others, *skipped], "0") == [*others, *skipped]


def test_three_shares_have_everything_once() -> None:
    pairs = items("tests/pairs/t.py::test", house="abcdefghi", caller=range(12))
    shares = [names(thinned(pairs, str(share))) for share in range(THIRDS)]
    assert set().union(*shares) == names(pairs)
    assert sum(map(len, shares)) == len(pairs)
    assert all(sum(is_in_share(name, str(share)) for share in range(THIRDS)) == 1 for name in map(str, range(50)))
