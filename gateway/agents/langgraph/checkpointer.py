"""Checkpointer of a graph: LangGraph's interface for stored checkpoints, on top of the gateway's database.

A saver belongs to one call, and so to one thread of one owner. After the call was abandoned, it can no longer write.
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

from babelgate.canonical import Invocation
from babelgate.gateway.agents.call_data import CallCheckpoints
from babelgate.gateway.agents.langgraph.channel_values import KeptValue, decode_value, encode_value
from babelgate.gateway.storage.stored_checkpoint import ChannelValue, PendingWrite, StoredCheckpoint

T = TypeVar("T")

_PAGE: Final = 50
"""Number of checkpoints that are read from the database at a time. Chosen."""
_CACHE_SIZE: Final = 16
"""Maximum number of checkpoints whose values a saver caches. Chosen: mostly those of the parent are needed."""
_NO_LIMIT: Final = 2**31


class Saver(BaseCheckpointSaver[int]):
    """Checkpoint saver of one call, which reads and writes the checkpoints of the call's thread."""

    def __init__(self, checkpoints: CallCheckpoints, call: Invocation) -> None:
        super().__init__()
        self.loaded: set[tuple[str, str]] = set()
        """Namespace and id of the checkpoints that the graph has loaded."""
        self._checkpoints = checkpoints
        self._call = call
        self._cache: dict[tuple[str, str | None], Mapping[str, KeptValue]] = {}
        """Descriptions of the channel values of recent checkpoints, by namespace and checkpoint id."""
        self._loop = asyncio.get_running_loop()

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, checkpoint_id = _place(config)
        stored = await self._checkpoints.find(self._ns(thread_id, ns), checkpoint_id)
        if stored is None:
            return None
        self.loaded.add((ns, stored.checkpoint_id))
        return self._tuple(thread_id, ns, stored)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints of a thread that match `filter`, newest first.

        At most `limit` are yielded (None: all), and only those before the checkpoint `before`, if it is given. Raises
        ValueError without a config.
        """
        if config is None:
            raise ValueError("A saver lists the checkpoints of one thread: give a config that names it")
        thread_id, ns, checkpoint_id = _place(config)
        named = "checkpoint_ns" in config.get("configurable", {})
        last = None if before is None else _place(before)[2]
        remaining = _NO_LIMIT if limit is None else limit
        while remaining > 0:
            page = await self._checkpoints.page(
                self._ns(thread_id, ns) if named or thread_id != self._call.thread_id else None,
                checkpoint_id=checkpoint_id,
                before=last,
                limit=_PAGE,
            )
            for stored in page:
                decoded = self._tuple(thread_id, ns if named else stored.ns, stored)
                metadata: Mapping[str, Any] = cast("Mapping[str, Any]", decoded.metadata)
                if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                    yield decoded
                    remaining -= 1
                    if remaining == 0:
                        return
            if len(page) < _PAGE or checkpoint_id is not None:
                return
            last = page[-1].checkpoint_id

    def _tuple(self, thread_id: str, ns: str, stored: StoredCheckpoint) -> CheckpointTuple:
        decoded = self.serde.loads_typed((stored.form, stored.body))
        if stored.channels is not None:
            decoded["checkpoint"]["channel_values"] = self._read_values(stored, decoded["checkpoint"])
        parent = None if stored.parent_id is None else _config(thread_id, ns, stored.parent_id)
        return CheckpointTuple(
            config=_config(thread_id, ns, stored.checkpoint_id),
            checkpoint=decoded["checkpoint"],
            metadata=decoded["metadata"],
            parent_config=parent,
            pending_writes=self.pending_writes(stored),
        )

    def _read_values(self, stored: StoredCheckpoint, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the channel values of a checkpoint by channel, and add their descriptions to the cache."""
        chains: dict[str, list[ChannelValue]] = {}
        for row in stored.values:
            chains.setdefault(row.channel, []).append(row)
        versions = checkpoint["channel_versions"]
        decoded = {name: decode_value(self.serde, versions.get(name), chain) for name, chain in chains.items()}
        self._add_to_cache(stored.ns, stored.checkpoint_id, {name: entry for name, (entry, _) in decoded.items()})
        return {name: value for name, (_, value) in decoded.items()}

    def _add_to_cache(self, ns: str, checkpoint_id: str, values: Mapping[str, KeptValue]) -> None:
        self._cache[ns, checkpoint_id] = values
        if len(self._cache) > _CACHE_SIZE:
            del self._cache[next(iter(self._cache))]

    def pending_writes(self, stored: StoredCheckpoint) -> list[tuple[str, str, Any]]:
        """Return the writes of LangGraph tasks that started from a checkpoint, each as task id, channel and value."""
        return [
            (write.task_id, write.channel, self.serde.loads_typed((write.form, write.body))) for write in stored.writes
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
        before, versions = self._cache.get((ns_, parent_id), {}), checkpoint["channel_versions"]
        values: dict[str, KeptValue] = {}
        new: list[ChannelValue] = []
        for name, value in checkpoint["channel_values"].items():
            previous, version = before.get(name), versions.get(name)
            if previous is not None and version is not None and previous.version == version:
                values[name] = previous
                continue
            values[name], row = encode_value(self.serde, name, checkpoint_id, version, value, previous)
            new.append(row)
        about = get_checkpoint_metadata(config, metadata)
        content = {"checkpoint": {**checkpoint, "channel_values": {}}, "metadata": about}
        form, body = self.serde.dumps_typed(content)
        stored = StoredCheckpoint(
            ns=ns_,
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            run_id=self._call.run_id or None,
            form=form,
            body=body,
            channels={name: value.checkpoint_id for name, value in values.items()},
            values=new,
        )
        await self._checkpoints.put(stored)
        self._add_to_cache(ns_, checkpoint_id, values)
        return _config(thread_id, ns, checkpoint_id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, ns, checkpoint_id = _place(config)
        rows: list[PendingWrite] = []
        for number, (channel, value) in enumerate(writes):
            form, body = self.serde.dumps_typed(value)
            idx = WRITES_IDX_MAP.get(channel, number)
            rows.append(
                PendingWrite(task_id=task_id, idx=idx, task_path=task_path, channel=channel, form=form, body=body)
            )
        await self._checkpoints.put_writes(self._ns(thread_id, ns), checkpoint_id or "", rows)

    async def adelete_thread(self, thread_id: str) -> None:
        """Raise NotImplementedError: the checkpoints of a thread are deleted with the thread."""
        raise NotImplementedError("delete_thread is not supported: the checkpoints are deleted with the thread")

    def _ns(self, thread_id: str, ns: str) -> str:
        """Return the namespace under which a checkpoint is stored in the call's thread.

        A graph may call another graph under a different `thread_id`. The checkpoints of the other graph are stored in
        the call's thread, too, and their `thread_id` becomes a prefix of their namespace.
        """
        return ns if thread_id == self._call.thread_id else f"{thread_id}/{ns}"

    # Synchronous methods, for threads without an event loop: a node that is a plain function may call a graph, too

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
    """Run a coroutine in the gateway's loop, and block the current thread until it has ended.

    Raises RuntimeError in a thread with a running event loop, because it would block that loop.
    """
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
