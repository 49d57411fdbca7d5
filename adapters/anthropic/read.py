"""Reader of another server's message, streamed or whole, as canonical events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, cast

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.codec.questions import ASK
from babelgate.adapters.anthropic.codec.usage import decode_usage
from babelgate.adapters.anthropic.errors import decode_error
from babelgate.adapters.anthropic.write.message import BLOCK, END
from babelgate.adapters.kit.extension import decode_said
from babelgate.adapters.kit.json import ABSENT, json_text, parse_text, validate
from babelgate.canonical import (
    AnnotationPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    Message,
    ReasoningPart,
    RunReason,
    RunStatus,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

Finish = Literal["stop", "length", "tool_calls", "refusal"]

_FINISHES: Final[Mapping[str, Finish]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_PAUSE: Final = "pause_turn"
_MARKED: Final = (PartAdded, ArtifactAdded, ToolStarted, ToolEnded)
_ASIDES: Final = (StepStarted, StepEnded, Custom)
_CALLS: Final = ("tool_use", "mcp_tool_use", "server_tool_use")


@dataclass
class _OpenBlock:
    """Content block that is being read."""

    block: JsonObject
    pieces: list[str] = field(default_factory=list[str])
    """JSON text of a call's arguments."""
    is_shown: bool = False
    """True if a part was begun for the text of the block."""
    is_ignored: bool = False
    """True if the block's text is only a rendering for clients that do not know the gateway. The content itself is in
    the block's member `babelgate`, and is read from there."""
    signature: str = ""
    citations: list[JsonObject] = field(default_factory=list[JsonObject])


class AnswerReader:
    """Reader of one message. If `structured`, an answer that is JSON also becomes the run's output.

    A mark, below, is the value of the member `babelgate` of a block or an event. Only another Babelgate sends it.
    """

    def __init__(self, *, structured: bool = False) -> None:
        self.has_ended = False
        self.is_paused = False
        """True if the message ended with the stop reason `pause_turn`. The server continues the message if the next
        request contains it."""
        self.content: list[JsonObject] = []
        """Blocks of the message as the server sent them. A request that continues the message repeats them."""
        self._structured = structured
        self._events: list[Event] = []
        self._open: _OpenBlock | None = None
        self._message: MessageStarted | None = None
        """Message of the run to which blocks are added. None: no message is open."""
        self._questions: list[InterruptRaised] = []
        self._names: dict[str, str] = {}
        """Names of the agent's own tools, by call id."""
        self._usage: JsonObject = {}
        self._marks: JsonObject = {}
        self._stop: JsonObject = {}
        self._text: list[str] = []
        self._cut_calls = 0

    def read(self, value: Json) -> list[Event]:
        """Return the events for one event of the stream. Raises invalid for a malformed one, and the fault of a message
        that ended with an error."""
        event = validate(w.AnswerEvent, value)
        if self.has_ended:
            return []
        handler = self._READS.get(event.type)
        if handler is not None:  # unknown types of events are to be ignored (docs, Streaming)
            handler(self, event)
        events, self._events = self._events, []
        return events

    def whole(self, value: Json) -> list[Event]:
        """Return the events of a whole message. Raises invalid for a malformed one, and the fault of an error."""
        members = as_object(value)
        if members.get("type") == "error":
            return self.read({"type": "error", "error": members.get("error")})
        message = validate(w.Answer, value)
        if members.get("type") != "message":
            raise FaultError(FaultCode.INVALID, "The response is not a message")
        events = self.read({"type": "message_start", "message": value})
        for index, block in enumerate(message.content):
            start = {name: member for name, member in block.items() if name not in ("text", "thinking")}
            events += self.read({"type": "content_block_start", "index": index, "content_block": start})
            for delta in _deltas(block):
                events += self.read({"type": "content_block_delta", "index": index, "delta": delta})
            events += self.read({"type": "content_block_stop", "index": index})
        for mark in objects_in(as_object(message.babelgate).get("events")):
            events += self.read({"type": "ping", w.OWN: {"event": mark}})
        stop = {name: members.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
        end: JsonObject = {"type": "message_delta", "delta": stop, "usage": message.usage, w.OWN: message.babelgate}
        return [*events, *self.read(end), *self.read({"type": "message_stop"})]

    # Events of the stream

    def _message_start(self, event: w.AnswerEvent) -> None:
        if event.message is not None:
            self._usage |= event.message.usage or {}

    def _ping(self, event: w.AnswerEvent) -> None:
        marks = as_object(event.babelgate)
        if "message" in marks:
            self._begin_message(marks)
        if (aside := decode_said(marks.get("event"), *_ASIDES)) is not None:
            self._events.append(aside)

    def _block_start(self, event: w.AnswerEvent) -> None:
        if self._open is not None:
            self._block_stop(event)
        block = dict(event.content_block or {})
        marks = as_object(block.get(w.OWN))
        self._open = _OpenBlock(block)
        self._begin_message(marks)
        question = as_object(marks.get("question"))
        if question:
            self._open.is_ignored = True
            self._read_question(question)
        elif "shows" in marks:
            self._open.is_ignored = True
        elif (marked := decode_said(marks.get("event"), *_MARKED)) is not None:
            self._begin_marked(marked)
        elif block.get("type") in ("text", "thinking"):
            self._grow(as_text(block.get(str(block["type"]))))
        elif block.get("type") == "redacted_thinking":
            self._need_message()
            extra = {PROTOCOL: {"redacted": as_text(block.get("data"))}}
            self._events.append(PartAdded(part=ReasoningPart(text="", extra=extra)))

    def _begin_marked(self, event: Event) -> None:
        assert self._open is not None
        if isinstance(event, PartAdded):
            self._need_message()
            event = event.replace(message_id=None, index=None)
            self._open.is_shown = event.open
        self._open.is_ignored = not self._open.is_shown
        if isinstance(event, ToolStarted):
            self._names[event.call_id or ""] = event.name
        self._events.append(event)

    def _block_delta(self, event: w.AnswerEvent) -> None:
        block, delta = self._open, event.delta or {}
        if block is None:
            raise FaultError(FaultCode.INVALID, "A content_block_delta belongs to no open block")
        match delta.get("type"):
            case "text_delta":
                self._grow(as_text(delta.get("text")))
            case "thinking_delta":
                self._grow(as_text(delta.get("thinking")))
            case "input_json_delta":
                block.pieces.append(as_text(delta.get("partial_json")))
            case "signature_delta":
                block.signature += as_text(delta.get("signature"))
            case "citations_delta":
                block.citations.append(as_object(delta.get("citation")))
            case _:
                pass

    def _grow(self, text: str) -> None:
        """Add text to the part of the open block, and begin the part with the first text."""
        block = self._open
        assert block is not None
        block.pieces.append(text)
        if not text or block.is_ignored:
            return
        if block.is_shown:
            self._events.append(PartDelta(text=text))
        else:
            self._need_message()
            is_thinking = block.block.get("type") == "thinking" and not self._is_aside()
            part = ReasoningPart(text=text) if is_thinking else TextPart(text=text)
            self._events.append(PartAdded(part=part, open=True))
            block.is_shown = True
        if block.block.get("type") == "text":
            self._text.append(text)

    def _block_stop(self, event: w.AnswerEvent) -> None:
        block, self._open = self._open, None
        if block is None:
            return
        kind = as_text(block.block.get("type"))
        self.content.append(_sent_back(block))
        if block.is_shown:
            extra = {PROTOCOL: {"signature": block.signature}} if block.signature else {}
            self._events.append(PartEnded(extra=extra))
        elif not block.is_ignored:
            if kind in _CALLS:
                self._end_call(kind, block)
            elif kind.endswith("_result"):
                self._end_result(block.block)
            elif kind not in ("text", "thinking", "redacted_thinking"):
                self._events.append(Native(protocol=PROTOCOL, event=BLOCK, data=self.content[-1]))
        if not block.is_ignored:
            for citation in (*objects_in(block.block.get("citations")), *block.citations):
                self._need_message()
                self._events.append(PartAdded(part=_annotation(citation)))

    def _end_call(self, kind: str, block: _OpenBlock) -> None:
        """Read a complete call. A call of a tool of the caller becomes a question. A call of the server's own tool
        becomes `ToolStarted`."""
        text = "".join(block.pieces)
        value: Any = parse_text(text) if text else block.block.get("input", {})
        call_id, name = as_text(block.block.get("id")), as_text(block.block.get("name"))
        if not isinstance(value, dict):
            self._cut_calls += 1
            return
        value = as_object(value)
        if kind != "tool_use":
            self._names[call_id] = name
            extra: JsonObject = {PROTOCOL: {BLOCK: self.content[-1]}}
            self._events.append(ToolStarted(call_id=call_id, name=name, input=value, extra=extra))
            return
        arguments = json_text(value)
        call = ToolCallPart(call_id=call_id, name=name, arguments=arguments, side="caller")
        words = TextPart(text=f"{name}({arguments})")  # some protocols show only this text of a question
        self._questions.append(
            InterruptRaised(
                message=Message(parts=(words, call)), value={"name": name, "arguments": value, "call_id": call_id}
            )
        )

    def _end_result(self, block: JsonObject) -> None:
        """Read the result of a call of the server's own tool."""
        call_id, content = as_text(block.get("tool_use_id")), cast("Json", block.get("content"))
        texts = [as_text(each.get("text")) for each in objects_in(content) if each.get("type") == "text"]
        is_text = isinstance(content, list) and len(texts) == len(objects_in(content))
        output: Json = "".join(texts) if is_text else content
        has_failed = block.get("is_error") is True or as_text(as_object(content).get("type")).endswith("_error")
        words = output if isinstance(output, str) and output else "The tool has failed."
        fault = Fault(code=FaultCode.AGENT_FAILED, message=words) if has_failed else None
        name = self._names.get(call_id, "")
        extra: JsonObject = {PROTOCOL: {BLOCK: block}}
        self._events.append(ToolEnded(call_id=call_id, name=name, output=output, fault=fault, extra=extra))

    def _read_question(self, mark: JsonObject) -> None:
        """Read a question of an agent behind another Babelgate. `mark` is the member `question` of a block's mark."""
        event = decode_said(mark.get("event"), InterruptRaised)
        call_id = as_text(mark.get("id"))
        if not isinstance(event, InterruptRaised) or not call_id:
            raise FaultError(FaultCode.INVALID, "The mark of a question is malformed")
        extra: JsonObject = {PROTOCOL: {"call_id": call_id, "name": ASK}}
        message = event.message.replace(message_id=None)
        self._questions.append(event.replace(interrupt_id=call_id, message=message, extra=extra))

    def _message_delta(self, event: w.AnswerEvent) -> None:
        self._stop = event.delta or {}
        self._usage |= {name: value for name, value in (event.usage or {}).items() if value is not None}
        self._marks = as_object(event.babelgate)

    def _message_stop(self, event: w.AnswerEvent) -> None:
        self.has_ended = True
        if self._open is not None:
            self._block_stop(event)
        reason = as_text(self._stop.get("stop_reason"))
        finish: Finish = _FINISHES.get(reason, "stop")
        if reason == _PAUSE:
            self.is_paused = True
            self._end_message("stop")
            return
        if not self._questions and not self._text and self._message is None:
            self._need_message()  # an empty answer is a message, too
        self._end_message("tool_calls" if self._questions and finish == "stop" else finish)
        if self._cut_calls:
            how = "a call was cut off by the limit of tokens"
            self._events.append(LossNoted(feature=Feature.CALLER_TOOLS, how=how))
        if as_text(self._stop.get("stop_sequence")):
            self._events.append(Native(protocol=PROTOCOL, event=END, data=self._stop))
        for feature, how in as_object(self._marks.get("loss")).items():
            self._events.append(LossNoted(feature=feature, how=as_text(how)))
        self._events += self._questions
        usage = as_object(self._marks.get("usage")) or _count_usage(self._usage)
        if self._questions:
            self._events.append(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=usage))
            return
        output = self._marks.get("output")
        if output is None and self._structured and finish == "stop":
            parsed = parse_text("".join(self._text))
            output = None if parsed is ABSENT else parsed
        self._events.append(RunEnded(output=output, usage=usage))

    def _error(self, event: w.AnswerEvent) -> None:
        error: JsonObject = {} if event.error is None else event.error.model_dump()
        if as_object(error.get(w.OWN)).get("code") == "run_cancelled":
            self.has_ended = True
            self._events.append(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
            return
        raise FaultError.of(decode_error(error))

    # Messages of the run

    def _begin_message(self, marks: JsonObject) -> None:
        """Begin the message in the member `message` of a mark, after ending the open one. Do nothing without this
        member."""
        if (started := decode_said(marks.get("message"), MessageStarted)) is not None:
            assert isinstance(started, MessageStarted)
            self._end_message("stop")
            self._message = started.replace(message_id=None)
            self._events.append(self._message)

    def _need_message(self) -> None:
        if self._message is None:
            self._message = MessageStarted()
            self._events.append(self._message)

    def _is_aside(self) -> bool:
        return self._message is not None and (self._message.phase == "progress" or self._message.role != "agent")

    def _end_message(self, finish: Finish) -> None:
        if self._message is not None:
            self._message = None
            self._events.append(MessageEnded(finish=finish))

    _READS: ClassVar[Mapping[str, Callable[[Any, w.AnswerEvent], None]]] = {
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "ping": _ping,
        "error": _error,
    }


def _deltas(block: JsonObject) -> list[JsonObject]:
    """Return the deltas with which a stream would send the text or the thinking of a complete block."""
    if block.get("type") == "text" and block.get("text"):
        return [{"type": "text_delta", "text": block["text"]}]
    if block.get("type") != "thinking":
        return []
    deltas: list[JsonObject] = [{"type": "thinking_delta", "thinking": block.get("thinking")}]
    return [*deltas, {"type": "signature_delta", "signature": block.get("signature")}]


def _sent_back(block: _OpenBlock) -> JsonObject:
    """Return a block in the form in which a later request repeats it: complete, with the content of all its deltas."""
    text, kind = "".join(block.pieces), block.block.get("type")
    whole = dict(block.block)
    if kind in ("text", "thinking"):
        whole[str(kind)] = text
    elif text:
        value = parse_text(text)
        whole["input"] = value if isinstance(value, dict) else {}
    if block.signature:
        whole["signature"] = block.signature
    if block.citations:
        whole["citations"] = [*objects_in(whole.get("citations")), *block.citations]
    return whole


def _annotation(citation: JsonObject) -> AnnotationPart:
    """Return a citation as a part. A citation of a document has no URL, but the document's title and the cited text."""
    return AnnotationPart(
        url=as_text(citation.get("url")) or as_text(citation.get("source")) or None,
        title=as_text(citation.get("title")) or as_text(citation.get("document_title")) or None,
        description=as_text(citation.get("cited_text")) or None,
        extra={PROTOCOL: {"citation": citation}},
    )


def _count_usage(usage: JsonObject) -> JsonObject:
    """Return the token counts of a message as canonical usage. Return {} if the total is 0, because a Babelgate sends
    zeros for counts that it does not know."""
    decoded = decode_usage(usage)
    return decoded if decoded.get("total_tokens", 1) else {}
