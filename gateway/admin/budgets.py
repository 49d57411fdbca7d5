"""Budgets over the administration API: the amounts that are used, and an operator's raises."""

from typing import Any, Final

import msgspec
from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.admin.bodies import AnyRequest, read_body, read_limit
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.exchange import current_origin
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs.budgets import BudgetShare, scope_of
from babelgate.gateway.storage.budget_commands import raise_budget
from babelgate.gateway.storage.spend import Extra, Spend, list_spend
from babelgate.usage import MILLION

_MAX_EXTRA: Final = 10**9
"""Maximum amount of one raise. Chosen: sums of many raises fit 64 bits."""


class Raise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request that raises a budget for one value of its scope, such as one owner, until its period ends."""

    scope: str
    """Value by which the budget counts, such as an owner's name, as `GET /admin/budgets` shows it."""
    cost: float = 0.0
    """Amount to add, in the currency of the budget."""
    tokens: int = 0
    runs: int = 0


class BudgetHandlers(Handlers):
    """HTTP handlers of the administration API for budgets."""

    def __init__(self, hub: GatewayHub, clock: Clock | None = None) -> None:
        self._hub = hub
        self._clock = clock or Clock()

    async def list_budgets(self, request: AnyRequest) -> Response[Any]:
        """Return all budgets, with the scopes that have used most of them. Raises invalid for a wrong `limit`."""
        limit = read_limit(request, 100, 1000)
        return Response({"budgets": await encode_budgets(self._hub, limit)})

    async def raise_budget(self, request: AnyRequest, name: FromPath[str]) -> Response[Any]:
        """Raise a budget in one scope. Raises not_found for an unknown budget, and invalid if the body names no amount
        or one out of range."""
        body = await read_body(request, Raise)
        share = self._hub.budgets.find_share(scope_of(name, body.scope))
        if share is None:
            raise FaultError(FaultCode.NOT_FOUND, f"There is no budget {name[:100]!r}. GET /admin/budgets lists them.")
        amounts = {"cost": body.cost, "tokens": body.tokens, "runs": body.runs}
        if not all(0 <= amount <= _MAX_EXTRA for amount in amounts.values()) or not any(amounts.values()):
            raise FaultError(FaultCode.INVALID, f"expected cost, tokens or runs, each from 0 to {_MAX_EXTRA}")
        extra = Extra(cost=round(body.cost * MILLION), tokens=body.tokens, runs=body.runs)
        row = await self._hub.journal.write(raise_budget, name, share.key, extra, self._clock.now(), current_origin())
        self._hub.held_runs.wake()
        return Response(_encode_scope(share, row))


async def encode_budgets(hub: GatewayHub, limit: int) -> list[dict[str, Any]]:
    """Return all budgets as responses show them. Each has the `limit` scopes that have used most of it."""
    budgets: list[dict[str, Any]] = []
    for name, settings in hub.budgets.current.items():
        share = hub.budgets.find_share(scope_of(name, ""))
        assert share is not None
        rows = await hub.journal.query(list_spend, [share.key], limit)
        resets_at = share.period.resets_at
        shares = ((hub.budgets.find_share(row.key[0]), row) for row in rows)
        budgets.append(
            {
                "name": name,
                "per": settings.per,
                "on_limit": settings.on_limit,
                "period": share.period.name,
                "resets_at": None if resets_at is None else format_time(round(resets_at.timestamp() * 1e6)),
                "scopes": [_encode_scope(each, row) for each, row in shares if each is not None],
            }
        )
    return budgets


def _encode_scope(share: BudgetShare, row: Spend) -> dict[str, Any]:
    """Return the used and allowed amounts of a budget in one scope, as responses show them."""
    used = {"cost": row.used.cost / MILLION, "tokens": row.used.tokens, "runs": row.used.runs}
    allowed: dict[str, float] = dict(share.find_allowed(row))
    if "cost" in allowed:
        allowed["cost"] /= MILLION
    currency = {"currency": share.settings.currency} if "cost" in allowed else {}
    return {"scope": share.value, "used": used, "allowed": allowed, **currency, "ratio": round(share.ratio(row), 4)}
