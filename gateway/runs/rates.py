"""Rate limits: how many runs may start within a period, by key, owner or agent.

The algorithm is GCRA. It stores one number for each caller and rule: the theoretical arrival time (`tat`), at which the
earlier runs no longer count. Each run moves it by `every / runs`. A run is refused if it would move `tat` too far into
the future.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.background import STOPPING
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.exchange import note_headers
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.access import ALL
from babelgate.gateway.settings.limits import RateLimit

_PERIODS: Final[Mapping[float, str]] = {
    1: "a second",
    60: "a minute",
    3600: "an hour",
    86400: "a day",
    604800: "a week",
}
_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_MAX_KEYS: Final = 100_000
"""Number of times `tat` in memory above which those in the past are removed. Chosen: 20 MB."""


@dataclass(frozen=True, slots=True)
class RunCaller:
    """Caller of a run, as limits and budgets count it."""

    subject: str
    """Name of the caller (`babelgate.canonical.principal.Principal.subject`), such as `key:alice`."""
    owner: str
    """Owner of the run."""


@dataclass(frozen=True, slots=True)
class RateDemand:
    """Amount by which one run uses one rate limit."""

    key: str
    """Key under which the time `tat` is stored: the rule, and the caller, owner or agent that it counts."""
    cost: float
    """Time by which the run moves `tat` into the future, in seconds."""
    depth: float
    """Maximum time from now until `tat`, in seconds."""


class RateStore(Protocol):
    """Storage of the GCRA times `tat` of all callers and rules."""

    async def take(self, demands: Sequence[RateDemand]) -> tuple[bool, Sequence[float]]:
        """Charge a run to all keys if every rule has room for it. Return whether it was charged, and the seconds from
        now until each `tat`, without this run.

        Raises unavailable if the storage does not answer.
        """
        ...

    async def give_back(self, demands: Sequence[RateDemand]) -> None:
        """Take back the charge of a run by `take`, because the run was not created."""
        ...

    async def stop(self, seconds: float) -> None:
        """Close the storage."""
        ...


class MemoryRates:
    """Storage of the GCRA times `tat` in this process."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Create an empty storage. `now` is a steady clock, in seconds."""
        self._now = now
        self._tats: dict[str, float] = {}

    async def take(self, demands: Sequence[RateDemand]) -> tuple[bool, Sequence[float]]:
        now, tats = self._now(), self._tats
        used = [max(0.0, tats.get(each.key, now) - now) for each in demands]
        is_free = all(before + each.cost <= each.depth for each, before in zip(demands, used, strict=True))
        if is_free:
            for each, before in zip(demands, used, strict=True):
                tats[each.key] = now + before + each.cost
            if len(tats) > _MAX_KEYS:
                self._tats = {key: tat for key, tat in tats.items() if tat > now}
        return is_free, used

    async def give_back(self, demands: Sequence[RateDemand]) -> None:
        for each in demands:
            if each.key in self._tats:
                self._tats[each.key] -= each.cost

    async def stop(self, seconds: float) -> None:
        """Do nothing: there is nothing to close."""


class RateRule:
    """One rule of the setting `limits.rate`."""

    def __init__(self, limit: RateLimit, name: str) -> None:
        """Prepare a rule. `name` is unique among all rules; headers name the rule by it."""
        self._limit = limit
        self._has_agent: dict[str, bool] = {}
        self._cost = limit.every / limit.runs
        self._burst = limit.burst or limit.runs
        # A tolerance of a microsecond: sums of floating-point numbers are not exact.
        self._depth = self._burst * self._cost + 1e-6
        self._prefix = f"{limit.per} {limit.agent} {limit.runs}/{limit.every:g}/{self._burst} "
        self._name = name
        self.policy = f'"{name}";q={limit.runs};w={ceil(limit.every)}'
        """Value that describes the rule in the header `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11,
        section 3)."""

    def find_demand(self, caller: RunCaller, agent: str) -> RateDemand | None:
        """Return by how much a caller's run uses the rule, or None if the rule does not count the runs of this
        agent."""
        is_counted = self._has_agent.get(agent)
        if is_counted is None:
            is_counted = self._has_agent[agent] = self._limit.has_agent(agent)
        if not is_counted:
            return None
        value = {"key": caller.subject, "owner": caller.owner, "agent": agent}[self._limit.per]
        return RateDemand(self._prefix + value, self._cost, self._depth)

    def find_wait(self, demand: RateDemand, used: float) -> float:
        """Return the seconds until a run has room. `used` is the time from now until `tat`, in seconds."""
        return max(0.0, used + demand.cost - demand.depth)

    def encode_state(self, used: float) -> str:
        """Return the value for the header `RateLimit` (section 4): the runs that may start now, and the seconds until
        all may start again.

        `used` is the time from now until `tat`, in seconds.
        """
        return f'"{self._name}";r={max(0, int((self._depth - used) / self._cost))};t={ceil(used)}'

    def describe(self, caller: RunCaller, agent: str) -> str:
        """Return a clause for error texts such as "The owner alice may start 60 runs a minute"."""
        limit = self._limit
        runs = "1 run" if limit.runs == 1 else f"{limit.runs} runs"
        of_agents = "" if limit.agent == ALL or limit.per == "agent" else f" of {limit.agent}"
        return f"{_describe_scope(limit.per, caller, agent)} may start {runs}{of_agents} {_describe(limit.every)}"

    def refuse(self, caller: RunCaller, agent: str, wait: float, now: int) -> FaultError:
        """Return the error for a run that has to wait for `wait` seconds. `now` is in microseconds since 1970, UTC.

        The details `used` and `allowed` count the runs that may start at once, all of which have been used.
        """
        seconds = max(1, ceil(wait))
        return FaultError(
            FaultCode.LIMITED,
            f"{self.describe(caller, agent)}; the next in {describe_seconds(seconds)}.",
            limit="rate",
            used=self._burst,
            allowed=self._burst,
            retry_after=seconds,
            resets_at=format_time(now + seconds * 1_000_000),
        )


@dataclass(frozen=True, slots=True)
class RateCharge:
    """Charge of one run to all rules that count it, so that it can be undone."""

    demands: Sequence[RateDemand]


class RateLimiter:
    """Limiter of how many runs may start at one gateway (`limits.rate`)."""

    def __init__(
        self,
        limits: Callable[[], Sequence[RateLimit]],
        store: RateStore,
        clock: Clock,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the limiter. `limits` returns the current setting `limits.rate`."""
        self._limits = limits
        self._store = store
        self._clock = clock
        self._observer = observer
        self._compiled: tuple[Sequence[RateLimit], Sequence[RateRule]] = ((), ())

    @property
    def is_active(self) -> bool:
        """True if the settings have a rate limit."""
        return bool(self._limits())

    async def take(self, caller: RunCaller, agent: str) -> RateCharge | None:
        """Charge a run to all rules that count it, and return the charge. Return None if no rule counts it. Raises
        limited, and unavailable.

        The headers of these rules are added to the response to the current request.
        """
        rules = self._find_rules()
        if not rules:
            return None
        counted = [(rule, each) for rule in rules if (each := rule.find_demand(caller, agent)) is not None]
        if not counted:
            return None
        demands = [demand for _, demand in counted]
        is_charged, used = await self._store.take(demands)
        now = [before + each.cost if is_charged else before for each, before in zip(demands, used, strict=True)]
        note_headers(
            {
                "ratelimit-policy": ", ".join(rule.policy for rule, _ in counted),
                "ratelimit": ", ".join(rule.encode_state(each) for (rule, _), each in zip(counted, now, strict=True)),
            }
        )
        if is_charged:
            return RateCharge(demands)
        waits = [rule.find_wait(demand, before) for (rule, demand), before in zip(counted, used, strict=True)]
        longest = max(range(len(waits)), key=waits.__getitem__)
        self._observer.note_limited("rate")
        raise counted[longest][0].refuse(caller, agent, waits[longest], self._clock.now())

    async def give_back(self, charge: RateCharge | None) -> None:
        """Take back the charge of a run, because the run was not created. Do nothing for None."""
        if charge is not None:
            await self._store.give_back(charge.demands)

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._store.stop(seconds)

    def _find_rules(self) -> Sequence[RateRule]:
        """Return the rules for the current setting. They are prepared once for each value of the setting."""
        limits = self._limits()
        if limits is not self._compiled[0]:
            self._compiled = limits, name_rules(limits)
        return self._compiled[1]


def name_rules(limits: Sequence[RateLimit]) -> Sequence[RateRule]:
    """Return the rules of the setting `limits.rate`, each with a unique name: `key`, `key-2`, `agent`, for example."""
    counts: dict[str, int] = {}
    rules: list[RateRule] = []
    for limit in limits:
        number = counts[limit.per] = counts.get(limit.per, 0) + 1
        rules.append(RateRule(limit, limit.per if number == 1 else f"{limit.per}-{number}"))
    return rules


def _describe_scope(per: str, caller: RunCaller, agent: str) -> str:
    if per == "agent":
        return f"The agent {agent}"
    if per == "owner":
        return f"The owner {caller.owner}"
    return describe_caller(caller.subject)


def describe_caller(subject: str) -> str:
    """Return the subject of a principal as the beginning of a sentence: `The key alice` for `key:alice`."""
    kind, _, name = subject.partition(":")
    if kind in ("key", "user", "owner") and name:
        return f"The {kind} {name}"
    return "A caller without a credential"


def _describe(every: float) -> str:
    """Return a period in seconds as words after "60 runs", such as "a minute" or "in 5 minutes"."""
    return _PERIODS.get(every) or f"in {describe_seconds(ceil(every))}"


def describe_seconds(seconds: int) -> str:
    """Return a duration as text in its largest whole unit, such as `5 minutes`."""
    size, name = next(unit for unit in _UNITS if seconds % unit[0] == 0)
    count = seconds // size
    return f"{count} {name}{'' if count == 1 else 's'}"
