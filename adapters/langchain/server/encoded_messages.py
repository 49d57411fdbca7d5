"""Cache of messages in LangChain's JSON, for responses that contain all messages of a long thread.

A turn adds two messages to a thread, and `/wait` returns all of them. Encoding each message again in every turn would
take most of the time of the thousandth turn."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.server.encoding import LazyList, encode
from babelgate.adapters.langchain.codec.message import encode_message
from babelgate.adapters.langchain.codec.state import encode_values
from babelgate.canonical import Message, Revision
from babelgate.canonical.value import JsonObject

_MAX_BYTES: Final = 16 * 2**20
"""Maximum total size of the cached JSON, in bytes. Chosen: 20,000 messages of 100 words."""
_OVERHEAD: Final = 512
"""Estimated size of a cached message without its JSON, in bytes. Chosen."""
_MANY: Final = 64
"""Number of messages from which on a list is encoded from the cache. Chosen: a shorter list is encoded in 1 ms."""
_LONG: Final = 64 * 1024
"""Size of a list's JSON, in bytes, from which on the list is sent as pieces. Chosen: as `encode` does."""


class EncodedMessages:
    """LRU cache of the JSON of messages, bounded by its size in bytes.

    The key is the message object, because the snapshots of a thread share the objects of its ended messages."""

    def __init__(self, most: int = _MAX_BYTES) -> None:
        """Create an empty cache. `most` is the maximum total size in bytes."""
        self._most = most
        self.size = 0
        """Total size of the cached messages, in bytes."""
        self._encoded: OrderedDict[int, tuple[Message, bytes]] = OrderedDict()
        """Messages and their JSON, by the identity of the message."""

    async def encode_values(self, revision: Revision | None) -> JsonObject:
        """Return the values of a state as `encode_values` of the codec does, with a long list of messages as a
        `LazyList` of their JSON. Other tasks run in between."""
        if revision is None or len(revision.messages) < _MANY or isinstance(revision.values.get("messages"), list):
            return encode_values(revision)
        time_slice, items, size = TimeSlice(), list[bytes](), 0
        for number, message in enumerate(revision.messages):
            item = self._encode(message)
            if item is None:
                return encode_values(revision)
            items.append(item)
            size += len(item)
            if number % _MANY == 0 and time_slice.is_used_up:
                await time_slice.pause()
        if size < _LONG:
            return encode_values(revision)
        return {**revision.values, "messages": _MessageList(revision.messages, items)}

    def _encode(self, message: Message) -> bytes | None:
        """Return the JSON of a message, or None if it is too large to be encoded at once."""
        key = id(message)
        cached = self._encoded.get(key)
        if cached is not None:
            self._encoded.move_to_end(key)
            return cached[1]
        encoded = encode(encode_message(message))
        if not isinstance(encoded, bytes):
            return None
        self._encoded[key] = (message, encoded)  # the reference keeps the identity from being used again
        self.size += len(encoded) + _OVERHEAD
        while self.size > self._most:
            _, (_, dropped) = self._encoded.popitem(last=False)
            self.size -= len(dropped) + _OVERHEAD
        return encoded


class _MessageList(LazyList):
    """Messages of a state, and their JSON."""

    def __init__(self, messages: Sequence[Message], items: Sequence[bytes]) -> None:
        self._messages = messages
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return map(encode_message, self._messages)

    def encode(self) -> Iterator[bytes]:
        for start in range(0, len(self._items), _MANY):
            yield b",".join(self._items[start : start + _MANY])


encoded_messages: Final = EncodedMessages()
"""Cache of this process."""
