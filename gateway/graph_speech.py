"""What is said in a graph: LangChain's messages and chunks of them → events.

What a model says is the graph's answer, piece by piece. Results of tools, and whatever else nodes put into the
conversation, is told on the way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessageChunk, BaseMessage, RemoveMessage

from adapters.langchain.content import decode_content, members_of
from adapters.langchain.message import decode_message
from canonical import DataPart, Event, FaultError, Message, Part, ReasoningPart, TextPart, ToolCallPart
from canonical.event import MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from canonical.value import JsonObject
from gateway.graph_value import plain, plain_text

__all__ = ("Speech", "added")

_TEXTS: Final = ("text", "text_delta", "output_text")
_THOUGHTS: Final = ("reasoning", "thinking", "thinking_delta")
_CALLS: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call", "invalid_tool_call"}
)
"""Blocks that say again what stands in `tool_call_chunks`."""
_TOLD: Final = ("langgraph_node", "langgraph_step", "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns")
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"})


def added(usage: JsonObject, more: Mapping[str, Any] | None) -> JsonObject:
    """Counts of tokens add up, member by member."""
    total = dict(usage)
    for name, count in (more or {}).items():
        if isinstance(count, dict):
            total[name] = added(total.get(name) or {}, members_of(count))
        elif isinstance(count, int | float):
            total[name] = total.get(name, 0) + count
    return total


@dataclass(slots=True)
class _Open:
    """A message that comes in chunks."""

    message_id: str
    place: str
    """Of the node that says it: the names and ids of the tasks around it."""
    parts: int = 0
    grows: tuple[str, int] | None = None
    """Kind and index of the part that more of the same kind is added to."""
    calls: dict[Any, int] = field(default_factory=dict[Any, int])
    """The tool calls that more is added to: the model's number of each, and the index of its part."""
    usage: JsonObject = field(default_factory=dict[str, Any])
    stopped: str = ""


class Speech:
    """Of one run."""

    def __init__(self) -> None:
        self.answered = False
        """A model has said something."""
        self.usage: JsonObject = {}
        self._open: dict[str, _Open] = {}
        self._ended: set[str] = set()

    def hear(self, message: BaseMessage, about: Mapping[str, Any], ns: tuple[str, ...]) -> list[Event]:
        if isinstance(message, AIMessageChunk):
            return self._chunk(message, about, ns)
        if isinstance(message, RemoveMessage):
            return []
        return self._whole(message, about, ns)

    def node_ended(self, task_id: str) -> list[Event]:
        """Whatever a node has not finished saying, it will not."""
        mine = [said for said in self._open.values() if any(p.endswith(task_id) for p in said.place.split("|"))]
        return [event for said in mine for event in self._end(said)]

    def close(self) -> list[Event]:
        return [event for said in list(self._open.values()) for event in self._end(said)]

    # In one piece

    def _whole(self, message: BaseMessage, about: Mapping[str, Any], ns: tuple[str, ...]) -> list[Event]:
        told = _decoded(message)
        usage: Any = told.extra.get("langchain", {}).get("usage_metadata") or {}
        self.usage = added(self.usage, usage)
        is_answer = told.role == "agent"
        self.answered = self.answered or is_answer
        started = MessageStarted(
            message_id=told.message_id,
            role=told.role,
            name=told.name,
            phase="answer" if is_answer else "progress",
            node=str(about.get("langgraph_node", "")),
            ns=ns,
            metadata=told.metadata,
            extra={**told.extra, **_about(about)},
        )
        calls = any(isinstance(part, ToolCallPart) for part in told.parts)
        parts = [PartAdded(message_id=told.message_id, part=part) for part in told.parts]
        finish = "tool_calls" if calls else "length" if _stop_reason(message) in _CUT_SHORT else "stop"
        return [started, *parts, MessageEnded(message_id=told.message_id, finish=finish, usage=usage)]

    # In chunks

    def _chunk(self, chunk: AIMessageChunk, about: Mapping[str, Any], ns: tuple[str, ...]) -> list[Event]:
        message_id = plain_text(str(chunk.id))
        events: list[Event] = []
        said = self._open.get(message_id)
        if said is None:
            if message_id in self._ended:
                return []
            said = self._open[message_id] = _Open(message_id, str(about.get("langgraph_checkpoint_ns", "")))
            self.answered = True
            events.append(
                MessageStarted(
                    message_id=message_id,
                    name=None if chunk.name is None else plain_text(chunk.name),
                    node=str(about.get("langgraph_node", "")),
                    ns=ns,
                    extra=_about(about),
                )
            )
        events += self._content(said, chunk.content)
        for piece in chunk.tool_call_chunks:
            events += self._call(said, piece)
        said.usage = added(said.usage, chunk.usage_metadata)
        said.stopped = _stop_reason(chunk) or said.stopped
        if chunk.chunk_position == "last":
            events += self._end(said)
        return events

    def _content(self, said: _Open, content: str | Sequence[Any]) -> list[Event]:
        if isinstance(content, str):
            return self._grow(said, "text", content)
        events: list[Event] = []
        for block in content:
            members = {"type": "text", "text": block} if isinstance(block, str) else members_of(block)
            kind = members.get("type")
            if kind in _TEXTS and isinstance(members.get("text"), str):
                events += self._grow(said, "text", members["text"])
            elif kind in _THOUGHTS:
                thought = members.get("reasoning") or members.get("thinking") or ""
                events += self._grow(said, "reasoning", thought if isinstance(thought, str) else "")
            elif kind not in _CALLS:
                events += self._block(said, members)
        return events

    def _grow(self, said: _Open, kind: str, text: str) -> list[Event]:
        if not text:
            return []
        text = plain_text(text)
        if said.grows is not None and said.grows[0] == kind:
            return [PartDelta(message_id=said.message_id, index=said.grows[1], text=text)]
        part = TextPart(text=text) if kind == "text" else ReasoningPart(text=text)
        events = self._settle(said)
        said.grows = (kind, said.parts)
        return [*events, self._add(said, part, grows=True)]

    def _block(self, said: _Open, block: Mapping[str, Any]) -> list[Event]:
        """A block of another kind comes whole."""
        told: Any = plain(block)
        try:
            parts: Sequence[Part] = decode_content([told])
        except FaultError:
            parts = [DataPart(data=told)]
        return [*self._settle(said), *(self._add(said, part) for part in parts)]

    def _call(self, said: _Open, piece: Mapping[str, Any]) -> list[Event]:
        number, arguments = piece.get("index"), plain_text(piece.get("args") or "")
        known = said.calls.get(number)
        if known is not None and not (piece.get("id") and piece.get("name")):
            return [PartDelta(message_id=said.message_id, index=known, text=arguments)] if arguments else []
        events = self._settle(said)
        if known is not None:  # a model that does not number its calls
            events.append(PartEnded(message_id=said.message_id, index=known))
        said.calls[number] = said.parts
        name, call_id = plain_text(piece.get("name") or ""), plain_text(piece.get("id") or "")
        part = ToolCallPart(call_id=call_id, name=name, arguments=arguments)
        return [*events, self._add(said, part, grows=True)]

    def _add(self, said: _Open, part: Part, *, grows: bool = False) -> Event:
        said.parts += 1
        return PartAdded(message_id=said.message_id, index=said.parts - 1, part=part, open=grows)

    def _settle(self, said: _Open) -> list[Event]:
        """Text that is followed by something else is at its end."""
        if said.grows is None:
            return []
        index = said.grows[1]
        said.grows = None
        return [PartEnded(message_id=said.message_id, index=index)]

    def _end(self, said: _Open) -> list[Event]:
        events = self._settle(said)
        events += [PartEnded(message_id=said.message_id, index=index) for index in said.calls.values()]
        finish = "tool_calls" if said.calls else "length" if said.stopped in _CUT_SHORT else "stop"
        del self._open[said.message_id]
        self._ended.add(said.message_id)
        self.usage = added(self.usage, said.usage)
        return [*events, MessageEnded(message_id=said.message_id, finish=finish, usage=said.usage)]


def _decoded(message: BaseMessage) -> Message:
    told: Any = plain(message)
    try:
        return decode_message(told)
    except FaultError:  # a kind of message that nobody else has
        return Message(message_id=told.get("id") or None, role="agent", parts=(DataPart(data=told),))


def _about(about: Mapping[str, Any]) -> JsonObject:
    """Where in the graph it was said, for those who ask in LangGraph's words."""
    return {"langgraph": {name: plain(about[name]) for name in _TOLD if name in about}}


def _stop_reason(message: BaseMessage) -> str:
    found: Any = message.response_metadata
    for name in ("finish_reason", "stop_reason", "done_reason"):
        if isinstance(found.get(name), str):
            return found[name]
    return ""
