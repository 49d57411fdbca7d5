"""Player that runs each scenario through each protocol. If the ids of a run are valid in the other protocols of the
server, the player also reads the run through those."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Final

from babelgate.conformance.across.driver import Driver, Observation, ScenarioFailed, find_shared_ids, losses_of
from babelgate.conformance.across.find import FoundProtocol, find
from babelgate.conformance.across.model import Handle, Shot
from babelgate.conformance.across.scenario import SCENARIOS, Moment, Scenario
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger
from babelgate.conformance.wire.credentials import credentials_by_origin, hide_credentials, secrets_of
from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import EXCHANGES, Unanswered, Wire

_CONCURRENCY: Final = 6
"""Maximum number of protocols through which one scenario is played at the same time. Chosen."""


class NothingToCompare(Exception):
    """Error for a comparison that is impossible: fewer than two protocols answered, or no scenario matches the filter.
    The message says which."""


@dataclass(frozen=True, slots=True)
class PlayedScenario:
    """Results of one scenario in all protocols."""

    scenario: Scenario
    shots: Mapping[str, Mapping[str, Shot]]
    """Results of the runs that each protocol created, by protocol and name of the moment."""
    cross_shots: Mapping[tuple[str, str], Mapping[str, Shot]]
    """Results of runs that were created through one protocol and read through another. The key is the pair of
    protocols, and the inner key the moment. Empty unless the server reports ids that are valid in all its protocols."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Protocols that cannot express the scenario, each with the reason."""
    skipped: str = ""
    """Reason why the scenario was not played."""


@dataclass(frozen=True, slots=True)
class PlayRecord:
    urls: Sequence[str]
    found: Sequence[FoundProtocol]
    played: Sequence[PlayedScenario]
    seconds: float
    version: str
    secrets: Sequence[str] = ()
    withheld: Sequence[str] = ()
    """Origins that were called because a server's card names them, and that did not receive the user's headers, such as
    API keys."""

    @property
    def protocols(self) -> list[str]:
        return [each.name for each in self.found]

    def title(self, protocol: str) -> str:
        return next(each.driver.title for each in self.found if each.name == protocol)


async def play(
    urls: Sequence[str],
    options: ProbeOptions,
    *,
    only: Sequence[str] = (),
    observe: Callable[[int, int, str], None] = lambda done, total, scenario: None,
) -> PlayRecord:
    """Play the scenarios whose names match a pattern in `only`, or all if `only` is empty, and return the record.

    `observe` is called before each scenario: with the number of scenarios played, the number of all, and the name of
    the next one. Raises NothingToCompare, and Unanswered if no server answers.
    """
    started = time.monotonic()
    secrets = secrets_of(urls, [options.headers])
    options = replace(options, credentials=credentials_by_origin(urls))
    urls = [hide_credentials(url) for url in urls]
    chosen = [each for each in SCENARIOS if not only or any(fnmatchcase(each.name, one) for one in only)]
    if not chosen:
        raise NothingToCompare(
            f"no scenario matches {' or '.join(only)}; the scenarios are {', '.join(e.name for e in SCENARIOS)}"
        )
    agents = dict.fromkeys(each.agent for each in options.triggers.by_behaviour.values() if each.agent)
    async with Wire(
        headers=options.headers, credentials=options.credentials, urls=urls, timeout=options.timeout
    ) as wire:
        found = await find(wire, urls, [*agents])
        if len(found) < 2:
            titles = " and ".join(each.driver.title for each in found) or "no protocol that can be compared"
            raise NothingToCompare(f"{', '.join(urls)}: speaks {titles}; two protocols are needed")
        gate = asyncio.Semaphore(_CONCURRENCY)
        played: list[PlayedScenario] = []
        for number, scenario in enumerate(chosen):
            observe(number, len(chosen), scenario.name)
            played.append(await _play_scenario(scenario, found, options, gate))
    seconds = time.monotonic() - started
    return PlayRecord(urls, found, played, seconds, version("babelgate"), secrets, sorted(wire.withheld))


async def _play_scenario(
    scenario: Scenario, found: Sequence[FoundProtocol], options: ProbeOptions, gate: asyncio.Semaphore
) -> PlayedScenario:
    trigger = options.triggers[scenario.behaviour]
    if trigger.is_never:
        return PlayedScenario(scenario, {}, {}, skipped="the owner declares that the agent never does it")
    if not trigger.is_from_user and scenario.behaviour != "plain":
        return PlayedScenario(
            scenario, {}, {}, skipped=f"needs an input that shows it; pass --trigger {scenario.behaviour}='…'"
        )
    lacks = {each.name: each.driver.lacks[scenario.needs] for each in found if scenario.needs in each.driver.lacks}
    players = [each.driver for each in found if each.name not in lacks]
    others = [each.driver for each in found]
    parts = [_Part(scenario, driver, others, trigger, gate) for driver in players]
    async with asyncio.TaskGroup() as tasks:
        for part in parts:
            tasks.create_task(part.play(), name=f"{scenario.name} by {part.driver.name}")
    shots = {part.driver.name: part.shots for part in parts}
    cross_shots = {
        (part.driver.name, other): shots_through_other
        for part in parts
        for other, shots_through_other in part.cross_shots.items()
    }
    return PlayedScenario(scenario, shots, cross_shots, lacks)


class _Part:
    """One scenario played through one protocol. `shots` and `cross_shots` collect the results."""

    def __init__(
        self, scenario: Scenario, driver: Driver, others: Sequence[Driver], trigger: Trigger, gate: asyncio.Semaphore
    ) -> None:
        self.scenario = scenario
        self.driver = driver
        self.others = others
        self.trigger = trigger
        self.gate = gate
        self.shots: dict[str, Shot] = {}
        self.cross_shots: dict[str, dict[str, Shot]] = {}

    async def play(self) -> None:
        async with self.gate:
            exchanges: list[Exchange] = []
            EXCHANGES.set(exchanges)
            try:
                async with aclosing(self.scenario.play(self.driver, self.trigger)) as moments:
                    async for moment in moments:
                        await self._take(moment, exchanges)
                        exchanges.clear()
            except (
                Exception
            ) as error:  # A server may send anything. The other protocols are compared even if one fails.
                self.shots["the rest"] = _fault(self.driver, error, exchanges)

    async def _take(self, moment: Moment, exchanges: list[Exchange]) -> None:
        shot = _take_shot(self.driver, await self.driver.fetch_files(moment.observation), exchanges)
        self.shots[moment.name] = shot
        if moment.is_at_rest and shot.shared is not None:
            for other in self.others:
                if "shared" in other.lacks:
                    continue
                self.cross_shots.setdefault(other.name, {})[moment.name] = await _look_through(other, shot.shared)


async def _look_through(driver: Driver, handle: Handle) -> Shot:
    exchanges: list[Exchange] = []
    token = EXCHANGES.set(exchanges)
    try:
        return _take_shot(driver, await driver.fetch_files(await driver.observe(handle)), exchanges)
    except Exception as error:
        return _fault(driver, error, exchanges)
    finally:
        EXCHANGES.reset(token)


def _take_shot(driver: Driver, observation: Observation, exchanges: Sequence[Exchange]) -> Shot:
    evidence = list(exchanges)
    return Shot(
        driver.name,
        observation.meaning,
        evidence,
        observation.exchange,
        losses_of(evidence),
        shared=find_shared_ids(observation.handle.agent, evidence),
    )


def _fault(driver: Driver, error: Exception, exchanges: Sequence[Exchange]) -> Shot:
    is_declined = isinstance(error, ScenarioFailed) and error.is_declined
    fault = str(error)
    if not isinstance(error, ScenarioFailed | Unanswered):
        fault = f"the server's answer cannot be read ({type(error).__name__}: {error})"
    return Shot(driver.name, None, list(exchanges), losses=losses_of(exchanges), fault=fault, is_declined=is_declined)
