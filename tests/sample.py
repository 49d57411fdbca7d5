"""Selections of the tests: a sample with `pytest --sample SEED`, and a third of two suites with `--thin SHARE`.

Most of the time goes to tests with a case for every protocol, route, owner, kind of agent and database. In a sample
each of them runs some cases, which the seed selects: another day, other cases.

- A test with several axes runs with each value of each axis (each-choice coverage), in up to `MOST` cases.
- A test with a list of cases runs one in `SHARE`.
- A test for each database or each event loop runs with one of them.
- One in `PEERS` of the modules that run other people's clients and servers is selected.
- A test of the tier `unit`, and one with few cases, runs completely.

`make check` runs every test, but of two suites only one case in `THIRDS`:

- The pairs of protocols (`tests/pairs`). Their number grows with the square of the number of protocols, and a fault of
  a protocol shows with each of its partners. Each test still meets every caller and every kind of agents that it has.
- The violations of scripted servers, which test the judge (`tests/conformance/mutation.py`).

Each day has another third, so that three days have all.
"""

import datetime
import random
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, Final
from zlib import crc32

import pytest

FEW: Final = 2
"""Number of cases up to which a test runs completely."""
SHARE: Final = 8
MOST: Final = 12
PEERS: Final = 3
THIRDS: Final = 3
"""One of so many cases of the two suites is selected by `--thin`."""
_EITHER: Final = ("postgres", "_asyncio_loop_factory")
"""Axes of which one value is enough."""


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def share_of_today() -> str:
    """Return the number of the third that runs today: 0, 1 or 2."""
    return str(datetime.datetime.now(datetime.UTC).date().toordinal() % THIRDS)


def is_in_share(name: str, share: str) -> bool:
    """Return True if the case with this name is in the third with the number `share`."""
    return crc32(name.encode()) % THIRDS == int(share)


def sampled(items: Sequence[pytest.Item], seed: str) -> Sequence[pytest.Item]:
    """Return the items that run. The same seed selects the same ones in every process."""
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    of_peers = {_module(cases[0]) for cases in tests.values() if cases[0].get_closest_marker("peers") is not None}
    left_out = set(random.Random(seed).sample(sorted(of_peers), len(of_peers) - -(-len(of_peers) // PEERS)))
    chosen = {
        item.nodeid
        for test, cases in tests.items()
        if _module(cases[0]) not in left_out
        for item in _chosen(cases, random.Random(f"{seed} {test}"))
    }
    return [item for item in items if item.nodeid in chosen]


def thinned(items: Sequence[pytest.Item], share: str) -> Sequence[pytest.Item]:
    """Return the items without most cases of the suite of pairs. `share` is the number of the third that stays. Skipped
    cases stay, because the list of skips is checked against them."""
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.nodeid.startswith("tests/pairs/") and item.get_closest_marker("skip") is None:
            tests[item.nodeid.partition("[")[0]].append(item)
    left_out = {item.nodeid for cases in tests.values() for item in _surplus(cases, int(share))}
    return [item for item in items if item.nodeid not in left_out]


def _surplus(cases: Sequence[pytest.Item], share: int) -> Sequence[pytest.Item]:
    """Return the cases of one test that are left out. They lie on all but one of the diagonals of its axes, as in a
    Latin square. Which diagonal stays depends on `share` and on the test."""
    axes = [_axes(case) for case in cases]
    order = {name: list(dict.fromkeys(each.get(name) for each in axes)) for name in axes[0]}
    first = crc32(cases[0].nodeid.partition("[")[0].encode()) + share
    covered = set[Hashable]()
    surplus: list[pytest.Item] = []
    for case, each in sorted(zip(cases, axes, strict=True), key=lambda pair: _diagonal(pair[1], order, first) != 0):
        values = set(each.items())
        if _diagonal(each, order, first) != 0 and values <= covered:
            surplus.append(case)
        covered |= values
    return surplus


def _diagonal(axes: Mapping[str, Hashable], order: Mapping[str, Sequence[Hashable]], first: int) -> int:
    """Return the number of the diagonal on which a case lies; 0 is selected."""
    return (first + sum(values.index(axes.get(name)) for name, values in order.items())) % THIRDS


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _chosen(cases: Sequence[pytest.Item], chance: random.Random) -> Sequence[pytest.Item]:
    if cases[0].get_closest_marker("unit") is not None:
        return cases
    cases = [case for case in cases if case.get_closest_marker("skip") is None] or cases
    axes = [_axes(case) for case in cases]
    for name in _EITHER:
        values = sorted({each[name] for each in axes if name in each}, key=str)
        if len(values) > 1:
            value = chance.choice(values)
            cases, axes = zip(*((c, a) for c, a in zip(cases, axes, strict=True) if a.get(name) == value), strict=True)
    if len(cases) <= FEW:
        return cases
    spread = [name for name in axes[0] if 1 < len({each.get(name) for each in axes}) < len(cases)]
    order = chance.sample(range(len(cases)), len(cases))
    if not spread:
        return [cases[at] for at in sorted(order[: -(-len(cases) // SHARE)])]
    covered = set[Hashable]()
    chosen: list[int] = []
    for at in order:
        values = {(name, axes[at].get(name)) for name in spread}
        if not values <= covered:
            covered |= values
            chosen.append(at)
    return [cases[at] for at in sorted(chosen[:MOST])]


def _axes(item: pytest.Item) -> Mapping[str, Hashable]:
    """Return the value of each parameter in a form that is the same in every process."""
    spec = getattr(item, "callspec", None)
    return {name: _label(value, spec.indices.get(name, 0)) for name, value in spec.params.items()} if spec else {}


def _label(value: Any, index: int) -> Hashable:
    if value is None or isinstance(value, str | int | Enum):
        return value
    if isinstance(value, tuple):
        return tuple(_label(each, index) for each in value)  # pyright: ignore[reportUnknownVariableType]
    return getattr(value, "__qualname__", index)


class Thinning:
    """Plugin that leaves out the cases that `thinned` does."""

    def __init__(self, share: str) -> None:
        self._share = share

    def pytest_report_header(self) -> str:
        return f"pairs and violations: a third (the same again: --thin {self._share}; all of them: make whole-test)"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        _keep(config, items, thinned(items, self._share))


def _keep(config: pytest.Config, items: list[pytest.Item], chosen: Sequence[pytest.Item]) -> None:
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = chosen


class Sample:
    """Plugin that leaves out the other tests and reports the seed."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def pytest_report_header(self) -> str:
        return f"sample: {self._seed} (the same again: make test SAMPLE={self._seed}; every case: make whole-test)"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        _keep(config, items, sampled(items, self._seed))
