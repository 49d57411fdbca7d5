"""Settings of limits on runs: how many may start in a time."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, PositiveInt

from babelgate.gateway.settings.access import ALL, PATTERN
from babelgate.gateway.settings.fields import Period, SettingsSection

RateScope = Literal["key", "owner", "agent"]

_LONGEST: Final = 366 * 86400.0
"""Longest `every` of a rate, in seconds. Chosen: a longer one is a budget."""


def _check_pattern(value: str) -> str:
    if not PATTERN.fullmatch(value):
        raise ValueError("the name of an agent, or a pattern with * and ?, such as dev-*")
    return value


def _check_every(value: float) -> float:
    if value > _LONGEST:
        raise ValueError("a rate has a period of at most a year; budgets may have longer ones")
    return value


AgentPattern = Annotated[str, AfterValidator(_check_pattern)]


class RateLimit(SettingsSection):
    """One rule of `limits.rate`: the number of runs that may start in a time."""

    per: RateScope
    """What the runs are counted by: `key` (the caller: an API key, or a user with tokens), `owner` or `agent`."""
    agent: AgentPattern = ALL
    """Agents whose runs are counted: a name, or a pattern such as `dev-*`. By default all."""
    runs: PositiveInt
    """Number of runs that may start in the time `every`."""
    every: Annotated[Period, AfterValidator(_check_every)] = 60.0
    """Time in which `runs` may start, in seconds or as text such as `1m`."""
    burst: PositiveInt | None = None
    """Number of runs that may start at once after a pause. By default `runs`."""

    def has_agent(self, name: str) -> bool:
        """Return True if the runs of an agent of this name are counted."""
        return fnmatchcase(name, self.agent)


class ConcurrencyLimit(SettingsSection):
    """Maximum numbers of active runs. Further runs wait. The maximum of an agent is `agents.NAME.concurrency`."""

    per_owner: PositiveInt | None = None
    """Maximum number of active runs of one owner in one process of the gateway. By default there is no limit."""


def find_limit_doubts(rates: Sequence[RateLimit], agents: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield location and text for each rule that probably does not apply to what it was written for."""
    for number, rule in enumerate(rates):
        if not any(map(rule.has_agent, agents)):
            yield ("limits", "rate", str(number)), f"no agent matches {rule.agent}"
