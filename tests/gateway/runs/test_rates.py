"""Rate limits: what they grant, and what they tell a caller who must wait."""

from collections.abc import Sequence
from typing import Any

import pytest

from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.clock import Clock
from babelgate.gateway.exchange import enter_exchange
from babelgate.gateway.runs.rates import MemoryRates, RateLimiter, RunCaller
from babelgate.gateway.settings.limits import RateLimit

CI = RunCaller("key:ci", "acme")


class Now:
    """Clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: int(self.seconds * 1e6), steady=lambda: int(self.seconds * 1e6))


def limiter(now: Now, *rules: dict[str, Any]) -> RateLimiter:
    limits = tuple(RateLimit.model_validate(rule) for rule in rules)
    return RateLimiter(lambda: limits, MemoryRates(lambda: now.seconds), now.clock)


async def grants(rates: RateLimiter, times: int, caller: RunCaller = CI, agent: str = "planner") -> int:
    """Return how many of several runs are granted."""
    granted = 0
    for _ in range(times):
        try:
            await rates.take(caller, agent)
        except FaultError as error:
            assert error.fault.code is FaultCode.LIMITED
        else:
            granted += 1
    return granted


async def test_a_burst_is_granted_and_then_the_rate() -> None:
    now = Now()
    rates = limiter(now, {"per": "key", "runs": 60, "every": "1m", "burst": 10})
    assert await grants(rates, 20) == 10
    now.seconds = 3
    assert await grants(rates, 20) == 3
    now.seconds = 3600  # a long pause grants no more than the burst
    assert await grants(rates, 20) == 10
    assert await grants(rates, 20, RunCaller("key:other", "acme")) == 10


@pytest.mark.parametrize(
    ("rule", "caller", "message"),
    [
        ({"per": "key", "runs": 60, "burst": 1}, CI, "The key ci may start 60 runs a minute; the next in 1 second."),
        ({"per": "key", "runs": 1, "every": "1h"}, CI, "The key ci may start 1 run an hour; the next in 1 hour."),
        (
            {"per": "key", "runs": 1, "every": "90s", "agent": "plan*"},
            RunCaller("user:corp:alice", "acme"),
            "The user corp:alice may start 1 run of plan* in 90 seconds; the next in 90 seconds.",
        ),
        (
            {"per": "key", "runs": 1},
            RunCaller("anonymous", "default"),
            "A caller without a credential may start 1 run a minute; the next in 1 minute.",
        ),
        ({"per": "owner", "runs": 1}, CI, "The owner acme may start 1 run a minute; the next in 1 minute."),
        ({"per": "agent", "runs": 1}, CI, "The agent planner may start 1 run a minute; the next in 1 minute."),
    ],
)
async def test_a_refusal_names_the_limit_and_the_next_time(
    rule: dict[str, Any], caller: RunCaller, message: str
) -> None:
    rates = limiter(Now(), rule)
    await rates.take(caller, "planner")
    with pytest.raises(FaultError, match="may start") as raised:
        await rates.take(caller, "planner")
    fault = raised.value.fault
    assert fault.message == message
    assert fault.details["limit"] == "rate" and fault.details["retry_after"] >= 1


@pytest.mark.parametrize(
    ("rule", "expected"),
    [({"runs": 3}, 3), ({"runs": 60, "burst": 2}, 2), ({"runs": 2, "burst": 5}, 5)],
)
async def test_a_refusal_reports_the_runs_that_may_start_at_once(rule: dict[str, Any], expected: int) -> None:
    rates = limiter(Now(), {"per": "key", **rule})
    assert await grants(rates, expected) == expected
    with pytest.raises(FaultError, match="may start") as raised:
        await rates.take(CI, "planner")
    details = raised.value.fault.details
    assert (details["used"], details["allowed"]) == (expected, expected)


async def test_a_refusal_by_one_rule_charges_no_other() -> None:
    now = Now()
    rates = limiter(now, {"per": "key", "runs": 10}, {"per": "agent", "agent": "planner", "runs": 1})
    assert await grants(rates, 5) == 1
    assert await grants(rates, 20, agent="echo") == 9


async def test_a_refund_makes_room_for_another_run() -> None:
    rates = limiter(Now(), {"per": "key", "runs": 1})
    for _ in range(3):
        await rates.give_back(await rates.take(CI, "planner"))
    assert await grants(rates, 2) == 1


async def test_the_response_states_the_policies_and_the_rest() -> None:
    headers: dict[str, str] = {}
    enter_exchange({}, headers=headers)
    rates = limiter(
        Now(), {"per": "key", "runs": 60, "burst": 10}, {"per": "agent", "runs": 600}, {"per": "key", "runs": 9000}
    )
    await rates.take(CI, "planner")
    assert headers == {
        "ratelimit-policy": '"key";q=60;w=60, "agent";q=600;w=60, "key-2";q=9000;w=60',
        "ratelimit": '"key";r=9;t=1, "agent";r=599;t=1, "key-2";r=8999;t=1',
    }


async def test_a_reload_replaces_the_rules() -> None:
    limits: list[Sequence[RateLimit]] = [(RateLimit(per="key", runs=1),)]
    rates = RateLimiter(lambda: limits[-1], MemoryRates(lambda: 0.0), Clock())
    assert await grants(rates, 3) == 1
    limits.append((RateLimit(per="key", runs=5),))
    assert await grants(rates, 9) == 5
    limits.append(())
    assert await grants(rates, 9) == 9
