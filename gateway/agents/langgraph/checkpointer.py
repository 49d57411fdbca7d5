"""A graph's checkpointer: LangGraph's own port for what it keeps, on the gateway's database.

One saver serves one call: it knows whose thread it is, and a call that was given up can write no more.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from babelgate.canonical import FaultCode, FaultError, Invocation
from babelgate.gateway.agents.langgraph.channel_values import KeptValue, decode_value, encode_value
from babelgate.gateway.storage import checkpoints as checkpoint
from babelgate.gateway.storage.checkpoints import ChannelValue, Stored, Write
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import thread_key
from babelgate.gateway.storage.transaction import Transaction, need_idle_thread

T = TypeVar("T")

_PAGE: Final = 50
_KEPT: Final = 16
"""Checkpoints of which it is known what their values were: mostly the parent's is asked for."""
_ALL: Final = 2**31


class Saver(BaseCheckpointSaver[int]):
    def __init__(self, journal: Journal, call: Invocation) -> None:
        super().__init__()
        self.loaded: set[tuple[str, str]] = set()
        """Place and id of the checkpoints that the graph began from."""
        self._journal = journal
        self._call = call
        self._pk: int | None = None
        """The key of the call's thread, from the first look on: its id may be given out again under a call that was
        given up."""
        self._kept: dict[tuple[str, str | None], Mapping[str, KeptValue]] = {}
        """By place and id, the values of the checkpoints that were lately read or written."""
        self._loop = asyncio.get_running_loop()

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, checkpoint_id = _place(config)
        if self._pk is None:
            self._pk = await self._journal.query(thread_key, self._call.owner, self._call.thread_id)
        found = await self._journal.query(
            checkpoint.find, self._call.owner, self._call.thread_id, self._ns(thread_id, ns), checkpoint_id
        )
        if found is None:
            return None
        self.loaded.add((ns, found.checkpoint_id))
        return self._tuple(thread_id, ns, found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Raises ValueError without a thread."""
        if config is None:
            raise ValueError("A saver lists the checkpoints of one thread: give a config that names it")
        thread_id, ns, checkpoint_id = _place(config)
        named = "checkpoint_ns" in config.get("configurable", {})
        last = None if before is None else _place(before)[2]
        left = _ALL if limit is None else limit
        while left > 0:
            found = await self._journal.query(
                checkpoint.page,
                self._call.owner,
                self._call.thread_id,
                self._ns(thread_id, ns) if named or thread_id != self._call.thread_id else None,
                checkpoint_id=checkpoint_id,
                before=last,
                limit=_PAGE,
            )
            for stored in found:
                made = self._tuple(thread_id, ns if named else stored.ns, stored)
                metadata: Mapping[str, Any] = cast("Mapping[str, Any]", made.metadata)
                if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                    yield made
                    left -= 1
                    if left == 0:
                        return
            if len(found) < _PAGE or checkpoint_id is not None:
                return
            last = found[-1].checkpoint_id

    def _tuple(self, thread_id: str, ns: str, found: Stored) -> CheckpointTuple:
        kept = self.serde.loads_typed((found.form, found.body))
        if found.channels is not None:
            kept["checkpoint"]["channel_values"] = self._read_values(found, kept["checkpoint"])
        parent = None if found.parent_id is None else _config(thread_id, ns, found.parent_id)
        return CheckpointTuple(
            config=_config(thread_id, ns, found.checkpoint_id),
            checkpoint=kept["checkpoint"],
            metadata=kept["metadata"],
            parent_config=parent,
            pending_writes=self.pending_writes(found),
        )

    def _read_values(self, found: Stored, told: Checkpoint) -> dict[str, Any]:
        chains: dict[str, list[ChannelValue]] = {}
        for row in found.values:
            chains.setdefault(row.channel, []).append(row)
        versions = told["channel_versions"]
        read = {name: decode_value(self.serde, versions.get(name), chain) for name, chain in chains.items()}
        self._keep(found.ns, found.checkpoint_id, {name: kept for name, (kept, _) in read.items()})
        return {name: value for name, (_, value) in read.items()}

    def _keep(self, ns: str, checkpoint_id: str, values: Mapping[str, KeptValue]) -> None:
        self._kept[ns, checkpoint_id] = values
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]

    def pending_writes(self, found: Stored) -> list[tuple[str, str, Any]]:
        """What tasks that start from the checkpoint have written: task id, channel, value."""
        return [
            (write.task_id, write.channel, self.serde.loads_typed((write.form, write.body))) for write in found.writes
        ]

    # Writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, ns, parent_id = _place(config)
        ns_, checkpoint_id = self._ns(thread_id, ns), checkpoint["id"]
        before, versions = self._kept.get((ns_, parent_id), {}), checkpoint["channel_versions"]
        values: dict[str, KeptValue] = {}
        new: list[ChannelValue] = []
        for name, value in checkpoint["channel_values"].items():
            known, version = before.get(name), versions.get(name)
            if known is not None and version is not None and known.version == version:
                values[name] = known
                continue
            values[name], row = encode_value(self.serde, name, checkpoint_id, version, value, known)
            new.append(row)
        about = get_checkpoint_metadata(config, metadata)
        kept = {"checkpoint": {**checkpoint, "channel_values": {}}, "metadata": about}
        form, body = self.serde.dumps_typed(kept)
        made = Stored(
            ns=ns_,
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            run_id=self._call.run_id or None,
            form=form,
            body=body,
            channels={name: known.checkpoint_id for name, known in values.items()},
            values=new,
        )
        await self._journal.write_patiently(_put, self._call, self._pk, made)
        self._keep(ns_, checkpoint_id, values)
        return _config(thread_id, ns, checkpoint_id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, ns, checkpoint_id = _place(config)
        made: list[Write] = []
        for number, (channel, value) in enumerate(writes):
            form, body = self.serde.dumps_typed(value)
            idx = WRITES_IDX_MAP.get(channel, number)
            made.append(Write(task_id=task_id, idx=idx, task_path=task_path, channel=channel, form=form, body=body))
        place = (self._ns(thread_id, ns), checkpoint_id or "")
        await self._journal.write_patiently(_put_writes, self._call, self._pk, place, made)

    async def adelete_thread(self, thread_id: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("What a graph keeps of a thread goes with the thread")

    def _ns(self, thread_id: str, ns: str) -> str:
        """A graph that is called within this one under a thread of its own keeps its checkpoints beside ours: they
        belong to the caller's thread, whatever its author calls it."""
        return ns if thread_id == self._call.thread_id else f"{thread_id}/{ns}"

    # From threads other than the event loop's: a node that is a plain function may call a graph, too

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def collect() -> Sequence[CheckpointTuple]:
            return [each async for each in self.alist(config, filter=filter, before=before, limit=limit)]

        return iter(self._wait(collect()))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._wait(self.adelete_thread(thread_id))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return wait_in_thread(work, self._loop)


def wait_in_thread(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Wait in another thread for what the gateway's loop does. Raises RuntimeError in one that has a loop itself: it
    would block that."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    work.close()
    blocked = "the gateway" if here is loop else "its event loop"
    raise RuntimeError(
        f"A blocking method was called, which blocks {blocked}: in async functions use ainvoke, astream, aget and aput"
    )


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    configurable: Mapping[str, Any] = config.get("configurable", {})
    return configurable["thread_id"], configurable.get("checkpoint_ns", ""), configurable.get("checkpoint_id")


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _put(tx: Transaction, call: Invocation, pk: int | None, made: Stored) -> None:
    _check(tx, call, pk)
    checkpoint.put(tx.connection, call.owner, call.thread_id, made)


def _put_writes(
    tx: Transaction, call: Invocation, pk: int | None, place: tuple[str, str], writes: Sequence[Write]
) -> None:
    _check(tx, call, pk)
    ns, checkpoint_id = place
    run_id = call.run_id or None
    checkpoint.put_writes(tx.connection, call.owner, call.thread_id, ns, checkpoint_id, writes, run_id)


def _check(tx: Transaction, call: Invocation, pk: int | None) -> None:
    """Raises conflict if the call was given up, or if another one has the thread."""
    if not call.run_id:
        need_idle_thread(tx, call.owner, call.thread_id)
        return
    state = tx.need_thread(call.owner, call.thread_id)
    run = state.runs.get(call.run_id)
    if run is None or run.attempt != call.attempt or pk not in (None, state.pk):
        raise FaultError(FaultCode.CONFLICT, f"Run {call.run_id} is no longer attempt {call.attempt}")
