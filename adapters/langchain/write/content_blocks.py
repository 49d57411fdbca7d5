"""Content blocks of streamed messages, one after the other, as the Agent Protocol's event streaming sends them (CDDL
0.0.13, section 8)."""

from dataclasses import dataclass, field
from typing import Final

from babelgate.adapters.langchain.codec.content import decode_arguments, encode_block
from babelgate.canonical import DataPart, FilePart, Part, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.event import PartAdded, PartDelta, PartEnded
from babelgate.canonical.value import JsonObject

_GROWS: Final = (TextPart, ReasoningPart, ToolCallPart)
"""Parts that are told piece by piece."""


@dataclass(slots=True)
class _Block:
    part: Part
    ended: bool
    begun: bool = False
    said: str = ""
    untold: str = ""

    def take(self, text: str) -> None:
        self.said += text
        self.untold += text


@dataclass(slots=True)
class Blocks:
    """Of one open message. Parts may be open side by side, blocks may not: what is said of a later one is held back
    until the one before has finished."""

    _blocks: list[_Block] = field(default_factory=list[_Block])
    _at: int = 0
    """The block that is being told."""

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
        told: list[JsonObject] = []
        while self._at < len(self._blocks):
            block = self._blocks[self._at]
            if not block.begun:
                block.begun = True
                told.append({"event": "content-block-start", "index": self._at, "content": _first(block.part)})
            if block.untold and isinstance(block.part, _GROWS):
                told.append({"event": "content-block-delta", "index": self._at, "delta": _delta(block)})
                block.untold = ""
            if not block.ended:
                break
            told.append({"event": "content-block-finish", "index": self._at, "content": _last(block)})
            self._at += 1
        return told


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
    if isinstance(part, FilePart):  # its bytes come once, with the end
        block.pop("base64", None)
    return block


def _delta(block: _Block) -> JsonObject:
    match block.part:
        case ReasoningPart():
            return {"type": "reasoning-delta", "reasoning": block.untold}
        case ToolCallPart():
            # It takes the place of what was there: for arguments, that is all of them.
            return {"type": "block-delta", "fields": {"type": "tool_call_chunk", "args": block.said}}
        case _:
            return {"type": "text-delta", "text": block.untold}


def _last(block: _Block) -> JsonObject:
    part = block.part
    if not isinstance(part, ToolCallPart):
        return _standard(_with_text(part, block.said))
    args, call_id = decode_arguments(block.said), part.call_id or None
    if args is None:
        return {"type": "invalid_tool_call", "id": call_id, "name": part.name, "args": block.said, "error": None}
    return {"type": "tool_call", "id": call_id, "name": part.name, "args": args}


def _standard(part: Part) -> JsonObject:
    """As everybody reads it, whatever the agent's own form was. Data and refusals have no block of their own."""
    if isinstance(part, DataPart):
        return {"type": "non_standard", "value": part.data}
    if isinstance(part, RefusalPart):
        return {"type": "non_standard", "value": {"type": "refusal", "refusal": part.text}}
    return encode_block(part.replace(extra={}))
