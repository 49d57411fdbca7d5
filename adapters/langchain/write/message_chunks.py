"""Message chunks (stream mode `messages-tuple`): pieces of a message. A client gets the message by adding them up with
langchain-core's rules."""

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
    """Encoder of the chunks of one open message.

    Text is a plain string until a part of another kind arrives. From then on each piece is a content block with the
    index of its part, so that the client's sum keeps the order of parts.
    """

    started: MessageStarted
    node: str
    parts: list[Part] = field(default_factory=list[Part])
    """Parts of the message, each as it was when it started."""
    blocks: bool = False
    """True if the content of chunks is a list of blocks, and not a string."""
    cited: int | None = None
    """Index of the text block to which following citations are added; None: a new block."""

    template: tuple[int, TextFrames] | None = None
    """Template of the frames with plain text, and the step of the run for which it is valid: the step is in its
    metadata."""

    @property
    def is_chunked(self) -> bool:
        """True if the message is sent in chunks, because it is the agent's. Others are sent whole."""
        return self.started.role == "agent"

    def part(self, event: PartAdded) -> Callable[[], JsonObject]:
        """Add a part, and return a function that encodes its first chunk. The function is called only if the chunk is
        sent."""
        part, index = event.part, len(self.parts)
        self.parts.append(part)
        if isinstance(part, ToolCallPart):
            number = sum(isinstance(earlier, ToolCallPart) for earlier in self.parts) - 1
            return lambda: self._call(part.arguments, number, of=part, whole=not event.open)
        self.blocks = self.blocks or not is_plain(part)
        if isinstance(part, AnnotationPart):
            self.cited = index if self.cited is None else self.cited
            block: JsonObject = {"type": "text", "text": "", "index": self.cited}
            return lambda: self._message_chunk([{**block, "annotations": [encode_citation(part)]}])
        self.cited = index if self.blocks and isinstance(part, TextPart) else None
        if self.blocks:
            return lambda: self._message_chunk([{**encode_block(part), "index": index}])
        return lambda: self._message_chunk(part.text if isinstance(part, TextPart) else "")

    def is_plain(self, event: PartDelta) -> bool:
        """Return True if the event's text is sent as a plain string."""
        return self.is_chunked and not self.blocks and isinstance(self._part_of(event), TextPart)

    def text(self, text: str) -> JsonObject:
        """Return a chunk whose content is a plain text."""
        return self._message_chunk(text)

    def _part_of(self, event: PartDelta) -> Part:
        index = len(self.parts) - 1 if event.index is None else event.index
        return self.parts[index] if 0 <= index < len(self.parts) else TextPart(text="")

    def delta(self, event: PartDelta) -> JsonObject:
        """Return the chunk with the text that a `PartDelta` adds to its part."""
        index = len(self.parts) - 1 if event.index is None else event.index
        part = self._part_of(event)
        match part:
            case ToolCallPart():
                number = sum(isinstance(earlier, ToolCallPart) for earlier in self.parts[:index])
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
        """Return the last chunk, with the metadata and the usage of the message."""
        # A client adds up metadata, too: it would repeat strings that are in every chunk.
        last = {"response_metadata": self.started.metadata, "usage_metadata": encode_usage(event.usage)}
        # langchain-core 1: `chunk_position` marks the last chunk.
        return {**self._message_chunk(""), **last, "chunk_position": "last"}

    def _call(self, arguments: str, number: int, *, of: ToolCallPart | None = None, whole: bool = False) -> JsonObject:
        """Return the chunk for one piece of a tool call's arguments.

        `number` is the index of the call among the message's tool calls. `of` is the call, if this is its first piece.
        `whole`: the piece has all arguments.
        """
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
