"""One content block of a message while it is written."""

from dataclasses import dataclass, field
from typing import Final, Literal

from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical.value import JsonObject

Growth = Literal["text", "thinking", "input"]
"""Member of a block that grows with its deltas."""

_DELTAS: Final[dict[Growth, tuple[str, str]]] = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "input": ("input_json_delta", "partial_json"),
}
"""Type of the delta, and its member with the added text, by the member that grows."""


@dataclass(slots=True)
class Block:
    """Content block number `index` of a message. `start` is the block without the text that its deltas add."""

    index: int
    key: object
    """Part of the run to which the block belongs. Further text of the same part continues the block."""
    message_id: str | None
    """Message of the run to which the block belongs. None for content outside of messages, such as calls of tools."""
    start: JsonObject
    growth: Growth | None
    """Member that the deltas extend. None: the block has no deltas."""
    pieces: list[str] = field(default_factory=list[str])

    def whole(self) -> JsonObject:
        """Return the block with the text of all its deltas."""
        text = "".join(self.pieces)
        if self.growth is None:
            return self.start
        if self.growth != "input":
            return {**self.start, self.growth: text}
        value = parse_text(text or "{}")
        return {**self.start, "input": value if isinstance(value, dict) and value is not ABSENT else {}}

    def start_event(self) -> JsonObject:
        """Return the event that begins the block in a stream."""
        return {"type": "content_block_start", "index": self.index, "content_block": self.start}

    def delta(self, text: str) -> JsonObject:
        """Return the event that adds a text to the block in a stream."""
        assert self.growth is not None
        kind, member = _DELTAS[self.growth]
        return {"type": "content_block_delta", "index": self.index, "delta": {"type": kind, member: text}}

    def stop_event(self) -> JsonObject:
        """Return the event that ends the block in a stream."""
        return {"type": "content_block_stop", "index": self.index}
