"""Content blocks of streamed messages, one after the other, as in the Agent Protocol's event streaming (CDDL 0.0.13,
section 8)."""

from dataclasses import dataclass, field
from typing import Final

from babelgate.adapters.langchain.codec.content import decode_arguments, encode_block
from babelgate.canonical import DataPart, FilePart, Part, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.event import PartAdded, PartDelta, PartEnded
from babelgate.canonical.value import JsonObject

_STREAMED_PARTS: Final = (TextPart, ReasoningPart, ToolCallPart)
"""Types of parts whose text is sent piece by piece. All others are sent whole at their end."""


@dataclass(slots=True)
class _Block:
    """One content block of a message, and how much of it was sent."""

    part: Part
    ended: bool
    begun: bool = False
    text: str = ""
    """Whole text of the block so far."""
    unsent: str = ""
    """End of `text` that was not sent yet."""

    def take(self, text: str) -> None:
        self.text += text
        self.unsent += text


@dataclass(slots=True)
class Blocks:
    """Content blocks of one open message. Several parts may be open at once, but the protocol allows only one open
    block. So each block is held back until the previous one has ended."""

    _blocks: list[_Block] = field(default_factory=list[_Block])
    _current: int = 0
    """Index of the first block that has not ended on the wire."""

    def add(self, event: PartAdded) -> list[JsonObject]:
        block = _Block(event.part, ended=not event.open)
        block.take(_text(event.part))
        self._blocks.append(block)
        return self._write_blocks()

    def delta(self, event: PartDelta) -> list[JsonObject]:
        if block := self._find(event.index):
            block.take(event.text)
        return self._write_blocks()

    def end(self, event: PartEnded) -> list[JsonObject]:
        if block := self._find(event.index):
            block.ended = True
        return self._write_blocks()

    def close(self) -> list[JsonObject]:
        for block in self._blocks:
            block.ended = True
        return self._write_blocks()

    def _find(self, index: int | None) -> _Block | None:
        place = len(self._blocks) - 1 if index is None else index
        return self._blocks[place] if 0 <= place < len(self._blocks) else None

    def _write_blocks(self) -> list[JsonObject]:
        """Return the events for all that can be sent now: starts, pieces and ends of blocks, in order."""
        events: list[JsonObject] = []
        while self._current < len(self._blocks):
            block = self._blocks[self._current]
            if not block.begun:
                block.begun = True
                events.append({"event": "content-block-start", "index": self._current, "content": _first(block.part)})
            if block.unsent and isinstance(block.part, _STREAMED_PARTS):
                events.append({"event": "content-block-delta", "index": self._current, "delta": _delta(block)})
                block.unsent = ""
            if not block.ended:
                break
            events.append({"event": "content-block-finish", "index": self._current, "content": _last(block)})
            self._current += 1
        return events


def _text(part: Part) -> str:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.text
        case ToolCallPart():
            return part.arguments
        case _:
            return ""


def _with_text(part: Part, text: str) -> Part:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.replace(text=text)
        case ToolCallPart():
            return part.replace(arguments=text)
        case _:
            return part


def _first(part: Part) -> JsonObject:
    if isinstance(part, ToolCallPart):
        return {"type": "tool_call_chunk", "id": part.call_id or None, "name": part.name, "args": ""}
    block = _standard(_with_text(part, ""))
    if isinstance(part, FilePart):  # its bytes are sent once, with the end of the block
        block.pop("base64", None)
    return block


def _delta(block: _Block) -> JsonObject:
    match block.part:
        case ReasoningPart():
            return {"type": "reasoning-delta", "reasoning": block.unsent}
        case ToolCallPart():
            # The arguments replace those sent before, so all of them are repeated.
            return {"type": "block-delta", "fields": {"type": "tool_call_chunk", "args": block.text}}
        case _:
            return {"type": "text-delta", "text": block.unsent}


def _last(block: _Block) -> JsonObject:
    part = block.part
    if not isinstance(part, ToolCallPart):
        return _standard(_with_text(part, block.text))
    args, call_id = decode_arguments(block.text), part.call_id or None
    if args is None:
        return {"type": "invalid_tool_call", "id": call_id, "name": part.name, "args": block.text, "error": None}
    return {"type": "tool_call", "id": call_id, "name": part.name, "args": args}


def _standard(part: Part) -> JsonObject:
    """Return a part as a content block in langchain-core's standard form, even if the agent sent it in another one.
    Data and refusals become `non_standard` blocks."""
    if isinstance(part, DataPart):
        return {"type": "non_standard", "value": part.data}
    if isinstance(part, RefusalPart):
        return {"type": "non_standard", "value": {"type": "refusal", "refusal": part.text}}
    return encode_block(part.replace(extra={}))
