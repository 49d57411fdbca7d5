"""Budgets: what the runs of a caller, owner, agent, thread or chain of calls may cost, in money, tokens or runs.

The run itself is counted when it is created, and its tokens when its agent reports them, each in the transaction that
stores them. A cost is known only afterwards: the runs that are active or queued meanwhile may exceed the budget.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Final

import msgspec

from babelgate.canonical.event import Event, InterruptRaised, MessageEnded
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import Message
from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver, parse_traceparent
from babelgate.gateway.runs.budget_question import QUESTION_NODE, QUESTION_PREFIX
from babelgate.gateway.runs.chains import too_many_runs
from babelgate.gateway.runs.rates import RunCaller
from babelgate.gateway.settings.access import ALL
from babelgate.gateway.settings.limits import BudgetSettings, PriceSettings
from babelgate.gateway.storage.spend import Amount, Spend, SpendKey
from babelgate.gateway.storage.transaction import Transaction
from babelgate.usage import MILLION, cost_of, normal

_SCHEMA: Final[JsonObject] = {"type": "boolean"}
_ENDLESS: Final = ""
_DAY: Final = 86_400
"""Seconds of a day."""
_RUN: Final = "run "
"""Prefix of a scope in the table `spend`. The row of this scope has the amounts that an active run was already charged
with, because its messages reported usage."""
_SEPARATOR: Final = "|"
_LASTING: Final = ("key", "owner", "agent")
"""Values of `per` of the budgets whose used part is a metric."""
_CHAIN: Final = "chain "
"""Prefix of a scope in the table `spend`. The row of this scope has the number of runs of a chain of calls."""
ACTIVE_SCOPES: Final = (_RUN, _CHAIN)
"""Prefixes of the scopes whose amounts are needed only while a run or a chain of calls is active."""


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """Period of a budget, such as a day, at whose end the used amounts return to zero."""

    name: str
    """Start of the period as text, such as `2026-11-29` or `2026-11`; empty for a budget without periods."""
    resets_at: datetime | None = None
    """Time at which the next period begins; None for a budget without periods."""

    @classmethod
    def of(cls, every: str | float | None, now: int) -> "BudgetPeriod":
        """Return the period that contains the time `now`, in microseconds since 1970, UTC. `every` is the setting:
        `day`, `month`, seconds or None."""
        if every is None:
            return _ENDLESS_PERIOD
        seconds = float(_DAY) if isinstance(every, str) else float(every)
        return _make_period(every, now / 1e6 // seconds * seconds)

    def describe_reset(self, *, in_days: bool) -> str:
        """Return a clause for error texts that says when the next period begins. With `in_days`, it has the date
        without the time."""
        if self.resets_at is None:
            return "it has no next period, so an operator has to raise it"
        at = self.resets_at.date().isoformat() if in_days else format_time(round(self.resets_at.timestamp() * 1e6))
        return f"its next period begins {'on' if in_days else 'at'} {at}"


_ENDLESS_PERIOD: Final = BudgetPeriod(_ENDLESS)


@lru_cache(maxsize=256)
def _make_period(every: str | float, begin: float) -> BudgetPeriod:
    """Return the period that contains the time `begin`, which is the beginning of a day or of an interval, in seconds
    since 1970, UTC.

    Cached, because each run needs the period of each of its budgets several times.
    """
    at = datetime.fromtimestamp(begin, UTC)
    if every == "day":
        return BudgetPeriod(at.date().isoformat(), at + timedelta(days=1))
    if every == "month":
        first = at.replace(day=1)
        return BudgetPeriod(first.strftime("%Y-%m"), (first + timedelta(days=32)).replace(day=1))
    return BudgetPeriod(at.isoformat(timespec="milliseconds"), at + timedelta(seconds=float(every)))


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """Budget for one value of its scope, such as one owner, in the current period."""

    name: str
    settings: BudgetSettings
    value: str
    """Value that the budget counts separately, such as the name of an agent or an owner."""
    period: BudgetPeriod

    @property
    def key(self) -> SpendKey:
        """Key of the row in the table `spend` that has the used amounts."""
        return f"{self.name}{_SEPARATOR}{self.value}", self.period.name

    def find_excess(self, spend: Spend | None, *, is_counted: bool = False) -> tuple[str, str] | None:
        """Return the used and the allowed amount as texts, such as `("1000", "1000 tokens")`, if the budget is used up.
        Return None otherwise.

        `spend` is the row with the used amounts; None if nothing is used. `is_counted` is true if the number of runs
        already includes the run that is checked.
        """
        used, limit = (spend or Spend(key=self.key)).used, self.settings
        allowed = self.find_allowed(spend)
        if "cost" in allowed and used.cost >= allowed["cost"]:
            return f"{used.cost / MILLION:.2f}", f"{allowed['cost'] / MILLION:.2f} {limit.currency}"
        if "tokens" in allowed and used.tokens >= allowed["tokens"]:
            return f"{used.tokens}", f"{allowed['tokens']} tokens"
        if "runs" in allowed and used.runs - is_counted >= allowed["runs"]:
            return f"{used.runs - is_counted}", f"{allowed['runs']} runs"
        return None

    def find_allowed(self, spend: Spend | None) -> Mapping[str, int]:
        """Return the allowed amounts by name (`cost`, `tokens`, `runs`): the sum of the settings and of what an
        operator has added. The cost is in millionths of the currency."""
        extra = (spend or Spend(key=self.key)).extra
        limit, amounts = self.settings, dict[str, int]()
        if limit.cost is not None:
            amounts["cost"] = round(limit.cost * MILLION) + extra.cost
        if limit.tokens is not None:
            amounts["tokens"] = limit.tokens + extra.tokens
        if limit.runs is not None:
            amounts["runs"] = limit.runs + extra.runs
        return amounts

    def ratio(self, spend: Spend) -> float:
        """Return the used part of the budget, from 0; 1 means that it is used up."""
        used = {"cost": spend.used.cost, "tokens": spend.used.tokens, "runs": spend.used.runs}
        return max(used[name] / allowed for name, allowed in self.find_allowed(spend).items())

    def refuse(self, excess: tuple[str, str], now: int) -> Fault:
        """Return the fault for a run that the budget refuses. `excess` are the used and the allowed amount, and `now`
        is in microseconds since 1970, UTC."""
        used, allowed = excess
        in_days = self.settings.every in ("day", "month")
        details: JsonObject = {"limit": "budget", "used": used, "allowed": allowed}
        if self.period.resets_at is not None:
            at = self.period.resets_at.timestamp()
            details |= {"retry_after": max(1, ceil(at - now / 1e6)), "resets_at": format_time(round(at * 1e6))}
        message = f"{self.describe(excess)}; {self.period.describe_reset(in_days=in_days)}."
        return Fault(code=FaultCode.LIMITED, message=message, details=details)

    def describe(self, excess: tuple[str, str]) -> str:
        """Return a clause for error texts that names the budget and says that it is used up. `excess` are the used and
        the allowed amount."""
        used, allowed = excess
        scope = {"thread": "this thread", "trace": "this chain of calls"}.get(self.settings.per)
        name = self.value.partition(":")[2] or self.value if self.settings.per == "key" else self.value
        return f"The budget {self.name} of {scope or name} is used up ({used} of {allowed})"

    def ask(self, excess: tuple[str, str], run_id: str) -> InterruptRaised:
        """Return the question that pauses a run beyond the budget, and asks to let it continue. `excess` are the used
        and the allowed amount."""
        used, allowed = excess
        answerer = "An operator" if self.settings.raised_by == "admin" else "You"
        return InterruptRaised(
            interrupt_id=f"{QUESTION_PREFIX}{self.name}:{run_id}",
            ask="approval",
            message=Message.of(f"{self.describe(excess)}. {answerer} may let this run go on: continue?", "agent"),
            value={
                "budget": self.name,
                "scope": self.key[0],
                "period": self.key[1],
                "used": used,
                "allowed": allowed,
                "raised_by": self.settings.raised_by,
            },
            answer_schema=_SCHEMA,
            node=QUESTION_NODE,
        )


class BudgetReached(Exception):
    """Reason to pause a run before its agent begins: a budget is used up. It has the question to ask."""

    def __init__(self, question: InterruptRaised, account: "RunAccount") -> None:
        super().__init__(question.interrupt_id)
        self.question = question
        self.account = account


class RunAccount:
    """Account of one run, which checks its budgets and charges them with the run's usage."""

    def __init__(
        self,
        budgets: Mapping[str, BudgetSettings],
        price: PriceSettings,
        caller: RunCaller,
        agent: str,
        trace_id: str,
        clock: Clock,
        observer: GatewayObserver = NO_OBSERVER,
        max_runs: int | None = None,
    ) -> None:
        """Create the account. `budgets` are those that count the run, by name, and `price` is that of its agent.
        `trace_id` identifies the run's chain of calls. `max_runs` is the maximum number of runs of this chain; None for
        no limit."""
        self.is_resumed = False
        """True if the run continues one that the gateway had paused before its agent began. It is then counted as a run
        when it ends."""
        self.may_be_charged = True
        """True if messages of the run may have charged the budgets, so that its end has to subtract these charges."""
        self._max_runs = max_runs if trace_id else None
        self._budgets = budgets
        self._price = price
        self._caller = caller
        self._agent = agent
        self._trace_id = trace_id
        self._clock = clock
        self._observer = observer

    def shares(self, thread_id: str) -> Iterator[BudgetShare]:
        """Yield the budgets that count the run, each for the run's own key, owner, agent, thread or chain of calls."""
        owner, now = self._caller.owner, self._clock.now()
        values = {
            "key": self._caller.subject,
            "owner": owner,
            "agent": self._agent,
            "thread": f"{owner}/{thread_id}",
            "trace": f"{owner}/{self._trace_id}" if self._trace_id else "",
        }
        for name, settings in self._budgets.items():
            if values[settings.per]:
                yield BudgetShare(name, settings, values[settings.per], BudgetPeriod.of(settings.every, now))

    # Commands, in a transaction

    def admit(self, tx: Transaction, thread_id: str) -> None:
        """Check the budgets that refuse runs, and the limit of the chain of calls, before a run is created. Raises
        limited."""
        refusing = [share for share in self.shares(thread_id) if share.settings.on_limit == "refuse"]
        keys = [share.key for share in refusing]
        if self._max_runs is not None:
            keys.append(self._chain_key)
        rows = tx.read_spend(keys)
        if self._max_runs is not None and self._chain_key in rows:
            runs = rows[self._chain_key].used.runs
            if runs >= self._max_runs:
                self._observer.note_limited("chain")
                raise too_many_runs(runs, self._max_runs)
        self._check(refusing, rows)

    def charge_run(self, tx: Transaction, thread_id: str) -> None:
        """Add a run that is being created to the number of runs of its budgets and of its chain of calls."""
        for share in self.shares(thread_id):
            tx.add_spend(share.key, Amount(runs=1))
        if self._max_runs is not None:
            tx.add_spend(self._chain_key, Amount(runs=1))

    def refund_run(self, tx: Transaction, thread_id: str) -> None:
        """Subtract a run that is paused before its agent begins from the number of runs of its budgets."""
        for share in self.shares(thread_id):
            tx.add_spend(share.key, Amount(runs=-1))

    @property
    def _chain_key(self) -> SpendKey:
        return _CHAIN + self._trace_id, self._caller.owner

    def charge_events(
        self, tx: Transaction, thread_id: str, run_id: str, events: Sequence[tuple[Event, bytes]]
    ) -> None:
        """Charge the budgets with the usage that an agent reports in its messages, before the end of its run."""
        for event, _ in events:
            if type(event) is MessageEnded and event.usage:
                amount = self._amount(event.usage)
                self._charge(tx, thread_id, amount)
                tx.add_spend((_RUN + run_id, self._caller.owner), amount)
                self.may_be_charged = True

    def settle(self, tx: Transaction, thread_id: str, run_id: str, usage: JsonObject, *, has_succeeded: bool) -> None:
        """Charge the budgets with the rest of a run that ends: its usage, except what its messages have already
        charged, and the price of a run. A run that has succeeded without reporting usage is counted as unknown, if the
        price says `unknown: refuse`."""
        key = (_RUN + run_id, self._caller.owner)
        charged = tx.read_spend([key]).get(key) if self.may_be_charged else None
        before = Amount() if charged is None else charged.used
        rest = self._amount(usage).beyond(before)
        is_unknown = has_succeeded and not (rest.tokens or rest.cost or before.tokens or before.cost)
        flat = Amount(
            cost=round(self._price.run * MILLION),
            unknown=int(is_unknown and self._price.unknown == "refuse"),
            runs=int(self.is_resumed),
        )
        self._charge(tx, thread_id, rest.plus(flat))
        if charged is not None:
            tx.forget_spend(key)

    def _charge(self, tx: Transaction, thread_id: str, amount: Amount) -> None:
        for share in self.shares(thread_id):
            is_same = share.settings.currency == self._price.currency
            tx.add_spend(share.key, amount if is_same else msgspec.structs.replace(amount, cost=0))

    def _amount(self, usage: JsonObject) -> Amount:
        if not usage:
            return Amount()
        tokens = normal(usage)
        cost = cost_of(tokens, self._price.input, self._price.output) or 0.0
        output = tokens.get("output_tokens", 0)
        return Amount(
            input=round(tokens.get("input_tokens", tokens.get("total_tokens", 0) - output)),
            output=round(output),
            cost=round(cost * MILLION),
        )

    # Decisions before a start

    @property
    def can_pause(self) -> bool:
        """True if a budget pauses runs."""
        return any(each.on_limit == "pause" for each in self._budgets.values())

    def keys(self, thread_id: str) -> Sequence[SpendKey]:
        """Return the keys of the rows in the table `spend` of the budgets that count the run."""
        return [share.key for share in self.shares(thread_id)]

    def decide(self, rows: Mapping[SpendKey, Spend], thread_id: str, run_id: str) -> InterruptRaised | None:
        """Return the question that pauses a run which is about to start, or None if its budgets let it start. Raises
        limited.

        `rows` are the used amounts of its budgets (`keys`).
        """
        shares = list(self.shares(thread_id))
        self._check([share for share in shares if share.settings.on_limit == "refuse"], rows, is_counted=True)
        for share in shares:
            excess = share.find_excess(rows.get(share.key), is_counted=True)
            if share.settings.on_limit == "pause" and excess is not None:
                self._observer.note_limited("budget")
                return share.ask(excess, run_id)
        return None

    def _check(
        self, shares: Sequence[BudgetShare], rows: Mapping[SpendKey, Spend], *, is_counted: bool = False
    ) -> None:
        for share in shares:
            spend = rows.get(share.key)
            excess = share.find_excess(spend, is_counted=is_counted)
            if excess is not None:
                self._observer.note_limited("budget")
                raise FaultError.of(share.refuse(excess, self._clock.now()))
            if spend is not None and spend.used.unknown and share.settings.runs is None:
                self._observer.note_limited("budget")
                raise FaultError(
                    FaultCode.LIMITED,
                    f"The budget {share.name} refuses this run: {spend.used.unknown} earlier runs reported no usage, "
                    "so their cost is unknown.",
                    limit="budget",
                )

    def note_cost(self, usage: JsonObject) -> None:
        """Report the cost of an ended run with this usage to the observer."""
        cost = self._amount(usage).cost / MILLION + self._price.run
        if cost:
            self._observer.note_cost(self._agent, self._price.currency, cost)


class Budgets:
    """Budgets of one gateway, which opens an account for each run."""

    def __init__(
        self,
        budgets: Callable[[], Mapping[str, BudgetSettings]],
        find_price: Callable[[str], PriceSettings | None],
        clock: Clock,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the budgets. `budgets` returns the current setting `budgets`. `find_price` returns the prices of an
        agent, or None if it has none."""
        self._budgets = budgets
        self._find_price = find_price
        self._clock = clock
        self._observer = observer

    @property
    def current(self) -> Mapping[str, BudgetSettings]:
        """Current value of the setting `budgets`: the settings of each budget by its name."""
        return self._budgets()

    def can_count(self, agent: str) -> bool:
        """Return True if there may be budgets or prices for runs of an agent, so that an account is needed."""
        return bool(self._budgets()) or self._find_price(agent) is not None

    def open_account(
        self, caller: RunCaller, agent: str, trace_id: str, max_runs: int | None = None
    ) -> RunAccount | None:
        """Return the account of a new run. Return None if no budget counts it, its agent has no price, and `max_runs`
        sets no maximum for its chain of calls, which `trace_id` identifies."""
        budgets, price = self._budgets(), self._find_price(agent)
        counting = {name: each for name, each in budgets.items() if each.agent == ALL or each.has_agent(agent)}
        if not counting and price is None and max_runs is None:
            return None
        return RunAccount(
            counting, price or PriceSettings(), caller, agent, trace_id, self._clock, self._observer, max_runs
        )

    def periods(self) -> Mapping[str, BudgetPeriod]:
        """Return the current period of each budget, by name."""
        now = self._clock.now()
        return {name: BudgetPeriod.of(each.every, now) for name, each in self._budgets().items()}

    def list_ratio_limits(self) -> Mapping[str, tuple[SpendKey, Mapping[str, int]]]:
        """Return the budgets whose used part is a metric, by name, in the form that
        `babelgate.gateway.storage.spend.read_ratios` takes: the prefix of the scopes with the period, and the allowed
        amounts.

        Budgets per thread and per chain of calls are left out: there are many, and each is meant to be used up.
        """
        shares = (self.find_share(scope_of(name, "")) for name, each in self._budgets().items() if each.per in _LASTING)
        return {share.name: (share.key, share.find_allowed(None)) for share in shares if share is not None}

    def find_share(self, scope: str) -> BudgetShare | None:
        """Return the budget of a scope such as `daily|alice` (name and value) in its current period. Return None if
        there is no budget with this name."""
        name, _, value = scope.partition(_SEPARATOR)
        settings = self._budgets().get(name)
        if settings is None:
            return None
        return BudgetShare(name, settings, value, BudgetPeriod.of(settings.every, self._clock.now()))


def trace_id_of(context: Mapping[str, str]) -> str:
    """Return the trace id in the trace headers that a run has stored, or an empty text if there is none."""
    ids = parse_traceparent(context.get("traceparent", "").encode())
    return "" if ids is None else ids[0]


def scope_of(name: str, value: str) -> str:
    """Return the scope under which the table `spend` has a budget, such as `daily|alice` for the budget `daily` and the
    owner alice."""
    return f"{name}{_SEPARATOR}{value}"
