"""Which pairs a scenario is played by: the published matrix decides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pytest

from babelgate.canonical import Feature
from docs.pairing import AGENTS, SERVERS, Cell, Side, cell
from tests.gateway.knowledge import knowledge
from tests.pairs.caller import Caller
from tests.pairs.house import HOUSES

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Scenario:
    agent: str
    """Of the cast."""
    features: tuple[Feature, ...]
    """Without one of which there is nothing to show."""
    shows: tuple[Feature, ...] = ()
    """In what each pair makes of them."""


SCENARIOS: Final[dict[str, Scenario]] = {}
"""By the name of the test."""


def lost(agent: Side, caller: type[Caller], features: tuple[Feature, ...]) -> Cell | None:
    """The first of the cells that says that the scenario cannot be shown."""
    cells = (cell(agent, SERVERS[caller.speaks], feature) for feature in features)
    return next((each for each in cells if each.level == "dropped"), None)


def pairs(agent: str, *features: Feature, shows: tuple[Feature, ...] = ()) -> Callable[[Test], Test]:
    """Every caller with every kind of agent that has such an agent; skipped where one of the features is lost on the
    way, in the words of the protocol that loses it. `shows` = what else is tested, lost or not."""
    cells: list[Any] = []
    for name, kind in HOUSES.items():
        for caller in kind.callers if kind.has(agent) else ():
            without = lost(AGENTS[kind.agent], caller, features)
            if without is not None and {caller.speaks, kind.agent} & knowledge().keys():
                continue  # the list of skips is of what this repository has
            marks = [] if without is None else [pytest.mark.skip(reason=without.why)]
            cells.append(pytest.param(name, (caller, agent), id=f"{caller.name}-{name}", marks=marks))

    def mark(test: Test) -> Test:
        SCENARIOS[test.__name__] = Scenario(agent, features, shows)
        return pytest.mark.parametrize(("house", "caller"), cells, indirect=True)(test)

    return mark
