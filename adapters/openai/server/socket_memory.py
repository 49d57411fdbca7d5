"""Per-connection cache of a WebSocket: unstored responses and prewarmed inputs (`generate: false`), which only this
connection can continue."""

from asyncio import Task, TaskGroup
from collections import OrderedDict
from collections.abc import Container
from contextlib import aclosing, suppress
from typing import Final

from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Scope

_RESPONSES: Final = 8
"""Maximum number of unstored responses that one WebSocket can continue. The newest events of a thread stay in memory
while it has a reader, up to a megabyte. OpenAI's server keeps only the last response."""
_INPUTS: Final = 16
"""Maximum number of prewarmed inputs of one WebSocket."""
_INPUT_BYTES: Final = 8 * 2**20
"""Maximum size of one prewarmed input, in bytes."""
_ALL_BYTES: Final = 64 * 2**20
"""Maximum size of the prewarmed inputs of all WebSockets, in bytes."""
_END: Final = 2**53
"""Sequence number beyond every record. A reader that starts here keeps a thread in memory and receives nothing."""


class SocketMemory(Container[str]):
    """Ids of unstored responses that a WebSocket can continue. A reader per thread keeps their threads in memory."""

    def __init__(self, hub: Hub, principal: Principal, tasks: TaskGroup) -> None:
        """Create the memory of one WebSocket. `tasks`: task group of the WebSocket."""
        self._hub = hub
        self._principal = principal
        self._tasks = tasks
        self._threads: OrderedDict[str, str] = OrderedDict()
        """Ids of threads, by response id."""
        self._readers: dict[str, Task[None]] = {}
        """Readers that keep threads in memory, by thread id."""

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._threads

    def remember(self, response_id: str, thread_id: str) -> None:
        """Add a response. The oldest one is removed if there are too many."""
        self._threads[response_id] = thread_id
        if thread_id not in self._readers:
            self._readers[thread_id] = self._tasks.create_task(self._read(thread_id))
        if len(self._threads) > _RESPONSES:
            self.forget(next(iter(self._threads)))

    def forget(self, response_id: str) -> None:
        """Remove a response, and stop the reader of its thread if no other response needs it."""
        thread_id = self._threads.pop(response_id, None)
        if thread_id is not None and thread_id not in self._threads.values():
            self._readers.pop(thread_id).cancel()

    def close(self) -> None:
        """Stop all readers."""
        for reader in self._readers.values():
            reader.cancel()

    async def _read(self, thread_id: str) -> None:
        with suppress(FaultError):  # the thread may have been deleted
            async with aclosing(self._hub.reads.follow(self._principal, Scope(thread_id), _END)) as batches:
                async for _ in batches:
                    pass


class PreparedInputs:
    """Inputs that clients of WebSockets have sent ahead of a response (`generate: false`), as received. If all together
    exceed `_ALL_BYTES`, the oldest are dropped."""

    def __init__(self) -> None:
        self._inputs: OrderedDict[str, bytes] = OrderedDict()
        """Inputs, by response id."""
        self._size = 0

    def get(self, response_id: str) -> bytes | None:
        return self._inputs.get(response_id)

    def put(self, response_id: str, raw_input: bytes) -> None:
        """Store an input. Raises too_large."""
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
    """Prewarmed inputs of one WebSocket. No other connection can continue them."""

    def __init__(self, inputs: PreparedInputs) -> None:
        self._inputs = inputs
        self._ids: OrderedDict[str, None] = OrderedDict()

    def get(self, response_id: str | None) -> bytes | None:
        return self._inputs.get(response_id) if response_id in self._ids else None

    def put(self, response_id: str, raw_input: bytes) -> None:
        """Store an input, and drop the oldest one if there are too many. Raises too_large."""
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
