"""Per-connection cache of a WebSocket: what it can go on from, though nobody else can. That is responses that are not
stored, and prewarmed inputs (`generate: false`), which were sent ahead of their turn."""

from asyncio import Task, TaskGroup
from collections import OrderedDict
from collections.abc import Container
from contextlib import aclosing, suppress
from typing import Final

from babelgate.canonical import FaultCode, FaultError, Hub, Scope

_RESPONSES: Final = 8
"""That one WebSocket can go on from. The newest events of a thread are in memory while somebody reads it, up to a
megabyte; and OpenAI's server remembers the last response only."""
_INPUTS: Final = 16
"""That one WebSocket may have sent ahead."""
_INPUT_BYTES: Final = 8 * 2**20
_ALL_BYTES: Final = 64 * 2**20
"""Of the inputs of all sockets."""
_END: Final = 2**53
"""No record comes after it: who reads from there on is there, and shown nothing."""


class SocketMemory(Container[str]):
    """Ids of responses. The threads of those that are not stored are there for as long as somebody reads them."""

    def __init__(self, hub: Hub, owner: str, tasks: TaskGroup) -> None:
        """`tasks` = those of the socket."""
        self._hub = hub
        self._owner = owner
        self._tasks = tasks
        self._threads: OrderedDict[str, str] = OrderedDict()
        """By the id of a response."""
        self._readers: dict[str, Task[None]] = {}
        """By the id of a thread."""

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._threads

    def remember(self, response_id: str, thread_id: str) -> None:
        """The oldest one makes room."""
        self._threads[response_id] = thread_id
        if thread_id not in self._readers:
            self._readers[thread_id] = self._tasks.create_task(self._read(thread_id))
        if len(self._threads) > _RESPONSES:
            self.forget(next(iter(self._threads)))

    def forget(self, response_id: str) -> None:
        thread_id = self._threads.pop(response_id, None)
        if thread_id is not None and thread_id not in self._threads.values():
            self._readers.pop(thread_id).cancel()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.cancel()

    async def _read(self, thread_id: str) -> None:
        with suppress(FaultError):  # it may be gone already
            async with aclosing(self._hub.reads.follow(self._owner, Scope(thread_id), _END)) as batches:
                async for _ in batches:
                    pass


class PreparedInputs:
    """As they came, of all sockets: the oldest make room."""

    def __init__(self) -> None:
        self._inputs: OrderedDict[str, bytes] = OrderedDict()
        """By the id of a response."""
        self._size = 0

    def get(self, response_id: str) -> bytes | None:
        return self._inputs.get(response_id)

    def put(self, response_id: str, given: bytes) -> None:
        """Raises too_large."""
        if len(given) > _INPUT_BYTES:
            words = f"An input that is sent ahead may have {_INPUT_BYTES} bytes at most: send it when it is its turn."
            raise FaultError(FaultCode.TOO_LARGE, words, limit=_INPUT_BYTES)
        self._inputs[response_id] = given
        self._size += len(given)
        while self._size > _ALL_BYTES:
            self.drop(next(iter(self._inputs)))

    def drop(self, response_id: str) -> None:
        self._size -= len(self._inputs.pop(response_id, b""))


class SocketInputs:
    """Those of one socket, which no other can go on from."""

    def __init__(self, inputs: PreparedInputs) -> None:
        self._inputs = inputs
        self._own: OrderedDict[str, None] = OrderedDict()

    def get(self, response_id: str | None) -> bytes | None:
        return self._inputs.get(response_id) if response_id in self._own else None

    def put(self, response_id: str, given: bytes) -> None:
        """Raises too_large."""
        self._inputs.put(response_id, given)
        self._own[response_id] = None
        if len(self._own) > _INPUTS:
            self.drop(next(iter(self._own)))

    def drop(self, response_id: str) -> None:
        if response_id in self._own:
            del self._own[response_id]
            self._inputs.drop(response_id)

    def close(self) -> None:
        for response_id in list(self._own):
            self.drop(response_id)
