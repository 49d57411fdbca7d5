"""Store of a graph: LangGraph's store interface on top of the gateway's store.

The graph reads and writes the items of the caller's owner. Callers of the LangGraph API reach the same items by
`/store`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical import store as canonical
from babelgate.gateway.agents.call_data import CallItems
from babelgate.gateway.agents.langgraph.checkpointer import wait_in_thread
from babelgate.gateway.agents.langgraph.jsonable import plain_object


class Items(BaseStore):
    """LangGraph store with the items of one owner."""

    supports_ttl = True

    def __init__(self, items: CallItems | None) -> None:
        """Create the store of a call. Without `items`, each operation fails: such an object is for graphs that are only
        inspected."""
        self._items = items
        self._loop = asyncio.get_running_loop()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return [await self._do(op) for op in ops]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return wait_in_thread(self.abatch(ops), self._loop)

    async def _do(self, op: Op) -> Result:
        """Execute an operation and return its result.

        Raises ValueError for an invalid namespace, key or filter, like LangGraph's own stores.
        """
        if self._items is None:
            raise RuntimeError("The store is available only during a run of the graph")
        try:
            match op:
                case GetOp():
                    return await self._get(self._items, op)
                case PutOp():
                    await self._put(self._items, op)
                    return None
                case SearchOp():
                    return await self._search(self._items, op)
                case ListNamespacesOp():
                    return list(await self._items.namespaces(_namespaces(op)))
        except FaultError as error:
            if error.fault.code is FaultCode.INVALID:
                raise ValueError(error.fault.message) from error
            raise

    async def _get(self, items: CallItems, op: GetOp) -> Item | None:
        item = await items.get(op.namespace, op.key, refresh=op.refresh_ttl)
        return None if item is None else Item(**_members(item))

    async def _put(self, items: CallItems, op: PutOp) -> None:
        if op.value is None:
            await items.delete(op.namespace, op.key)
        else:
            ttl = None if op.ttl is None else max(1, round(op.ttl * 60))  # LangGraph uses minutes, the gateway seconds
            await items.put(op.namespace, op.key, plain_object(op.value), ttl)

    async def _search(self, items: CallItems, op: SearchOp) -> list[SearchItem]:
        query = canonical.ItemQuery(
            prefix=op.namespace_prefix,
            filter=op.filter or {},
            text=op.query,
            limit=op.limit,
            offset=op.offset,
            refresh=op.refresh_ttl,
        )
        return [SearchItem(**_members(item)) for item in await items.search(query)]


def _members(item: canonical.Item) -> dict[str, Any]:
    return {
        "value": item.value,
        "key": item.key,
        "namespace": item.namespace,
        "created_at": _time(item.created_at),
        "updated_at": _time(item.updated_at),
    }


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


def _namespaces(op: ListNamespacesOp) -> canonical.NamespaceQuery:
    ends = {"prefix": (), "suffix": ()} | {each.match_type: each.path for each in _conditions(op)}
    return canonical.NamespaceQuery(**ends, max_depth=op.max_depth, limit=op.limit, offset=op.offset)


def _conditions(op: ListNamespacesOp) -> Sequence[MatchCondition]:
    """Return the match conditions of a namespace search. Raises ValueError if there are two prefixes or two suffixes.

    LangGraph's own methods never send more than one of each.
    """
    conditions = op.match_conditions or ()
    if len({each.match_type for each in conditions}) < len(conditions):
        raise ValueError("match_conditions: one prefix and one suffix")
    return conditions
