"""Table `spend`: the amounts that runs have used of budgets, by scope and period.

Amounts are integers; costs are in millionths of the currency. The amounts that a transaction adds are buffered, and
written in the order of their keys, so that two gateways do not deadlock."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Dialect, Double, bindparam, cast, delete, func, or_, select, text, update

from babelgate.canonical.thread import Interrupt
from babelgate.gateway.storage.prepared import Statement
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import ADD_SPEND, sql_of, table_of
from babelgate.gateway.storage.tables import InterruptRow, SpendRow

SpendKey = tuple[str, str]
"""Scope of a budget, such as `month|planner`, and beginning of the period, such as `2026-11`. The period is empty for a
budget that never resets."""

_SPEND: Final = table_of(SpendRow)
_INTERRUPT: Final = table_of(InterruptRow)
_ADD: Final = text(ADD_SPEND)


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts that one or several runs have used: tokens, cost and number of runs."""

    input: int = 0
    """Number of input tokens."""
    output: int = 0
    """Number of output tokens."""
    cost: int = 0
    """Cost, in millionths of the currency."""
    runs: int = 0
    unknown: int = 0
    """Number of runs that reported no usage although their agent must report it."""

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def plus(self, other: "Amount") -> "Amount":
        """Return the sum of two amounts, member by member."""
        return Amount(
            input=self.input + other.input,
            output=self.output + other.output,
            cost=self.cost + other.cost,
            runs=self.runs + other.runs,
            unknown=self.unknown + other.unknown,
        )

    def beyond(self, earlier: "Amount") -> "Amount":
        """Return this amount minus an earlier one, member by member. Negative differences become 0."""
        pairs = {name: getattr(self, name) - getattr(earlier, name) for name in Amount.__struct_fields__}
        return Amount(**{name: max(0, number) for name, number in pairs.items()})


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts by which operators have raised a budget in one scope and period."""

    cost: int = 0
    tokens: int = 0
    runs: int = 0


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """Row of the table: the used amounts of one budget in one scope and period, and its extra amounts."""

    key: SpendKey
    used: Amount = Amount()
    extra: Extra = Extra()
    changed_at: int = 0


class SpendBuffer:
    """Changes of the table `spend` that a transaction has made and not written yet."""

    def __init__(self) -> None:
        self._added: dict[SpendKey, Amount] = {}
        self._forgotten: list[SpendKey] = []

    def forget(self, key: SpendKey) -> None:
        """Mark the row of a key for deletion, and discard the amounts buffered for it."""
        self._added.pop(key, None)
        self._forgotten.append(key)

    def add(self, key: SpendKey, amount: Amount) -> None:
        before = self._added.get(key)
        self._added[key] = amount if before is None else before.plus(amount)

    def read(self, connection: Connection, keys: Sequence[SpendKey]) -> Mapping[SpendKey, Spend]:
        """Return the existing rows of these keys, with the buffered amounts added."""
        rows = read_spend(connection, keys)
        for key in keys:
            if key in self._added:
                row = rows.get(key) or Spend(key=key)
                rows[key] = msgspec.structs.replace(row, used=row.used.plus(self._added[key]))
        return rows

    def flush(self, connection: Connection, now: Callable[[], int]) -> None:
        """Write the buffered changes. `now` returns the time, in microseconds since 1970, UTC."""
        if self._added:
            at = now()
            rows = [
                (*key, amount.input, amount.output, amount.cost, amount.runs, amount.unknown, at)
                for key, amount in sorted(self._added.items(), key=lambda item: item[0])
            ]
            self._added = {}
            sql_of(connection.dialect).add_spend.run_many(connection, rows)
        if self._forgotten:
            keys, self._forgotten = self._forgotten, []
            sql_of(connection.dialect).forget_spend.run_many(connection, keys)

    def clear(self) -> None:
        """Discard the buffered changes."""
        self._added, self._forgotten = {}, []


def read_spend(connection: Connection, keys: Sequence[SpendKey]) -> dict[SpendKey, Spend]:
    """Return the rows of these keys, by key. Keys without a row are left out."""
    if not keys:
        return {}
    dialect = connection.dialect
    reading = _reading(type(dialect), dialect.paramstyle, len(keys))
    rows = reading.run(connection, tuple(chain.from_iterable(keys)))
    return {row.key: row for row in map(_decode, rows)}


@cache
def _reading(kind: Callable[..., Dialect], paramstyle: str, count: int) -> Statement:
    """Return the statement that reads the rows of `count` keys. A key has two parameters: its scope and its period.
    `kind` is the class of the database's dialect, and `paramstyle` the form in which its driver takes parameters."""
    names = [(f"scope_{number}", f"period_{number}") for number in range(count)]
    wanted = or_(
        *((_SPEND.c.scope == bindparam(scope)) & (_SPEND.c.period == bindparam(period)) for scope, period in names)
    )
    return Statement(select(_SPEND).where(wanted), kind(paramstyle=paramstyle), tuple(chain.from_iterable(names)))


def list_spend(connection: Connection, prefixes: Iterable[SpendKey], limit: int) -> list[Spend]:
    """Return up to `limit` rows, the largest cost first.

    Each of `prefixes` selects the rows of one period whose scope begins with a text."""
    conditions = [
        _SPEND.c.scope.startswith(prefix, autoescape=True) & (_SPEND.c.period == period) for prefix, period in prefixes
    ]
    if not conditions:
        return []
    order = (_SPEND.c.cost.desc(), _SPEND.c.runs.desc(), _SPEND.c.scope)
    rows = connection.execute(select(_SPEND).where(or_(*conditions)).order_by(*order).limit(limit))
    return [_decode(tuple(row)) for row in rows]


def read_ratios(connection: Connection, limits: Iterable[tuple[SpendKey, Mapping[str, int]]]) -> list[float]:
    """Return the highest used part of each limit, over the scopes that begin with its prefix, in its period.

    A limit has the allowed amounts by name (`cost`, `tokens`, `runs`), to which each scope adds what an operator has
    raised. The part is 0 if nothing is used.
    """
    used = {"cost": _SPEND.c.cost, "tokens": _SPEND.c.input + _SPEND.c.output, "runs": _SPEND.c.runs}
    ratios: list[float] = []
    for (prefix, period), allowed in limits:
        parts = [
            func.max(cast(used[name], Double) / (amount + _SPEND.c[f"extra_{name}"]))
            for name, amount in allowed.items()
        ]
        is_in = _SPEND.c.scope.startswith(prefix, autoescape=True) & (_SPEND.c.period == period)
        row = connection.execute(select(*parts).where(is_in)).one()
        ratios.append(max(float(part or 0) for part in row))
    return ratios


def raise_spend(connection: Connection, key: SpendKey, extra: Extra, now: int) -> Spend:
    """Add `extra` to the row of a key, create it if necessary, and return it. The number of runs without usage becomes
    0."""
    scope, period = key
    empty = dict.fromkeys(Amount.__struct_fields__, 0)
    connection.execute(_ADD, {"scope": scope, "period": period, "now": now, **empty})
    columns: dict[str, Any] = {
        f"extra_{name}": _SPEND.c[f"extra_{name}"] + getattr(extra, name) for name in Extra.__struct_fields__
    }
    connection.execute(update(_SPEND).where(_is(key)).values(columns | {"unknown": 0}))
    return read_spend(connection, [key])[key]


def prune_spend(connection: Connection, before: int, active: Sequence[str], active_before: int) -> int:
    """Delete the rows that have not changed since `before`, and return their number.

    Rows whose scope begins with one of the texts in `active` are deleted if they have not changed since
    `active_before`. Both times are in microseconds since 1970."""
    is_active = or_(*(_SPEND.c.scope.startswith(prefix, autoescape=True) for prefix in active))
    old = or_(_SPEND.c.changed_at < before, is_active & (_SPEND.c.changed_at < active_before))
    return connection.execute(delete(_SPEND).where(old)).rowcount


def list_questions(connection: Connection, prefix: str) -> list[tuple[str, Interrupt]]:
    """Return the open questions whose ids begin with `prefix`, each with its owner.

    The gateway finds its own questions about budgets by such a prefix."""
    is_open = _INTERRUPT.c.action.is_(None) & _INTERRUPT.c.interrupt_id.startswith(prefix, autoescape=True)
    rows = connection.execute(select(_INTERRUPT.c.owner, _INTERRUPT.c.body).where(is_open))
    return [(owner, decode_row(Interrupt, body)) for owner, body in rows]


def _is(key: SpendKey) -> Any:
    return (_SPEND.c.scope == key[0]) & (_SPEND.c.period == key[1])


def _decode(row: tuple[Any, ...]) -> Spend:
    """Return a row of the table, whose columns are in its order."""
    scope, period, tokens_in, tokens_out, cost, runs, unknown, extra_cost, extra_tokens, extra_runs, changed_at = row
    return Spend(
        key=(scope, period),
        used=Amount(input=tokens_in, output=tokens_out, cost=cost, runs=runs, unknown=unknown),
        extra=Extra(cost=extra_cost, tokens=extra_tokens, runs=extra_runs),
        changed_at=changed_at,
    )
