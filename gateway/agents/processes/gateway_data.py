"""Data of one call in the process of an agent: each operation is a request to the gateway."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from babelgate.canonical.agent import Invocation
from babelgate.canonical.event import Record
from babelgate.canonical.history import StateHistory
from babelgate.canonical.message import Message
from babelgate.canonical.store import Item, ItemQuery, NamespaceQuery
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.processes import frames as f
from babelgate.gateway.storage.stored_checkpoint import PendingWrite, StoredCheckpoint

Request = Callable[[f.Ask], Awaitable[f.DataReply]]
"""Function that sends a request to the gateway and returns the reply. Raises the fault of the gateway."""


class GatewayData:
    """Access of one call to its data in the gateway."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def checkpoints(self, call: Invocation) -> "GatewayCheckpoints":
        return GatewayCheckpoints(self._request)

    def items(self, call: Invocation) -> "GatewayItems":
        return GatewayItems(self._request)

    async def past(self) -> Sequence[Record]:
        return (await self._request(f.AskPast())).records

    async def with_files(self, message: Message) -> Message:
        reply = await self._request(f.AskFiles(message))
        return message if reply.message is None else reply.message

    async def states(self) -> StateHistory:
        reply = await self._request(f.AskStates())
        assert reply.states is not None
        return PartialHistory(reply.states.head_id, reply.states.values)


class GatewayCheckpoints:
    """Checkpoints of the call's thread in the gateway."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def find(self, ns: str, checkpoint_id: str | None) -> StoredCheckpoint | None:
        found = (await self._request(f.FindCheckpoints(ns, checkpoint_id))).checkpoints
        return found[0] if found else None

    async def page(
        self, ns: str | None, *, checkpoint_id: str | None, before: str | None, limit: int
    ) -> Sequence[StoredCheckpoint]:
        return (await self._request(f.FindCheckpoints(ns, checkpoint_id, before, limit))).checkpoints

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        await self._request(f.PutCheckpoint(checkpoint))

    async def put_writes(self, ns: str, checkpoint_id: str, writes: Sequence[PendingWrite]) -> None:
        await self._request(f.PutWrites(ns, checkpoint_id, tuple(writes)))


class GatewayItems:
    """Items of the call's owner in the gateway's store."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def get(self, namespace: tuple[str, ...], key: str, *, refresh: bool) -> Item | None:
        found = (await self._request(f.GetItem(namespace, key, refresh))).items
        return found[0] if found else None

    async def put(self, namespace: tuple[str, ...], key: str, value: JsonObject, ttl: int | None) -> None:
        await self._request(f.PutItem(namespace, key, value, ttl))

    async def delete(self, namespace: tuple[str, ...], key: str) -> None:
        await self._request(f.PutItem(namespace, key))

    async def search(self, query: ItemQuery) -> Sequence[Item]:
        return (await self._request(f.SearchItems(query))).items

    async def namespaces(self, query: NamespaceQuery) -> Sequence[tuple[str, ...]]:
        return (await self._request(f.ListNamespaces(query))).namespaces


class PartialHistory(StateHistory):
    """History of a thread of which only some states are known. New states are recorded as differences to these."""

    def __init__(self, head_id: str | None, values: Mapping[str, JsonObject]) -> None:
        super().__init__("")
        self._newest_id = head_id
        self._known = values

    @property
    def head_id(self) -> str | None:
        return self._newest_id

    def values_of(self, checkpoint_id: str) -> JsonObject | None:
        return self._known.get(checkpoint_id)
