"""Access of one call of a graph to the gateway's database: the checkpoints of its thread, and the items of its owner.

A graph in this process uses `babelgate.gateway.agents.stored_data`. The process of a graph sends each operation to the
gateway.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from babelgate.canonical.agent import Agent, Invocation
from babelgate.canonical.store import Item, ItemQuery, NamespaceQuery
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.stored_checkpoint import PendingWrite, StoredCheckpoint

Namespace = tuple[str, ...]


class CallCheckpoints(Protocol):
    """Checkpoints of the thread of one call."""

    async def find(self, ns: str, checkpoint_id: str | None) -> StoredCheckpoint | None:
        """Return a checkpoint of a namespace, or the newest one if `checkpoint_id` is None. Return None if there is
        none."""
        ...

    async def page(
        self, ns: str | None, *, checkpoint_id: str | None, before: str | None, limit: int
    ) -> Sequence[StoredCheckpoint]:
        """Return up to `limit` checkpoints, the newest first. Each of `ns`, `checkpoint_id` and `before` is a condition
        unless it is None."""
        ...

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        """Store a checkpoint as one of the call's run. Raises conflict if the call was abandoned."""
        ...

    async def put_writes(self, ns: str, checkpoint_id: str, writes: Sequence[PendingWrite]) -> None:
        """Store pending writes of a checkpoint. Raises conflict if the call was abandoned."""
        ...


class CallItems(Protocol):
    """Items in the store that belong to the owner of one call."""

    async def get(self, namespace: Namespace, key: str, *, refresh: bool) -> Item | None: ...

    async def put(self, namespace: Namespace, key: str, value: JsonObject, ttl: int | None) -> None:
        """Store or replace an item. `ttl` is its time to live in seconds; None means unlimited. Raises invalid, and
        too_large."""
        ...

    async def delete(self, namespace: Namespace, key: str) -> None: ...

    async def search(self, query: ItemQuery) -> Sequence[Item]:
        """Return one page of the items that match a query. Raises invalid for an invalid query."""
        ...

    async def namespaces(self, query: NamespaceQuery) -> Sequence[Namespace]:
        """Return one page of the namespaces that match a query. Raises invalid for an invalid query."""
        ...


class GraphData(Protocol):
    """Access of a graph's calls to their data."""

    def checkpoints(self, call: Invocation) -> CallCheckpoints: ...

    def items(self, call: Invocation) -> CallItems: ...


@runtime_checkable
class Attached(Protocol):
    """Agent that stores data in the gateway's database.

    This is a Protocol because the gateway must not import LangGraph, which is an optional dependency.
    """

    def attach(self, data: GraphData) -> None:
        """Pass the access to the database to the agent. The hub calls this at startup."""
        ...


@runtime_checkable
class Graphlike(Attached, Protocol):
    """Agent that is a graph in this process."""

    def with_data(self, data: GraphData) -> Agent:
        """Return a copy of the agent that uses `data` for its calls."""
        ...
