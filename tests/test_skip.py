"""The list of skips: a run with other skips fails."""

import re
from collections.abc import Mapping

import pytest

from babelgate.adapters import ADAPTERS
from tests.skip import Listing, listed


def run(before: Mapping[str, str], *, ran: tuple[str, ...] = (), whole: bool = True, **skipped: str) -> Listing:
    listing = Listing(before)
    listing.whole = whole
    listing.ran = set(ran)
    for test, why in skipped.items():
        listing.note(test, why)
    listing.collected = {*ran, *skipped}
    return listing


def test_the_same_skips_are_no_problem() -> None:
    listing = run({"a": "why"}, ran=("b",), a="why")
    assert listing.problems() == []
    assert listing.after == {"a": "why"}


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        (run({}, a="why"), "a is skipped and not listed: why"),
        (run({"a": "why"}, a="else"), "a is skipped for another reason than listed: else"),
        (run({"a": "why"}, ran=("a",)), "a is listed and not skipped"),
        (run({"a": "why"}), "a is listed and not skipped"),
    ],
    ids=["new", "other", "ran", "gone"],
)
def test_a_different_skip_is_a_problem_until_listed(listing: Listing, problem: str) -> None:
    assert listing.problems() == [problem]
    assert run(listing.after, ran=tuple(listing.ran), whole=listing.whole, **listing.skipped).problems() == []


def test_a_run_of_some_tests_keeps_other_entries() -> None:
    listing = run({"a": "why"}, ran=("b",), whole=False)
    assert listing.problems() == []
    assert listing.after == {"a": "why"}


def test_skips_for_missing_programs_are_not_listed() -> None:
    listing = run({"a": "why"}, a="not on this machine: the peer", b="not on this machine: the peer")
    assert listing.after == {"a": "why"}


def test_pairs_skip_only_declared_losses(accept: bool) -> None:
    if accept:  # the list is written when all tests are done
        return
    declared = {
        f"{feature}: {carry.how} ({carry.source})"
        for adapter in ADAPTERS
        for carries in adapter.carries.values()
        for feature, carry in carries.items()
        if carry.level != "full"
    }
    reasons = {why for test, why in listed().items() if test.startswith("tests/pairs/")}
    assert reasons
    for why in reasons:
        assert set(re.split(r"(?<=\)); ", why)) <= declared, why
