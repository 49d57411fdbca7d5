"""A sample of the tests: `pytest --sample SEED`.

Most time goes to tests that meet every protocol, route, owner, kind of agent and database.
In a sample each of them meets some cases, which the seed chooses: another day, other cases.

- Of a test that several axes span, each value of each axis is in some case (each-choice coverage), up to `MOST` cases.
- Of a test with a list of cases, one in `SHARE` is chosen.
- A test of each database or each event loop meets one of them.
- Of the modules that run other people's clients and servers, one in `PEERS` is chosen.
- A test of the tier `unit`, and one with few cases, runs whole.
"""

import datetime
import random
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import pytest

FEW: Final = 2
"""As many cases are all chosen."""
SHARE: Final = 8
MOST: Final = 12
PEERS: Final = 3
_EITHER: Final = ("postgres", "_asyncio_loop_factory")
"""Axes of which one value stands for all."""


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def sampled(items: Sequence[pytest.Item], seed: str) -> Sequence[pytest.Item]:
    """Choose the items that run. The same seed chooses the same in every process."""
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
    seen = set[Hashable]()
    chosen: list[int] = []
    for at in order:
        values = {(name, axes[at].get(name)) for name in spread}
        if not values <= seen:
            seen |= values
            chosen.append(at)
    return [cases[at] for at in sorted(chosen[:MOST])]


def _axes(item: pytest.Item) -> Mapping[str, Hashable]:
    """Return the value of each parameter, as something that is the same in every process."""
    spec = getattr(item, "callspec", None)
    return {name: _label(value, spec.indices.get(name, 0)) for name, value in spec.params.items()} if spec else {}


def _label(value: Any, index: int) -> Hashable:
    if value is None or isinstance(value, str | int | Enum):
        return value
    if isinstance(value, tuple):
        return tuple(_label(each, index) for each in value)  # pyright: ignore[reportUnknownVariableType]
    return getattr(value, "__qualname__", index)


class Sample:
    """The plugin: leaves out what is not chosen, and tells the seed."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def pytest_report_header(self) -> str:
        return f"sample: {self._seed} (the same again: make test SAMPLE={self._seed}; every case: make whole-test)"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = sampled(items, self._seed)
        left_out = set(items) - set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = chosen
