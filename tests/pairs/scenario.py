"""Selection of the pairs for each scenario, taken from the published matrix."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pytest

from babelgate.canonical import Feature
from docs.pairing import AGENTS, SERVERS, Cell, Side, cell
from tests.gateway.knowledge import offered
from tests.pairs.caller import Caller
from tests.pairs.house import HOUSES

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Scenario:
    agent: str
    """Name of the agent in the cast."""
    features: tuple[Feature, ...]
    """Features that must all arrive. A pair that loses one of them is skipped."""
    shows: tuple[Feature, ...] = ()
    """Features that are tested in the form in which the pair carries them, even if that is with a loss."""


SCENARIOS: Final[dict[str, Scenario]] = {}
"""Scenarios, by the name of the test."""


def lost(agent: Side, caller: type[Caller], features: tuple[Feature, ...]) -> Cell | None:
    """Return the matrix cell of the first of `features` that is lost between the agent and the caller. Return None if
    none is."""
    cells = (cell(agent, SERVERS[caller.speaks], feature) for feature in features)
    return next((each for each in cells if each.level == "dropped"), None)


def pairs(agent: str, *features: Feature, shows: tuple[Feature, ...] = ()) -> Callable[[Test], Test]:
    """Return a decorator that runs a test with every caller and every kind of agents that has the agent.

    A pair that loses one of the features is skipped, and the reason names the protocol that loses it. `shows` lists
    features that are also tested, lost or not.
    """
    cells: list[Any] = []
    for name, kind in HOUSES.items():
        for caller in kind.callers if kind.has(agent) else ():
            without = lost(AGENTS[kind.agent], caller, features)
            if without is not None and {caller.speaks, kind.agent} & offered().keys():
                continue  # the list of skips covers only the protocols of this repository
            marks = [] if without is None else [pytest.mark.skip(reason=without.why)]
            cells.append(pytest.param(name, (caller, agent), id=f"{caller.name}-{name}", marks=marks))

    def mark(test: Test) -> Test:
        SCENARIOS[test.__name__] = Scenario(agent, features, shows)
        return pytest.mark.parametrize(("house", "caller"), cells, indirect=True)(test)

    return mark
