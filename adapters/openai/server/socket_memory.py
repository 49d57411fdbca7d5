"""Per-connection cache of a WebSocket: unstored responses and prewarmed inputs (`generate: false`), which only this
connection can continue."""

from asyncio import Task, TaskGroup
from collections import OrderedDict
from collections.abc import Container
from contextlib import aclosing, suppress
from typing import Final

from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Scope

_RESPONSES: Final = 8
"""Maximum number of unstored responses that one WebSocket can continue. Chosen: each may keep up to a megabyte of
events in memory. OpenAI's server keeps only the last response."""
_INPUTS: Final = 16
"""Maximum number of prewarmed inputs of one WebSocket. Chosen."""
_INPUT_BYTES: Final = 8 * 2**20
"""Maximum size of one prewarmed input, in bytes. Chosen."""
_ALL_BYTES: Final = 64 * 2**20
"""Maximum total size of the prewarmed inputs of all WebSockets of the gateway, in bytes. Chosen."""
_END: Final = 2**53
"""Seq greater than that of any record. A reader that starts after it keeps the thread in memory without receiving
records."""


class SocketMemory(Container[str]):
    """Set of the ids of unstored responses that a WebSocket can continue. For each of their threads it holds an open
    reader, which keeps the newest records in memory."""

    def __init__(self, hub: Hub, principal: Principal, tasks: TaskGroup) -> None:
        """Create an empty memory. `tasks` is the WebSocket's task group, in which the readers run."""
        self._hub = hub
        self._principal = principal
        self._tasks = tasks
        self._threads: OrderedDict[str, str] = OrderedDict()
        """Id of the thread of each response, by response id, oldest first."""
        self._readers: dict[str, Task[None]] = {}
        """Task that reads a thread only to keep it in memory, by thread id."""

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._threads

    def remember(self, response_id: str, thread_id: str) -> None:
        """Add a response and its thread. If there are more than `_RESPONSES`, remove the oldest one."""
        self._threads[response_id] = thread_id
        if thread_id not in self._readers:
            self._readers[thread_id] = self._tasks.create_task(self._read(thread_id))
        if len(self._threads) > _RESPONSES:
            self.forget(next(iter(self._threads)))

    def forget(self, response_id: str) -> None:
        """Remove a response. Stop the reader of its thread if no other response needs it."""
        thread_id = self._threads.pop(response_id, None)
        if thread_id is not None and thread_id not in self._threads.values():
            self._readers.pop(thread_id).cancel()

    def close(self) -> None:
        """Stop all readers, when the WebSocket is closed."""
        for reader in self._readers.values():
            reader.cancel()

    async def _read(self, thread_id: str) -> None:
        with suppress(FaultError):  # the thread may have been deleted
            async with aclosing(self._hub.reads.follow(self._principal, Scope(thread_id), _END)) as batches:
                async for _ in batches:
                    pass


class PreparedInputs:
    """Prewarmed inputs of all WebSockets: inputs that clients sent ahead of a response (`generate: false`). If they
    exceed `_ALL_BYTES`, the oldest are dropped."""

    def __init__(self) -> None:
        self._inputs: OrderedDict[str, bytes] = OrderedDict()
        """JSON of each input, by the id of the empty response that was sent for it."""
        self._size = 0

    def get(self, response_id: str) -> bytes | None:
        return self._inputs.get(response_id)

    def put(self, response_id: str, raw_input: bytes) -> None:
        """Store the JSON of an input. Raises too_large above `_INPUT_BYTES`."""
        if len(raw_input) > _INPUT_BYTES:
            words = (
                f"An input sent ahead may have {_INPUT_BYTES} bytes at most: send it after the response in progress."
            )
            raise FaultError(FaultCode.TOO_LARGE, words, limit=_INPUT_BYTES)
        self._inputs[response_id] = raw_input
        self._size += len(raw_input)
        while self._size > _ALL_BYTES:
            self.drop(next(iter(self._inputs)))

    def drop(self, response_id: str) -> None:
        self._size -= len(self._inputs.pop(response_id, b""))


class SocketInputs:
    """Prewarmed inputs of one WebSocket. They are in the common store `PreparedInputs`, but only this connection can
    use them."""

    def __init__(self, inputs: PreparedInputs) -> None:
        self._inputs = inputs
        self._ids: OrderedDict[str, None] = OrderedDict()

    def get(self, response_id: str | None) -> bytes | None:
        return self._inputs.get(response_id) if response_id in self._ids else None

    def put(self, response_id: str, raw_input: bytes) -> None:
        """Store the JSON of an input. If the WebSocket has more than `_INPUTS`, drop the oldest one. Raises too_large
        for an input that does not fit into the memory at all."""
        self._inputs.put(response_id, raw_input)
        self._ids[response_id] = None
        if len(self._ids) > _INPUTS:
            self.drop(next(iter(self._ids)))

    def drop(self, response_id: str) -> None:
        if response_id in self._ids:
            del self._ids[response_id]
            self._inputs.drop(response_id)

    def close(self) -> None:
        for response_id in list(self._ids):
            self.drop(response_id)
