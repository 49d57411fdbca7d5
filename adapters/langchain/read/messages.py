"""Decoding of an upstream server's messages as events. Messages arrive whole or in chunks, as LangChain sends them.

The messages of the agent's role are its answer. Results of tools, and other messages that nodes add to the
conversation, are progress.
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
"""Content blocks that arrive in pieces, by type: the kind of their part, and the block's member with the text.

`text` and `reasoning` are langchain-core's (1.7.2, messages/content.py). `thinking` is Anthropic's, whose streams have
`text_delta` and `thinking_delta` (strands-agents 1.62.0, models/anthropic.py). `output_text` and `refusal` are from
OpenAI's Responses API.
"""
_REPEATED_CALLS: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call", "invalid_tool_call"}
)
"""Types of content blocks to ignore, because the chunk repeats the call in `tool_call_chunks`.

langchain-core's own (1.7.2, messages/content.py), `tool_use` and `input_json_delta` of Anthropic, `function_call` of
OpenAI's Responses API (block_translators).
"""
_SERVER_CALL: Final = "server"
"""First member of the keys in `_Open.calls` for tool calls that the model's provider executes."""
_PLACE_MEMBERS: Final = (
    "langgraph_node",
    "langgraph_step",
    "langgraph_triggers",
    "langgraph_path",
    "langgraph_checkpoint_ns",
)
"""Members of a message's metadata that describe its position in the graph (langgraph 1.2.22, pregel/_algo.py)."""
_KEPT_MEMBERS: Final = (*_PLACE_MEMBERS, "tags")
"""Members of a message's metadata that the log stores for callers of LangGraph. Members whose name begins with `ls_`
are stored, too: langchain-core describes the model there, for example in `ls_model_name`."""
_LIMIT_REASONS: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"})
"""Stop reasons of models that mean that the answer reached a limit of tokens.

`length` is from OpenAI's chat completions, `max_output_tokens` from its Responses API, `MAX_TOKENS` from Google's
FinishReason, `max_tokens` from Bedrock and `model_length` from Mistral (pydantic-ai 2.68.0, models).
"""
_MAX_DEPTH: Final = 8
"""Maximum depth of nested objects in counts of tokens; deeper ones are ignored. Chosen, not measured: langchain-core
1.7.2 has one level (messages/ai.py, UsageMetadata)."""
_NOT_CITED: Final = "annotations that are not citations, and arrived in pieces"
"""Text of the loss if chunks contain annotations that are not citations."""

Place = tuple[str, ...]


def add_usage(usage: JsonObject, more: Any, depth: int = 0) -> JsonObject:
    """Return the sum of two objects with counts of tokens, member by member. Nested objects are added up to
    `_MAX_DEPTH`; members that are no numbers are ignored."""
    total = dict(usage)
    for name, count in as_object(more).items():
        if isinstance(count, dict) and depth < _MAX_DEPTH:
            total[name] = add_usage(as_object(total.get(name)), count, depth + 1)
        elif isinstance(count, int | float) and not isinstance(count, bool):
            before = total.get(name, 0)
            total[name] = (before if isinstance(before, int | float) else 0) + count
    return total


def is_agents(wire: Json) -> bool:
    """Return True if a message has a role of the agent, such as `ai` or `assistant`."""
    return ROLES.get(role_of(as_object(wire))) == "agent"


@dataclass(slots=True)
class _Open:
    """A message of which chunks arrived, but not yet the end."""

    message_id: str | None
    place: str = ""
    """Namespace of the node that sends the message, as LangGraph writes it: `<node>:<task id>|<node>:<task id>`."""
    parts: int = 0
    """Number of parts that were started."""
    open_part: tuple[str, Any, int] | None = None
    """Part that further text would continue: its kind, the index of its content block at the model or None, and the
    index of the part. None: no such part."""
    calls: dict[Any, int] = field(default_factory=dict[Any, int])
    """Index of the part of each open tool call. The key is the index that the model gave to the call."""
    text: list[str] = field(default_factory=list[str])
    """Text of all text parts so far, in pieces."""
    usage: JsonObject = field(default_factory=dict[str, Any])
    stop_reason: str = ""
    """Reason why the model stopped, such as `length`; empty until it was reported."""


class MessageDecoder:
    """Decoder for the messages of one run. It remembers open and ended messages, because a message can arrive in
    chunks, again as a whole, and again in the state."""

    def __init__(self) -> None:
        self.has_answer = False
        """True if a message of the agent has started."""
        self.usage: JsonObject = {}
        """Sum of the token counts of all messages that have ended."""
        self.data: Json = None
        """Data of the newest `DataPart` in the agent's messages; a possible output of the run."""
        self._open: dict[str, _Open] = {}
        """Open messages, by id."""
        self._ended_texts: dict[str, str] = {}
        """Texts of the messages that have ended, by id."""

    def decode(self, wire: JsonObject, metadata: JsonObject, ns: Place, *, chunked: bool) -> list[Event]:
        """Return the events of a whole message or a chunk, with the metadata and the namespace of its frame. `chunked`:
        an agent's message without a `type` is a chunk, as in the Agent Protocol."""
        kind, role = wire.get("type"), role_of(wire)
        if role in ("remove", "RemoveMessage"):
            return []
        if kind == "AIMessageChunk" or (chunked and kind is None and ROLES.get(role) == "agent"):
            return self._chunk(wire, metadata, ns)
        return self.whole(wire, metadata, ns)

    def node_ended(self, task_id: str) -> list[Event]:
        """Return the events that end the messages which a node's task left open. `task_id` is the id of the ended
        task."""
        # `|` separates the tasks of a namespace (langgraph 1.2.22, _internal/_constants.py, NS_SEP).
        messages = [
            message
            for message in self._open.values()
            if any(task.endswith(task_id) for task in message.place.split("|"))
        ]
        return [event for message in messages for event in self._end(message)]

    def close(self) -> list[Event]:
        """Return the events that end all open messages."""
        return [event for message in list(self._open.values()) for event in self._end(message)]

    def recall(self, event: MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        """Update the decoder's state by an event of the log, before it continues a run that an earlier reader had
        begun."""
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
        """Return the events of a whole message. If chunks of it arrived, return only the events that are missing; if it
        has ended, return nothing. `metadata` is that of the message's frame."""
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
        """Return the events that complete an open message, given the whole message: the rest of its text, its tool
        calls if no chunk had any, and its end."""
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
        """Return the events for the new text of a message. `wire` has all of its text until now, as frames of
        `messages/partial` do. Messages of other roles give nothing."""
        message_id = as_text(wire.get("id"))
        if message_id in self._ended_texts or not message_id or not is_agents(wire):
            return []
        message, events = self._open_message(wire, {}, ns)
        before, now = "".join(message.text), text_of(_decode_message(wire).parts)
        return [*events, *(self._grow(message, "text", now[len(before) :]) if now.startswith(before) else ())]

    def has_ended(self, wire: JsonObject) -> bool:
        """Return True if a message with this message's id has ended."""
        return as_text(wire.get("id")) in self._ended_texts

    def is_open(self, wire: JsonObject) -> bool:
        """Return True if chunks of the message arrived, but not its end."""
        return as_text(wire.get("id")) in self._open

    # In chunks

    def _open_message(self, wire: JsonObject, metadata: JsonObject, ns: Place) -> tuple[_Open, list[Event]]:
        """Return the open message to which a chunk belongs. If the chunk is its first one, also return the
        `MessageStarted`."""
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
        """Return the events for a content block with a piece of text, reasoning or a refusal. `kind` is the kind of the
        part, and `member` the block's member with the text. The block may also have citations."""
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
        """Return an event for each citation in a block's annotations. Other annotations belong to the text, which has
        been sent already, so they give a `LossNoted`."""
        listed = cast("list[Any]", annotations) if isinstance(annotations, list) else [annotations]
        citations, others = split_annotations(listed)
        events = [*self._end_part(message), *(self._add(message, decode_citation(citation)) for citation in citations)]
        return [*events, LossNoted(feature=Feature.CITATION, how=_NOT_CITED)] if others else events

    def _is_continued(self, message: _Open, kind: str, number: Any) -> bool:
        """Return True if a piece of text, reasoning or a refusal (`kind`) continues the open part of a message.
        `number` is the index of the piece's content block, or None if the server sends none."""
        if message.open_part is None or message.open_part[0] != kind:
            return False
        return number is None or message.open_part[1] is None or message.open_part[1] == number

    def _begin(self, message: _Open, block: JsonObject, kind: str, number: Any) -> list[Event]:
        """Return the events that start a part with a content block that has members besides its text. `number` is the
        index of the block."""
        part = _parts(block)[0]
        if part.kind != kind:
            return self._block(message, block)
        events = self._end_part(message)
        message.open_part = (kind, number, message.parts)
        if isinstance(part, TextPart):
            message.text.append(part.text)
        return [*events, self._add(message, part, is_open=True)]

    def _grow(self, message: _Open, kind: str, text: str, number: Any = None) -> list[Event]:
        """Return the events that add text to the open part of the kind, or start a new part with it. `number` is the
        index of the content block: another index means another part."""
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
        """Return the events for a content block that is never split into pieces, such as an image."""
        parts = _parts({name: value for name, value in block.items() if name != "index"})
        for part in parts:
            self.data = part.data if isinstance(part, DataPart) else self.data
        return [*self._end_part(message), *(self._add(message, part) for part in parts)]

    def _tool_call_piece(self, message: _Open, piece: JsonObject, *, of_server: bool = False) -> list[Event]:
        """Return the events for a chunk of a tool call: its start with name and id, or more of its arguments.
        `of_server`: the model's provider executes the tool."""
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
        """Return the event that ends the open part, or nothing if no part is open."""
        if message.open_part is None:
            return []
        index = message.open_part[2]
        message.open_part = None
        return [PartEnded(message_id=message.message_id, index=index)]

    def _end(self, message: _Open) -> list[Event]:
        """Return the events that end a message and its open parts, and add its usage to that of the run."""
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
    """Return an agent's message with the reasoning from `additional_kwargs` added as its first part. Some integrations
    store it there (langchain-deepseek 1.0 and others), and callers of LangGraph get it back in the same place."""
    reasoning = as_object(extra_of(message.extra).get("additional_kwargs")).get(REASONING_CONTENT)
    if message.role != "agent" or not isinstance(reasoning, str) or not reasoning:
        return message
    part = ReasoningPart(text=reasoning, extra={"langchain": {"type": REASONING_CONTENT}})
    return message.replace(parts=(part, *message.parts))


def _graph_metadata(metadata: JsonObject) -> JsonObject:
    """Return the `extra` of a message with the metadata that callers of LangGraph expect: its position in the graph,
    its tags and its model. Return {} if there are none."""
    # The other members are specific to the server and its deployment, or were sent in headers.
    kept_members = {name: value for name, value in metadata.items() if name in _KEPT_MEMBERS or name.startswith("ls_")}
    return {"langgraph": kept_members} if kept_members else {}


def _stop_reason(wire: JsonObject) -> str:
    response_metadata = as_object(wire.get("response_metadata"))
    for name in ("finish_reason", "stop_reason", "done_reason"):
        if isinstance(response_metadata.get(name), str):
            return response_metadata[name]
    return ""
