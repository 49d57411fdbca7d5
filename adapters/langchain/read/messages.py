"""What is said on another server: messages, whole or in chunks, as LangChain writes them → events.

What a model says is the agent's answer, piece by piece. Results of tools, and whatever else nodes put into the
conversation, is told on the way.
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
from babelgate.adapters.langchain.codec.message import ROLES, decode_message
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

_GROWS: Final[Mapping[str, tuple[str, str]]] = {
    "text": ("text", "text"),
    "text_delta": ("text", "text"),
    "output_text": ("text", "text"),
    "reasoning": ("reasoning", "reasoning"),
    "thinking": ("reasoning", "thinking"),
    "thinking_delta": ("reasoning", "thinking"),
    "refusal": ("refusal", "refusal"),
}
"""Blocks that come in pieces: what grows, and the member that holds the piece. `text` and `reasoning` are
langchain-core's (1.7.2, messages/content.py), `thinking` is Anthropic's, whose streams have `text_delta` and
`thinking_delta` (strands-agents 1.62.0, models/anthropic.py), `output_text` and `refusal` are of OpenAI's Responses
API."""
_CALLS: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call", "invalid_tool_call"}
)
"""Blocks that say again what stands in `tool_call_chunks`: langchain-core's own (1.7.2, messages/content.py),
`tool_use` and `input_json_delta` of Anthropic, `function_call` of OpenAI's Responses API (block_translators)."""
_OF_SERVER: Final = "server"
_PLACE: Final = ("langgraph_node", "langgraph_step", "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns")
"""Of the metadata of langgraph 1.2.22 (pregel/_algo.py)."""
_TOLD: Final = (*_PLACE, "tags")
"""And what langchain-core says of the model (`ls_provider`, `ls_model_name` …)."""
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"})
"""`length` is of OpenAI's chat completions, `max_output_tokens` of its Responses API, `MAX_TOKENS` of Google's
FinishReason, `max_tokens` of Bedrock and `model_length` of Mistral (pydantic-ai 2.68.0, models)."""
_DEEPEST: Final = 8
"""Levels of objects in counts of tokens. Chosen, not measured: langchain-core 1.7.2 has one (messages/ai.py,
UsageMetadata)."""
_NOT_CITED: Final = "annotations that are no citations, and came in pieces"

Place = tuple[str, ...]


def add_usage(usage: JsonObject, more: Any, depth: int = 0) -> JsonObject:
    """Counts of tokens add up, member by member."""
    total = dict(usage)
    for name, count in as_object(more).items():
        if isinstance(count, dict) and depth < _DEEPEST:
            total[name] = add_usage(as_object(total.get(name)), count, depth + 1)
        elif isinstance(count, int | float) and not isinstance(count, bool):
            before = total.get(name, 0)
            total[name] = (before if isinstance(before, int | float) else 0) + count
    return total


def is_agents(wire: Json) -> bool:
    """Whether a message of a state was said by the agent."""
    return ROLES.get(_role(as_object(wire))) == "agent"


def _role(wire: JsonObject) -> str:
    role: Any = wire.get("role", wire.get("type"))
    return role if isinstance(role, str) else ""


@dataclass(slots=True)
class _Open:
    """A message that comes in chunks."""

    message_id: str | None
    place: str = ""
    """Of the node that says it: the names and ids of the tasks around it."""
    parts: int = 0
    grows: tuple[str, Any, int] | None = None
    """What the part is that more of its kind is added to, the block's own number, and the index of the part."""
    calls: dict[Any, int] = field(default_factory=dict[Any, int])
    """The tool calls that more is added to: the model's number of each, and the index of its part."""
    text: list[str] = field(default_factory=list[str])
    usage: JsonObject = field(default_factory=dict[str, Any])
    stopped: str = ""


class MessageDecoder:
    """Of one run."""

    def __init__(self) -> None:
        self.answered = False
        """The agent has said something."""
        self.usage: JsonObject = {}
        self.data: Json = None
        """The last data that was said."""
        self._open: dict[str, _Open] = {}
        self._told: dict[str, str] = {}
        """The texts of the messages that have ended."""

    def hear(self, wire: JsonObject, about: JsonObject, ns: Place, *, chunked: bool) -> list[Event]:
        """`chunked` = where a message does not say itself whether it is a piece of one, it is."""
        kind, role = wire.get("type"), _role(wire)
        if role in ("remove", "RemoveMessage"):
            return []
        if kind == "AIMessageChunk" or (chunked and kind is None and ROLES.get(role) == "agent"):
            return self._chunk(wire, about, ns)
        return self.whole(wire, about, ns)

    def node_ended(self, task_id: str) -> list[Event]:
        """Whatever a node has not finished saying, it will not."""
        # `|` stands between the tasks of a namespace (langgraph 1.2.22, _internal/_constants.py, NS_SEP).
        mine = [said for said in self._open.values() if any(p.endswith(task_id) for p in said.place.split("|"))]
        return [event for said in mine for event in self._end(said)]

    def close(self) -> list[Event]:
        return [event for said in list(self._open.values()) for event in self._end(said)]

    def recall(self, event: MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        """It was told before, by a reader that is gone."""
        key = event.message_id or ""
        if isinstance(event, MessageStarted):
            self._open[key] = _Open(event.message_id)
            self.answered = self.answered or event.phase == "answer"
            return
        said = self._open.get(key)
        if said is None:
            return
        match event:
            case PartAdded():
                said.parts += 1
                if isinstance(event.part, TextPart):
                    said.text.append(event.part.text)
                if event.open and isinstance(event.part, ToolCallPart):
                    said.calls[len(said.calls)] = said.parts - 1
                elif event.open:
                    said.grows = (event.part.kind, None, said.parts - 1)
            case PartDelta():
                if said.grows is not None and said.grows[0] == "text":
                    said.text.append(event.text)
            case PartEnded():
                said.grows = None
                said.calls = {number: index for number, index in said.calls.items() if index != event.index}
            case MessageEnded():
                del self._open[key]
                self._told[key] = "".join(said.text)

    # In one piece

    def whole(self, wire: JsonObject, about: JsonObject | None = None, ns: Place = ()) -> list[Event]:
        told = _tell_thoughts(_decode_message(wire))
        if told.message_id is not None and told.message_id in self._told:
            return []
        if told.message_id is not None and told.message_id in self._open:
            return self.rest(wire)
        usage = as_object(as_object(told.extra.get("langchain")).get("usage_metadata"))
        self.usage = add_usage(self.usage, usage)
        is_answer = told.role == "agent"
        self.answered = self.answered or is_answer
        for part in told.parts:
            self.data = part.data if is_answer and isinstance(part, DataPart) else self.data
        started = MessageStarted(
            message_id=told.message_id,
            role=told.role,
            name=told.name,
            phase="answer" if is_answer else "progress",
            node=as_text(as_object(about).get("langgraph_node")),
            ns=ns,
            metadata=told.metadata,
            extra={**told.extra, **_about(about or {})},
        )
        if told.message_id is not None:
            self._told[told.message_id] = text_of(told.parts)
        calls = any(isinstance(part, ToolCallPart) for part in told.parts)
        parts = [PartAdded(message_id=told.message_id, part=part) for part in told.parts]
        finish = "tool_calls" if calls else "length" if _stop_reason(wire) in _CUT_SHORT else "stop"
        return [started, *parts, MessageEnded(message_id=told.message_id, finish=finish, usage=usage)]

    def rest(self, wire: JsonObject) -> list[Event]:
        """A message as it is by now, of which some was told: what is new of its text, its tool calls if none was told,
        and its end."""
        said = self._open[as_text(wire.get("id"))]
        parts = _decode_message(wire).parts
        before, now = "".join(said.text), text_of(parts)
        more = now[len(before) :] if now.startswith(before) else ""
        said.usage = add_usage({}, wire.get("usage_metadata")) or said.usage
        events = self._grow(said, "text", more) if more else []
        for call in [part for part in parts if isinstance(part, ToolCallPart)] if not said.calls else ():
            events += self._end_part(said)
            said.calls[len(said.calls)] = said.parts
            events.append(self._add(said, call))
        return [*events, *self._end(said)]

    def so_far(self, wire: JsonObject, ns: Place) -> list[Event]:
        """A message that is not at its end yet, all of it each time (`messages/partial`)."""
        message_id = as_text(wire.get("id"))
        if message_id in self._told or not message_id or not is_agents(wire):
            return []
        said, events = self._open_message(wire, {}, ns)
        before, now = "".join(said.text), text_of(_decode_message(wire).parts)
        return [*events, *(self._grow(said, "text", now[len(before) :]) if now.startswith(before) else ())]

    def is_told(self, wire: JsonObject) -> bool:
        return as_text(wire.get("id")) in self._told

    def is_open(self, wire: JsonObject) -> bool:
        return as_text(wire.get("id")) in self._open

    # In chunks

    def _open_message(self, wire: JsonObject, about: JsonObject, ns: Place) -> tuple[_Open, list[Event]]:
        message_id = as_text(wire.get("id"))
        said = self._open.get(message_id)
        if said is not None:
            return said, []
        place = about.get("langgraph_checkpoint_ns")
        said = self._open[message_id] = _Open(message_id or None, as_text(place))
        self.answered = True
        name = wire.get("name")
        started = MessageStarted(
            message_id=said.message_id,
            name=name if isinstance(name, str) and name else None,
            node=as_text(about.get("langgraph_node")),
            ns=ns,
            extra=_about(about),
        )
        return said, [started]

    def _chunk(self, chunk: JsonObject, about: JsonObject, ns: Place) -> list[Event]:
        if as_text(chunk.get("id")) in self._told:
            return []
        said, events = self._open_message(chunk, about, ns)
        events += self._grow(
            said, "reasoning", as_text(as_object(chunk.get("additional_kwargs")).get(REASONING_CONTENT))
        )
        events += self._content(said, chunk.get("content"))
        pieces: Any = chunk.get("tool_call_chunks") or chunk.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else ():  # pyright: ignore[reportUnknownVariableType]
            events += self._call(said, as_object(piece))
        said.usage = add_usage(said.usage, chunk.get("usage_metadata"))
        said.stopped = _stop_reason(chunk) or said.stopped
        # langchain-core 1.7.2 (messages/ai.py, AIMessageChunk).
        if chunk.get("chunk_position") == "last":
            events += self._end(said)
        return events

    def _content(self, said: _Open, content: Any) -> list[Event]:
        if isinstance(content, str):
            return self._grow(said, "text", content)
        events: list[Event] = []
        for block in content if isinstance(content, list) else ():  # pyright: ignore[reportUnknownVariableType]
            members = as_object(block) if not isinstance(block, str) else {"type": "text", "text": block}
            kind = as_text(members.get("type"))
            if kind in _GROWS:
                events += self._piece(said, members, *_GROWS[kind])
            # ServerToolCallChunk of langchain-core 1.7.2.
            elif kind == "server_tool_call_chunk":
                events += self._call(said, members, of_server=True)
            elif kind not in _CALLS:
                events += self._block(said, members)
        return events

    def _piece(self, said: _Open, block: JsonObject, kind: str, member: str) -> list[Event]:
        """Of a text, a thought or a refusal; it may bring citations, and what is said of the part as a whole."""
        number, text = block.get("index"), block.get(member)
        cited: Any = block.get("annotations")
        rest = {name: value for name, value in block.items() if name not in ("type", member, "index", "annotations")}
        events: list[Event] = []
        text = text if isinstance(text, str) else ""
        if any(rest.values()) and not self._continues(said, kind, number):
            events += self._begin(said, {"type": kind, kind: text, **rest}, kind, number)
        else:
            events += self._grow(said, kind, text, number)
        if cited:
            events += self._cite(said, cited)
        return events

    def _cite(self, said: _Open, annotations: Any) -> list[Event]:
        """Citations are parts. Others would belong to the text, which is told already."""
        listed = cast("list[Any]", annotations) if isinstance(annotations, list) else [annotations]
        citations, others = split_annotations(listed)
        events = [*self._end_part(said), *(self._add(said, decode_citation(each)) for each in citations)]
        return [*events, LossNoted(feature=Feature.CITATION, how=_NOT_CITED)] if others else events

    def _continues(self, said: _Open, kind: str, number: Any) -> bool:
        if said.grows is None or said.grows[0] != kind:
            return False
        return number is None or said.grows[1] is None or said.grows[1] == number

    def _begin(self, said: _Open, block: JsonObject, kind: str, number: Any) -> list[Event]:
        part = _parts(block)[0]
        if part.kind != kind:
            return self._block(said, block)
        events = self._end_part(said)
        said.grows = (kind, number, said.parts)
        if isinstance(part, TextPart):
            said.text.append(part.text)
        return [*events, self._add(said, part, grows=True)]

    def _grow(self, said: _Open, kind: str, text: str, number: Any = None) -> list[Event]:
        if not text:
            return []
        if kind == "text":
            said.text.append(text)
        if self._continues(said, kind, number):
            assert said.grows is not None
            return [PartDelta(message_id=said.message_id, index=said.grows[2], text=text)]
        part: Part = TextPart(text=text)
        if kind != "text":
            part = ReasoningPart(text=text) if kind == "reasoning" else RefusalPart(text=text)
        events = self._end_part(said)
        said.grows = (kind, number, said.parts)
        return [*events, self._add(said, part, grows=True)]

    def _block(self, said: _Open, block: JsonObject) -> list[Event]:
        """A block of another kind comes whole."""
        found = _parts({name: value for name, value in block.items() if name != "index"})
        for part in found:
            self.data = part.data if isinstance(part, DataPart) else self.data
        return [*self._end_part(said), *(self._add(said, part) for part in found)]

    def _call(self, said: _Open, piece: JsonObject, *, of_server: bool = False) -> list[Event]:
        """`of_server` = a tool that the model's provider runs itself: its numbers are those of blocks."""
        number: Any = piece.get("index")
        number = number if isinstance(number, int | str) else None
        number = (_OF_SERVER, number) if of_server else number
        given: Any = piece.get("args")
        arguments = "" if given is None else arguments_text(given)
        known = said.calls.get(number)
        name, call_id = as_text(piece.get("name")), as_text(piece.get("id"))
        if known is not None and not (call_id and name):
            return [PartDelta(message_id=said.message_id, index=known, text=arguments)] if arguments else []
        events = self._end_part(said)
        if known is not None:  # a model that does not number its calls
            events.append(PartEnded(message_id=said.message_id, index=known))
        said.calls[number] = said.parts
        part = ToolCallPart(call_id=call_id, name=name, arguments=arguments)
        return [*events, self._add(said, part, grows=True)]

    def _add(self, said: _Open, part: Part, *, grows: bool = False) -> Event:
        said.parts += 1
        return PartAdded(message_id=said.message_id, index=said.parts - 1, part=part, open=grows)

    def _end_part(self, said: _Open) -> list[Event]:
        """Text that is followed by something else is at its end."""
        if said.grows is None:
            return []
        index = said.grows[2]
        said.grows = None
        return [PartEnded(message_id=said.message_id, index=index)]

    def _end(self, said: _Open) -> list[Event]:
        events = self._end_part(said)
        events += [PartEnded(message_id=said.message_id, index=index) for index in said.calls.values()]
        calls = [number for number in said.calls if not isinstance(number, tuple)]
        finish = "tool_calls" if calls else "length" if said.stopped in _CUT_SHORT else "stop"
        key = said.message_id or ""
        del self._open[key]
        if key:
            self._told[key] = "".join(said.text)
        self.usage = add_usage(self.usage, said.usage)
        return [*events, MessageEnded(message_id=said.message_id, finish=finish, usage=said.usage)]


def _parts(block: JsonObject) -> Sequence[Part]:
    try:
        return decode_content([block])
    except FaultError:
        return [DataPart(data=block)]


def _decode_message(wire: JsonObject) -> Message:
    try:
        return decode_message(wire)
    except FaultError:  # a kind of message that nobody else has
        return Message(message_id=as_text(wire.get("id")) or None, role="agent", parts=(DataPart(data=wire),))


def _tell_thoughts(told: Message) -> Message:
    """Of models whose integration keeps their thoughts beside the content (langchain-deepseek 1.0 and others), where
    callers of LangGraph find them."""
    thought = as_object(extra_of(told.extra).get("additional_kwargs")).get(REASONING_CONTENT)
    if told.role != "agent" or not isinstance(thought, str) or not thought:
        return told
    part = ReasoningPart(text=thought, extra={"langchain": {"type": REASONING_CONTENT}})
    return told.replace(parts=(part, *told.parts))


def _about(about: JsonObject) -> JsonObject:
    """Where in the graph it was said, for those who ask in LangGraph's words."""
    # Of the rest, much is of the server's own and its deployment's, or came in headers.
    told = {name: value for name, value in about.items() if name in _TOLD or name.startswith("ls_")}
    return {"langgraph": told} if told else {}


def _stop_reason(wire: JsonObject) -> str:
    found = as_object(wire.get("response_metadata"))
    for name in ("finish_reason", "stop_reason", "done_reason"):
        if isinstance(found.get(name), str):
            return found[name]
    return ""
