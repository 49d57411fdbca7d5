"""Commands of the writer that change budgets: an operator raises one, and the gateway deletes old amounts."""

from collections.abc import Sequence

from babelgate.gateway.exchange import ActOrigin
from babelgate.gateway.storage import spend
from babelgate.gateway.storage.audit import Act, ActTarget, digest, lock_audit, record_act
from babelgate.gateway.storage.spend import Extra, Spend, SpendKey
from babelgate.gateway.storage.transaction import Transaction


def raise_budget(tx: Transaction, name: str, key: SpendKey, extra: Extra, now: int, origin: ActOrigin) -> Spend:
    """Add `extra` to a budget in the scope and period of `key`, and record it in the audit log. Return the updated row.

    `name` is the budget's name in the settings, and `now` is in microseconds since 1970."""
    lock_audit(tx)
    before = spend.read_spend(tx.connection, [key]).get(key, Spend(key=key))
    after = spend.raise_spend(tx.connection, key, extra, now)
    tx.touched += 1
    act = Act(
        action="budget.raise",
        target=ActTarget("budget", name),
        reason=f"{key[0]} {key[1]}".strip(),
        before=digest(_describe(before)),
        after=digest(_describe(after)),
        origin=origin,
    )
    record_act(tx, act)
    return after


def prune(tx: Transaction, before: int, active: Sequence[str], active_before: int) -> int:
    """Delete amounts of past periods, as `babelgate.gateway.storage.spend.prune_spend` does, and return their
    number."""
    tx.touched += 1
    return spend.prune_spend(tx.connection, before, active, active_before)


def _describe(row: Spend) -> dict[str, int]:
    return {"cost": row.extra.cost, "tokens": row.extra.tokens, "runs": row.extra.runs}
