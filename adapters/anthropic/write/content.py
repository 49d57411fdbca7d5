"""Content blocks of one message, from what a run has sent, with the events of their stream.

Only one block is open at a time, and their indices have no gaps, because clients add them to a list.
"""

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.write.block import Block, Growth
from babelgate.adapters.kit.extension import encode_without_extra
from babelgate.canonical import Event, FilePart, Message, Part
from babelgate.canonical.event import MessageStarted
from babelgate.canonical.value import JsonObject

_EMPTY: Final[dict[Growth, JsonObject]] = {
    "text": {"type": "text", "text": "", "citations": None},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


def file_url(base_url: str, blob: str) -> str:
    """Return the URL at which the gateway serves a stored file. `blob` is the hash of its content."""
    return f"{base_url}/v1/messages/files/{quote(blob, safe='')}"


class Content:
    """Content blocks of one message. `agent` is the name of the agent, and `base_url` the gateway's address as the
    caller sees it.

    A mark is the value of the member `babelgate` of a block or an event: what the API has no form for. Another
    Babelgate reads it. `growth` is the member of a block to which its deltas add text.
    """

    def __init__(self, agent: str, base_url: str) -> None:
        self.blocks: list[Block] = []
        self.events: list[JsonObject] = []
        """Events of the stream that `take` has not returned yet."""
        self._agent = agent
        self._base_url = base_url
        self._open: Block | None = None
        self._started: dict[str, MessageStarted] = {}
        self._shown: set[str] = set()
        """Ids of the messages that have a block."""

    def take(self) -> list[JsonObject]:
        """Return the events of the stream since the last call."""
        events, self.events = self.events, []
        return events

    def begin_message(self, started: MessageStarted) -> None:
        """Store the start of a message. The mark of the message's first block will contain it."""
        self._started[started.message_id or ""] = started

    def is_aside(self, message_id: str) -> bool:
        """Return True if a message is not part of the answer: a progress message, or a message whose author is not the
        agent."""
        started = self._started.get(message_id)
        return started is not None and (started.phase == "progress" or started.role != "agent")

    def add_text(self, message_id: str, key: object, text: str, growth: Growth, mark: JsonObject | None = None) -> None:
        """Add text of the part that `key` identifies. The text continues the open block if that has the same key and
        message. Otherwise it begins a block with the mark."""
        block = self._open
        if block is None or block.key != key or block.message_id != message_id:
            if not text and mark is None:
                return
            block = self.open(message_id, key, dict(_EMPTY[growth]), growth, mark)
        self.grow(block, text)

    def grow(self, block: Block, text: str) -> None:
        """Add text to a block, unless it is empty."""
        if text:
            block.pieces.append(text)
            self.events.append(block.delta(text))

    def add_shown(self, message_id: str | None, text: str, mark: JsonObject) -> None:
        """Add a text block that only shows something else to clients, such as a file. The mark contains the thing
        itself."""
        block = self.open(message_id, object(), dict(_EMPTY["text"]), "text", mark)
        self.grow(block, text)
        self.close()

    def add_whole(self, message_id: str | None, block: JsonObject, mark: JsonObject | None = None) -> None:
        """Add a block that has no deltas."""
        self.open(message_id, object(), block, None, mark)
        self.close()

    def open(
        self, message_id: str | None, key: object, start: JsonObject, growth: Growth | None, mark: JsonObject | None
    ) -> Block:
        """Begin a block, after ending the open one."""
        self.close()
        marks = {**self._message_mark(message_id), **(mark or {})}
        if marks:
            start = {**start, w.OWN: marks}
        block = Block(len(self.blocks), key, message_id, start, growth)
        self.blocks.append(block)
        self.events.append(block.start_event())
        self._open = block
        return block

    def _message_mark(self, message_id: str | None) -> JsonObject:
        """Return the start of a message, as the mark of its first block. Return {} for later blocks, and for the first
        message of all if it has only default values."""
        if message_id is None or message_id in self._shown:
            return {}
        is_first = not self._shown
        self._shown.add(message_id)
        started = self._started.get(message_id)
        if started is None:
            return {}
        bare = started.replace(message_id=None, node="" if started.node == self._agent else started.node, extra={})
        return {} if is_first and bare == MessageStarted() else {"message": encode_without_extra(bare)}

    def end_message(self, message_id: str) -> None:
        """End a message. If it has metadata and no content, a `ping` shows it."""
        if self._open is not None and self._open.message_id == message_id:
            self.close()
        started = self._started.get(message_id)
        if started is not None and started.metadata and message_id not in self._shown:
            self.ping(self._message_mark(message_id))

    def ping(self, mark: JsonObject) -> None:
        """Add a mark that belongs to no block. Clients ignore events of this type."""
        self.events.append({"type": "ping", w.OWN: mark})

    def close(self) -> None:
        """End the open block."""
        if self._open is not None:
            self.events.append(self._open.stop_event())
            self._open = None

    def text_block(self, message_id: str, key: object) -> Block | None:
        """Return the open block if it has this message and key, so that further text continues it. Otherwise return
        None."""
        block = self._open
        return block if block is not None and block.key == key and block.message_id == message_id else None

    def extend(self, block: Block, texts: Sequence[str]) -> None:
        """Add several texts to a block without events, which the caller writes itself."""
        block.pieces.append("".join(texts))  # one string takes half the memory of many short ones

    def drop(self, is_void: Callable[[str], bool]) -> int:
        """Remove the blocks of messages that a restart has voided. Return the number of removed blocks."""
        rest = [block for block in self.blocks if block.message_id is None or not is_void(block.message_id)]
        removed = len(self.blocks) - len(rest)
        self.close()
        self.blocks = rest
        for index, block in enumerate(rest):
            block.index = index
        return removed

    # Marks

    def mark(self, event: Event) -> JsonObject:
        """Return the mark that contains an event of the log for which the API has no form."""
        return {"event": encode_without_extra(event)}

    def portable(self, part: Part) -> Part:
        """Return a part for a mark: a stored file is named by its URL, and members of other protocols are left out."""
        if isinstance(part, FilePart) and part.blob is not None:
            return part.replace(url=file_url(self._base_url, part.blob), blob=None, inline=None, extra={})
        return part.replace(extra={})

    def portable_message(self, message: Message) -> Message:
        """Return a message for a mark, with its parts as `portable` returns them."""
        return message.replace(parts=tuple(map(self.portable, message.parts)), extra={})
