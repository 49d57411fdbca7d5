"""Access of the calls of graphs to the gateway's database, in the process of the gateway."""

from collections.abc import Sequence
from dataclasses import replace

from babelgate.canonical.agent import Invocation
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.store import Item, ItemQuery, NamespaceQuery
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.call_data import Namespace
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.items import ItemStore
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import thread_key
from babelgate.gateway.storage.stored_checkpoint import PendingWrite, StoredCheckpoint
from babelgate.gateway.storage.transaction import Transaction, need_idle_thread


class StoredData:
    """Access to the data of calls in the database of this process."""

    def __init__(self, journal: Journal, store: ItemStore) -> None:
        self._journal = journal
        self._store = store

    def checkpoints(self, call: Invocation) -> "StoredCheckpoints":
        return StoredCheckpoints(self._journal, call)

    def items(self, call: Invocation) -> "StoredItems":
        return StoredItems(self._store, call.owner)


class StoredCheckpoints:
    """Checkpoints of the thread of one call, in the database of this process."""

    def __init__(self, journal: Journal, call: Invocation) -> None:
        self._journal = journal
        self._call = call
        self._pk: int | None = None
        """Key of the call's thread, from the first `find` on.

        It prevents an abandoned call from writing to a new thread with the same id.
        """

    async def find(self, ns: str, checkpoint_id: str | None) -> StoredCheckpoint | None:
        call = self._call
        if self._pk is None:
            self._pk = await self._journal.query(thread_key, call.owner, call.thread_id)
        return await self._journal.query(checkpoints.find, call.owner, call.thread_id, ns, checkpoint_id)

    async def page(
        self, ns: str | None, *, checkpoint_id: str | None, before: str | None, limit: int
    ) -> Sequence[StoredCheckpoint]:
        call = self._call
        return await self._journal.query(
            checkpoints.page,
            call.owner,
            call.thread_id,
            ns,
            checkpoint_id=checkpoint_id,
            before=before,
            limit=limit,
        )

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        stored = replace(checkpoint, run_id=self._call.run_id or None)
        await self._journal.write_patiently(_put, self._call, self._pk, stored)

    async def put_writes(self, ns: str, checkpoint_id: str, writes: Sequence[PendingWrite]) -> None:
        await self._journal.write_patiently(_put_writes, self._call, self._pk, (ns, checkpoint_id), writes)


class StoredItems:
    """Items of one owner, in the store of this process."""

    def __init__(self, store: ItemStore, owner: str) -> None:
        self._store = store
        self._owner = owner

    async def get(self, namespace: Namespace, key: str, *, refresh: bool) -> Item | None:
        return await self._store.get(self._owner, namespace, key, refresh=refresh)

    async def put(self, namespace: Namespace, key: str, value: JsonObject, ttl: int | None) -> None:
        await self._store.put(self._owner, namespace, key, value, ttl)

    async def delete(self, namespace: Namespace, key: str) -> None:
        await self._store.delete(self._owner, namespace, key)

    async def search(self, query: ItemQuery) -> Sequence[Item]:
        return await (await self._store.search(self._owner, query)).all()

    async def namespaces(self, query: NamespaceQuery) -> Sequence[Namespace]:
        return await self._store.namespaces(self._owner, query)


def _put(tx: Transaction, call: Invocation, pk: int | None, stored: StoredCheckpoint) -> None:
    _check(tx, call, pk)
    checkpoints.put(tx.connection, call.owner, call.thread_id, stored)


def _put_writes(
    tx: Transaction, call: Invocation, pk: int | None, place: tuple[str, str], writes: Sequence[PendingWrite]
) -> None:
    _check(tx, call, pk)
    ns, checkpoint_id = place
    run_id = call.run_id or None
    checkpoints.put_writes(tx.connection, call.owner, call.thread_id, ns, checkpoint_id, writes, run_id)


def _check(tx: Transaction, call: Invocation, pk: int | None) -> None:
    """Check that a call may still write checkpoints. Raises conflict if the call was abandoned, or if the thread is a
    new one with the same id.

    `pk` is the key of the thread that the call has read; None if it has read none. A call without a run, which changes
    the state of a graph, needs a thread without an active run instead.
    """
    if not call.run_id:
        need_idle_thread(tx, call.owner, call.thread_id)
        return
    state = tx.need_thread(call.owner, call.thread_id)
    run = state.runs.get(call.run_id)
    if run is None or run.attempt != call.attempt or pk not in (None, state.pk):
        raise FaultError(FaultCode.CONFLICT, f"Run {call.run_id} is no longer attempt {call.attempt}")
