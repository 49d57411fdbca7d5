"""Message chunks (stream mode `messages-tuple`): a message while it is said, in chunks that a client adds up."""

from collections.abc import Callable
from dataclasses import dataclass, field

from babelgate.adapters.kit.server.sse import TextFrames
from babelgate.adapters.langchain.codec.content import decode_arguments, encode_block, encode_citation, is_plain
from babelgate.adapters.langchain.codec.message import encode_usage
from babelgate.canonical import AnnotationPart, Part, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, PartDelta
from babelgate.canonical.value import JsonObject


@dataclass(slots=True)
class Chunks:
    """Of one open message. Text is a plain string until something else was said; from then on it is a block with the
    index of its part, so that what is added up keeps its order."""

    started: MessageStarted
    node: str
    parts: list[Part] = field(default_factory=list[Part])
    """As they began."""
    blocks: bool = False
    cited: int | None = None
    """The index of the text block that citations belong to."""

    template: tuple[int, TextFrames] | None = None
    """Of a chunk of plain text, with its metadata at a step of the run."""

    @property
    def is_chunked(self) -> bool:
        return self.started.role == "agent"

    def part(self, event: PartAdded) -> Callable[[], JsonObject]:
        """Takes note of a part; what it returns encodes it, if anybody asks."""
        part, index = event.part, len(self.parts)
        self.parts.append(part)
        if isinstance(part, ToolCallPart):
            number = sum(isinstance(each, ToolCallPart) for each in self.parts) - 1
            return lambda: self._call(part.arguments, number, of=part, whole=not event.open)
        self.blocks = self.blocks or not is_plain(part)
        if isinstance(part, AnnotationPart):
            self.cited = index if self.cited is None else self.cited
            cited: JsonObject = {"type": "text", "text": "", "index": self.cited}
            return lambda: self._message_chunk([{**cited, "annotations": [encode_citation(part)]}])
        self.cited = index if self.blocks and isinstance(part, TextPart) else None
        if self.blocks:
            return lambda: self._message_chunk([{**encode_block(part), "index": index}])
        return lambda: self._message_chunk(part.text if isinstance(part, TextPart) else "")

    def is_plain(self, event: PartDelta) -> bool:
        """Whether its chunk is the text as a plain string."""
        return self.is_chunked and not self.blocks and isinstance(self._part_of(event), TextPart)

    def text(self, text: str) -> JsonObject:
        return self._message_chunk(text)

    def _part_of(self, event: PartDelta) -> Part:
        index = len(self.parts) - 1 if event.index is None else event.index
        return self.parts[index] if 0 <= index < len(self.parts) else TextPart(text="")

    def delta(self, event: PartDelta) -> JsonObject:
        index = len(self.parts) - 1 if event.index is None else event.index
        part = self._part_of(event)
        match part:
            case ToolCallPart():
                number = sum(isinstance(each, ToolCallPart) for each in self.parts[:index])
                return self._call(event.text, number)
            case ReasoningPart():
                return self._message_chunk([{"type": "reasoning", "reasoning": event.text, "index": index}])
            case RefusalPart():
                return self._message_chunk([{"type": "refusal", "refusal": event.text, "index": index}])
            case _ if self.blocks:
                return self._message_chunk([{"type": "text", "text": event.text, "index": index}])
            case _:
                return self._message_chunk(event.text)

    def end(self, event: MessageEnded) -> JsonObject:
        # Metadata is added up, too: strings that come with each chunk would be said again and again.
        last = {"response_metadata": self.started.metadata, "usage_metadata": encode_usage(event.usage)}
        # langchain-core 1: `chunk_position` says that nothing is to be added.
        return {**self._message_chunk(""), **last, "chunk_position": "last"}

    def _call(self, arguments: str, number: int, *, of: ToolCallPart | None = None, whole: bool = False) -> JsonObject:
        """`of` = the call, with its first piece."""
        name, call_id = (None, None) if of is None else (of.name, of.call_id)
        piece = {"name": name, "args": arguments, "id": call_id, "index": number, "type": "tool_call_chunk"}
        args = decode_arguments(arguments) if whole else None
        calls = [] if args is None else [{"name": name, "args": args, "id": call_id, "type": "tool_call"}]
        return {**self._message_chunk(""), "tool_calls": calls, "tool_call_chunks": [piece]}

    def _message_chunk(self, content: str | list[JsonObject]) -> JsonObject:
        return {
            "content": content,
            "additional_kwargs": {},
            "response_metadata": {},
            "type": "AIMessageChunk",
            "name": self.started.name,
            "id": self.started.message_id,
            "tool_calls": [],
            "invalid_tool_calls": [],
            "usage_metadata": None,
            "tool_call_chunks": [],
            "chunk_position": None,
        }
