"""Messages of an upstream server, whole or in chunks, as LangChain sends them → events.

The output of a model is the agent's answer, piece by piece. Results of tools, and everything else that nodes add to the
conversation, is progress.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from babelgate.adapters.langchain.codec.content import (
    REASONING_CONTENT,
    arguments_text,
    decode_citation,
    decode_content,
    extra_of,
    split_annotations,
)
from babelgate.adapters.langchain.codec.message import ROLES, decode_message, role_of
from babelgate.canonical import (
    DataPart,
    Event,
    FaultError,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import LossNoted, MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from babelgate.canonical.feature import Feature
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.message import text_of
from babelgate.canonical.value import Json, JsonObject

_PIECES: Final[Mapping[str, tuple[str, str]]] = {
    "text": ("text", "text"),
    "text_delta": ("text", "text"),
    "output_text": ("text", "text"),
    "reasoning": ("reasoning", "reasoning"),
    "thinking": ("reasoning", "thinking"),
    "thinking_delta": ("reasoning", "thinking"),
    "refusal": ("refusal", "refusal"),
}
"""Blocks that arrive in pieces: the kind of their part, and the member with the piece.

`text` and `reasoning` are langchain-core's (1.7.2, messages/content.py). `thinking` is Anthropic's, whose streams have
`text_delta` and `thinking_delta` (strands-agents 1.62.0, models/anthropic.py). `output_text` and `refusal` are from
OpenAI's Responses API.
"""
_REPEATED_CALLS: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call", "invalid_tool_call"}
)
"""Blocks that repeat what is in `tool_call_chunks`: langchain-core's own (1.7.2, messages/content.py), `tool_use` and
`input_json_delta` of Anthropic, `function_call` of OpenAI's Responses API (block_translators)."""
_SERVER_CALL: Final = "server"
"""Mark in the numbers of tool calls that the model's provider executes."""
_PLACE_MEMBERS: Final = (
    "langgraph_node",
    "langgraph_step",
    "langgraph_triggers",
    "langgraph_path",
    "langgraph_checkpoint_ns",
)
"""Members of a message's metadata that tell its place in the graph (langgraph 1.2.22, pregel/_algo.py)."""
_KEPT_MEMBERS: Final = (*_PLACE_MEMBERS, "tags")
"""Members that are kept. The `ls_…` members of langchain-core about the model (`ls_provider`, `ls_model_name` …) are
kept, too."""
_LIMIT_REASONS: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"})
"""Reasons to stop at a limit.

`length` is from OpenAI's chat completions, `max_output_tokens` from its Responses API, `MAX_TOKENS` from Google's
FinishReason, `max_tokens` from Bedrock and `model_length` from Mistral (pydantic-ai 2.68.0, models).
"""
_MAX_DEPTH: Final = 8
"""Maximum depth of nested objects in counts of tokens. Chosen, not measured: langchain-core 1.7.2 has one level
(messages/ai.py, UsageMetadata)."""
_NOT_CITED: Final = "annotations that are not citations, and arrived in pieces"
"""Loss of annotations in chunks that are not citations."""

Place = tuple[str, ...]


def add_usage(usage: JsonObject, more: Any, depth: int = 0) -> JsonObject:
    """Return the counts of tokens with more counts added, member by member."""
    total = dict(usage)
    for name, count in as_object(more).items():
        if isinstance(count, dict) and depth < _MAX_DEPTH:
            total[name] = add_usage(as_object(total.get(name)), count, depth + 1)
        elif isinstance(count, int | float) and not isinstance(count, bool):
            before = total.get(name, 0)
            total[name] = (before if isinstance(before, int | float) else 0) + count
    return total


def is_agents(wire: Json) -> bool:
    """Return True if a message of a state is the agent's."""
    return ROLES.get(role_of(as_object(wire))) == "agent"


@dataclass(slots=True)
class _Open:
    """A message that arrives in chunks and is not complete."""

    message_id: str | None
    place: str = ""
    """Namespace of the node that sends it: the names and ids of the tasks around it."""
    parts: int = 0
    """Number of parts so far."""
    open_part: tuple[str, Any, int] | None = None
    """The open part: its kind, the number of its block in the message, and the index of the part."""
    calls: dict[Any, int] = field(default_factory=dict[Any, int])
    """Part index of each open tool call, by the number that the model gives to the call."""
    text: list[str] = field(default_factory=list[str])
    """Pieces of its text."""
    usage: JsonObject = field(default_factory=dict[str, Any])
    stop_reason: str = ""
    """The model's reason to stop."""


class MessageDecoder:
    """Decoder for the messages of one run."""

    def __init__(self) -> None:
        self.has_answer = False
        """True if the agent has sent an answer."""
        self.usage: JsonObject = {}
        """Tokens used by all messages that have ended."""
        self.data: Json = None
        """The data in the agent's last message that has some."""
        self._open: dict[str, _Open] = {}
        """Open messages, by id."""
        self._ended_texts: dict[str, str] = {}
        """Texts of the messages that have ended, by id."""

    def decode(self, wire: JsonObject, metadata: JsonObject, ns: Place, *, chunked: bool) -> list[Event]:
        """Return the events of a message, which is whole or a chunk. `chunked`: a message without a type is a chunk."""
        kind, role = wire.get("type"), role_of(wire)
        if role in ("remove", "RemoveMessage"):
            return []
        if kind == "AIMessageChunk" or (chunked and kind is None and ROLES.get(role) == "agent"):
            return self._chunk(wire, metadata, ns)
        return self.whole(wire, metadata, ns)

    def node_ended(self, task_id: str) -> list[Event]:
        """End the messages that a node has left open when it ended."""
        # `|` separates the tasks of a namespace (langgraph 1.2.22, _internal/_constants.py, NS_SEP).
        messages = [
            message
            for message in self._open.values()
            if any(task.endswith(task_id) for task in message.place.split("|"))
        ]
        return [event for message in messages for event in self._end(message)]

    def close(self) -> list[Event]:
        """End all open messages."""
        return [event for message in list(self._open.values()) for event in self._end(message)]

    def recall(self, event: MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        """Apply an event that an earlier reader of the run has produced."""
        key = event.message_id or ""
        if isinstance(event, MessageStarted):
            self._open[key] = _Open(event.message_id)
            self.has_answer = self.has_answer or event.phase == "answer"
            return
        message = self._open.get(key)
        if message is None:
            return
        match event:
            case PartAdded():
                message.parts += 1
                if isinstance(event.part, TextPart):
                    message.text.append(event.part.text)
                if event.open and isinstance(event.part, ToolCallPart):
                    message.calls[len(message.calls)] = message.parts - 1
                elif event.open:
                    message.open_part = (event.part.kind, None, message.parts - 1)
            case PartDelta():
                if message.open_part is not None and message.open_part[0] == "text":
                    message.text.append(event.text)
            case PartEnded():
                message.open_part = None
                message.calls = {number: index for number, index in message.calls.items() if index != event.index}
            case MessageEnded():
                del self._open[key]
                self._ended_texts[key] = "".join(message.text)

    # In one piece

    def whole(self, wire: JsonObject, metadata: JsonObject | None = None, ns: Place = ()) -> list[Event]:
        """Return the events of a whole message, or of its rest if some chunks arrived. A message that has ended has
        none. `metadata` are those of the stream's event."""
        decoded = _with_reasoning(_decode_message(wire))
        if decoded.message_id is not None and decoded.message_id in self._ended_texts:
            return []
        if decoded.message_id is not None and decoded.message_id in self._open:
            return self.rest(wire)
        usage = as_object(as_object(decoded.extra.get("langchain")).get("usage_metadata"))
        self.usage = add_usage(self.usage, usage)
        is_answer = decoded.role == "agent"
        self.has_answer = self.has_answer or is_answer
        for part in decoded.parts:
            self.data = part.data if is_answer and isinstance(part, DataPart) else self.data
        started = MessageStarted(
            message_id=decoded.message_id,
            role=decoded.role,
            name=decoded.name,
            phase="answer" if is_answer else "progress",
            node=as_text(as_object(metadata).get("langgraph_node")),
            ns=ns,
            metadata=decoded.metadata,
            extra={**decoded.extra, **_graph_metadata(metadata or {})},
        )
        if decoded.message_id is not None:
            self._ended_texts[decoded.message_id] = text_of(decoded.parts)
        calls = any(isinstance(part, ToolCallPart) for part in decoded.parts)
        parts = [PartAdded(message_id=decoded.message_id, part=part) for part in decoded.parts]
        finish = "tool_calls" if calls else "length" if _stop_reason(wire) in _LIMIT_REASONS else "stop"
        return [started, *parts, MessageEnded(message_id=decoded.message_id, finish=finish, usage=usage)]

    def rest(self, wire: JsonObject) -> list[Event]:
        """Return the events that complete an open message: the rest of its text, its tool calls if none arrived, and
        its end."""
        message = self._open[as_text(wire.get("id"))]
        parts = _decode_message(wire).parts
        before, now = "".join(message.text), text_of(parts)
        more = now[len(before) :] if now.startswith(before) else ""
        message.usage = add_usage({}, wire.get("usage_metadata")) or message.usage
        events = self._grow(message, "text", more) if more else []
        for call in [part for part in parts if isinstance(part, ToolCallPart)] if not message.calls else ():
            events += self._end_part(message)
            message.calls[len(message.calls)] = message.parts
            events.append(self._add(message, call))
        return [*events, *self._end(message)]

    def so_far(self, wire: JsonObject, ns: Place) -> list[Event]:
        """Return the new text of a message that is not complete, from its whole content so far (`messages/partial`)."""
        message_id = as_text(wire.get("id"))
        if message_id in self._ended_texts or not message_id or not is_agents(wire):
            return []
        message, events = self._open_message(wire, {}, ns)
        before, now = "".join(message.text), text_of(_decode_message(wire).parts)
        return [*events, *(self._grow(message, "text", now[len(before) :]) if now.startswith(before) else ())]

    def has_ended(self, wire: JsonObject) -> bool:
        """Return True if the message has ended."""
        return as_text(wire.get("id")) in self._ended_texts

    def is_open(self, wire: JsonObject) -> bool:
        """Return True if the message is open."""
        return as_text(wire.get("id")) in self._open

    # In chunks

    def _open_message(self, wire: JsonObject, metadata: JsonObject, ns: Place) -> tuple[_Open, list[Event]]:
        """Return the open message of a chunk, and the event that starts it if it is new."""
        message_id = as_text(wire.get("id"))
        message = self._open.get(message_id)
        if message is not None:
            return message, []
        place = metadata.get("langgraph_checkpoint_ns")
        message = self._open[message_id] = _Open(message_id or None, as_text(place))
        self.has_answer = True
        name = wire.get("name")
        started = MessageStarted(
            message_id=message.message_id,
            name=name if isinstance(name, str) and name else None,
            node=as_text(metadata.get("langgraph_node")),
            ns=ns,
            extra=_graph_metadata(metadata),
        )
        return message, [started]

    def _chunk(self, chunk: JsonObject, metadata: JsonObject, ns: Place) -> list[Event]:
        if as_text(chunk.get("id")) in self._ended_texts:
            return []
        message, events = self._open_message(chunk, metadata, ns)
        events += self._grow(
            message, "reasoning", as_text(as_object(chunk.get("additional_kwargs")).get(REASONING_CONTENT))
        )
        events += self._content(message, chunk.get("content"))
        pieces: Any = chunk.get("tool_call_chunks") or chunk.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else ():  # pyright: ignore[reportUnknownVariableType]
            events += self._tool_call_piece(message, as_object(piece))
        message.usage = add_usage(message.usage, chunk.get("usage_metadata"))
        message.stop_reason = _stop_reason(chunk) or message.stop_reason
        # langchain-core 1.7.2 (messages/ai.py, AIMessageChunk).
        if chunk.get("chunk_position") == "last":
            events += self._end(message)
        return events

    def _content(self, message: _Open, content: Any) -> list[Event]:
        if isinstance(content, str):
            return self._grow(message, "text", content)
        events: list[Event] = []
        for block in content if isinstance(content, list) else ():  # pyright: ignore[reportUnknownVariableType]
            members = as_object(block) if not isinstance(block, str) else {"type": "text", "text": block}
            kind = as_text(members.get("type"))
            if kind in _PIECES:
                events += self._piece(message, members, *_PIECES[kind])
            # ServerToolCallChunk of langchain-core 1.7.2.
            elif kind == "server_tool_call_chunk":
                events += self._tool_call_piece(message, members, of_server=True)
            elif kind not in _REPEATED_CALLS:
                events += self._block(message, members)
        return events

    def _piece(self, message: _Open, block: JsonObject, kind: str, member: str) -> list[Event]:
        """Return the events for a piece of text, reasoning or a refusal. The piece may contain citations, and members
        of the whole part."""
        number, text = block.get("index"), block.get(member)
        annotations: Any = block.get("annotations")
        rest = {name: value for name, value in block.items() if name not in ("type", member, "index", "annotations")}
        events: list[Event] = []
        text = text if isinstance(text, str) else ""
        if any(rest.values()) and not self._is_continued(message, kind, number):
            events += self._begin(message, {"type": kind, kind: text, **rest}, kind, number)
        else:
            events += self._grow(message, kind, text, number)
        if annotations:
            events += self._cite(message, annotations)
        return events

    def _cite(self, message: _Open, annotations: Any) -> list[Event]:
        """Return the events of annotations. Citations are parts. Other annotations would belong to the text, which has
        been sent, so they are lost."""
        listed = cast("list[Any]", annotations) if isinstance(annotations, list) else [annotations]
        citations, others = split_annotations(listed)
        events = [*self._end_part(message), *(self._add(message, decode_citation(citation)) for citation in citations)]
        return [*events, LossNoted(feature=Feature.CITATION, how=_NOT_CITED)] if others else events

    def _is_continued(self, message: _Open, kind: str, number: Any) -> bool:
        """Return True if a piece belongs to the open part."""
        if message.open_part is None or message.open_part[0] != kind:
            return False
        return number is None or message.open_part[1] is None or message.open_part[1] == number

    def _begin(self, message: _Open, block: JsonObject, kind: str, number: Any) -> list[Event]:
        """Start a part with a content block that has more members than its text. `number` is the index of the block."""
        part = _parts(block)[0]
        if part.kind != kind:
            return self._block(message, block)
        events = self._end_part(message)
        message.open_part = (kind, number, message.parts)
        if isinstance(part, TextPart):
            message.text.append(part.text)
        return [*events, self._add(message, part, is_open=True)]

    def _grow(self, message: _Open, kind: str, text: str, number: Any = None) -> list[Event]:
        """Add text to the open part, or start a new part with it. `number` is the index of the content block; text with
        another number belongs to another part."""
        if not text:
            return []
        if kind == "text":
            message.text.append(text)
        if self._is_continued(message, kind, number):
            assert message.open_part is not None
            return [PartDelta(message_id=message.message_id, index=message.open_part[2], text=text)]
        part: Part = TextPart(text=text)
        if kind != "text":
            part = ReasoningPart(text=text) if kind == "reasoning" else RefusalPart(text=text)
        events = self._end_part(message)
        message.open_part = (kind, number, message.parts)
        return [*events, self._add(message, part, is_open=True)]

    def _block(self, message: _Open, block: JsonObject) -> list[Event]:
        """Return the events of a content block that arrives whole, unlike text, reasoning and tool calls."""
        parts = _parts({name: value for name, value in block.items() if name != "index"})
        for part in parts:
            self.data = part.data if isinstance(part, DataPart) else self.data
        return [*self._end_part(message), *(self._add(message, part) for part in parts)]

    def _tool_call_piece(self, message: _Open, piece: JsonObject, *, of_server: bool = False) -> list[Event]:
        """Return the events for a piece of a tool call. `of_server`: the model's provider executes the tool, and
        numbers it as a block."""
        number: Any = piece.get("index")
        number = number if isinstance(number, int | str) else None
        number = (_SERVER_CALL, number) if of_server else number
        args: Any = piece.get("args")
        arguments = "" if args is None else arguments_text(args)
        index = message.calls.get(number)
        name, call_id = as_text(piece.get("name")), as_text(piece.get("id"))
        if index is not None and not (call_id and name):
            return [PartDelta(message_id=message.message_id, index=index, text=arguments)] if arguments else []
        events = self._end_part(message)
        if index is not None:  # this model does not number its calls
            events.append(PartEnded(message_id=message.message_id, index=index))
        message.calls[number] = message.parts
        part = ToolCallPart(call_id=call_id, name=name, arguments=arguments)
        return [*events, self._add(message, part, is_open=True)]

    def _add(self, message: _Open, part: Part, *, is_open: bool = False) -> Event:
        message.parts += 1
        return PartAdded(message_id=message.message_id, index=message.parts - 1, part=part, open=is_open)

    def _end_part(self, message: _Open) -> list[Event]:
        """End the open part, because something else follows."""
        if message.open_part is None:
            return []
        index = message.open_part[2]
        message.open_part = None
        return [PartEnded(message_id=message.message_id, index=index)]

    def _end(self, message: _Open) -> list[Event]:
        """End a message with its open parts."""
        events = self._end_part(message)
        events += [PartEnded(message_id=message.message_id, index=index) for index in message.calls.values()]
        calls = [number for number in message.calls if not isinstance(number, tuple)]
        finish = "tool_calls" if calls else "length" if message.stop_reason in _LIMIT_REASONS else "stop"
        key = message.message_id or ""
        del self._open[key]
        if key:
            self._ended_texts[key] = "".join(message.text)
        self.usage = add_usage(self.usage, message.usage)
        return [*events, MessageEnded(message_id=message.message_id, finish=finish, usage=message.usage)]


def _parts(block: JsonObject) -> Sequence[Part]:
    try:
        return decode_content([block])
    except FaultError:
        return [DataPart(data=block)]


def _decode_message(wire: JsonObject) -> Message:
    try:
        return decode_message(wire)
    except FaultError:  # an unknown kind of message becomes data
        return Message(message_id=as_text(wire.get("id")) or None, role="agent", parts=(DataPart(data=wire),))


def _with_reasoning(message: Message) -> Message:
    """Return an agent's message with its reasoning as a part. Some integrations keep it in `additional_kwargs`
    (langchain-deepseek 1.0 and others), where callers of LangGraph expect it."""
    reasoning = as_object(extra_of(message.extra).get("additional_kwargs")).get(REASONING_CONTENT)
    if message.role != "agent" or not isinstance(reasoning, str) or not reasoning:
        return message
    part = ReasoningPart(text=reasoning, extra={"langchain": {"type": REASONING_CONTENT}})
    return message.replace(parts=(part, *message.parts))


def _graph_metadata(metadata: JsonObject) -> JsonObject:
    """Return the metadata of a message that tell its place in the graph and its model, for callers of LangGraph."""
    # The other members are specific to the server and its deployment, or were sent in headers.
    kept_members = {name: value for name, value in metadata.items() if name in _KEPT_MEMBERS or name.startswith("ls_")}
    return {"langgraph": kept_members} if kept_members else {}


def _stop_reason(wire: JsonObject) -> str:
    response_metadata = as_object(wire.get("response_metadata"))
    for name in ("finish_reason", "stop_reason", "done_reason"):
        if isinstance(response_metadata.get(name), str):
            return response_metadata[name]
    return ""
