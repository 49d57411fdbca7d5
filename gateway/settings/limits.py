"""Settings of limits on runs: how many may start in a time, how many may be active, and how much they may cost."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt, model_validator

from babelgate.gateway.settings.access import ALL, PATTERN
from babelgate.gateway.settings.fields import Period, SettingsSection

RateScope = Literal["key", "owner", "agent"]

_LONGEST: Final = 366 * 86400.0
"""Maximum value of `every` of a rate limit, in seconds. Chosen: a limit for a longer time is a budget."""


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
    """One rule of `limits.rate`: the number of runs that may start in a period."""

    per: RateScope
    """Scope of the count: `key` (the caller, which is an API key or a user with tokens), `owner` or `agent`."""
    agent: AgentPattern = ALL
    """Agents whose runs are counted: a name, or a pattern such as `dev-*`. By default all."""
    runs: PositiveInt
    """Number of runs that may start in the time `every`."""
    every: Annotated[Period, AfterValidator(_check_every)] = 60.0
    """Time in which `runs` may start, in seconds or as text such as `1m`."""
    burst: PositiveInt | None = None
    """Number of runs that may start at once after a pause. By default `runs`."""

    def has_agent(self, name: str) -> bool:
        """Return True if this rule counts the runs of the agent with this name."""
        return fnmatchcase(name, self.agent)


class ConcurrencyLimit(SettingsSection):
    """Maximum numbers of active runs. Further runs wait. The maximum of an agent is `agents.NAME.concurrency`."""

    per_owner: PositiveInt | None = None
    """Maximum number of active runs of one owner in one process of the gateway. By default there is no limit."""


class ChainLimit(SettingsSection):
    """Limits of one chain of calls: agents that call each other through gateways."""

    depth: PositiveInt | None = 8
    """Maximum depth of the calls. A caller's own call has the depth 1."""
    runs: PositiveInt | None = 200
    """Maximum number of runs of one chain at this gateway."""


_DEFAULT_CURRENCY: Final = "USD"
Currency = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
"""Type of a currency code of ISO 4217, such as `USD`."""
Price = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
BudgetScope = Literal["key", "owner", "agent", "thread", "trace"]


class PriceSettings(SettingsSection):
    """Prices of an agent, for budgets. A cost that the agent reports itself is used instead of the price of tokens."""

    input: Price = 0.0
    """Price of a million input tokens."""
    output: Price = 0.0
    """Price of a million output tokens."""
    run: Price = 0.0
    """Price of one run, in addition to its tokens."""
    currency: Currency = _DEFAULT_CURRENCY
    """Currency of the prices, by its code in ISO 4217."""
    unknown: Literal["flat", "refuse"] = "flat"
    """Effect of a run that reports no usage. `flat` counts only `run`. `refuse` refuses the next run of each budget for
    costs or tokens, until the budget begins again or is raised."""


class BudgetSettings(SettingsSection):
    """One budget: the maximum cost, tokens or number of runs. It needs at least one of `cost`, `tokens` and `runs`."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [amount]} for amount in ("cost", "tokens", "runs")]}
    )

    per: BudgetScope
    """Scope of the budget. Each caller (`key`), `owner`, `agent`, `thread` or `trace` (chain of calls) has a separate
    one."""
    agent: AgentPattern = ALL
    """Agents whose runs are counted: a name, or a pattern such as `dev-*`. By default all."""
    cost: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    """Maximum cost, in the currency."""
    tokens: PositiveInt | None = None
    """Maximum number of tokens, input and output together."""
    runs: PositiveInt | None = None
    """Maximum number of runs."""
    currency: Currency = _DEFAULT_CURRENCY
    """Currency of `cost`. Runs of agents whose prices have another currency do not count."""
    every: Literal["day", "month"] | Period | None = None
    """Period after which the budget begins again: `day` or `month` (in UTC), or a time such as `12h`. By default it
    never begins again."""
    on_limit: Literal["refuse", "pause"] = "refuse"
    """Effect of a budget that is used up: `refuse` the next run, or `pause` it with a question."""
    raised_by: Literal["admin", "owner"] = "admin"
    """Caller who may answer the question of a paused run: one with the right `admin`, or the owner of the run."""

    @model_validator(mode="after")
    def _limits_something(self) -> "BudgetSettings":
        if self.cost is None and self.tokens is None and self.runs is None:
            raise ValueError("needs cost, tokens or runs")
        return self

    def has_agent(self, name: str) -> bool:
        """Return True if this budget counts the runs of the agent with this name."""
        return fnmatchcase(name, self.agent)


def find_limit_doubts(
    rates: Sequence[RateLimit],
    budgets: Mapping[str, BudgetSettings],
    prices: Mapping[str, PriceSettings | None],
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield a location and a text for each rate limit and budget that matches no agent, and each budget without prices.

    `prices` has the prices of each agent, or None for an agent without prices. A location is a tuple such as
    `("budgets", "month")`."""
    for number, rule in enumerate(rates):
        if not any(map(rule.has_agent, prices)):
            yield ("limits", "rate", str(number)), f"no agent matches {rule.agent}"
    for name, budget in budgets.items():
        counted = {agent: price for agent, price in prices.items() if budget.has_agent(agent)}
        if not counted:
            yield ("budgets", name), f"no agent matches {budget.agent}"
        elif budget.cost is None:
            continue
        elif not any(price is not None and price.currency == budget.currency for price in counted.values()):
            yield (
                ("budgets", name),
                f"no agent that it counts has a price in {budget.currency}: set agents.NAME.price, or only costs in "
                f"{_DEFAULT_CURRENCY} that agents report themselves count",
            )
