"""Builder that converts a model's output to canonical events: one message at a time, with one open part, and the
questions at the end."""

from collections.abc import Hashable
from typing import Final, Literal, cast

from babelgate.adapters.openai.codec.model import output_of
from babelgate.adapters.openai.codec.questions import ASK
from babelgate.adapters.openai.wire import answers as w
from babelgate.adapters.openai.wire.replies import ITEM, MIRRORED, PIECE_EXTRAS, ItemHead, PieceExtras
from babelgate.canonical import (
    AnnotationPart,
    Event,
    Feature,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    RunReason,
    RunStatus,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import (
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
)
from babelgate.canonical.message import Phase
from babelgate.canonical.value import Json, JsonObject

Finish = Literal["stop", "length", "tool_calls", "refusal"]
Growing = type[TextPart] | type[ReasoningPart] | type[RefusalPart]
"""Type of a part whose text arrives in pieces."""

_APPROVAL: Final[JsonObject] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean"}},
    "required": ["approve"],
}
"""JSON Schema of the answer to a request for approval (SPEC/responses/response_input_item_param.py,
McpApprovalResponse)."""


class AnswerDecoder:
    """Builder of the canonical events of one run. Readers of both APIs call it with what the model sent, and then
    `take` the events."""

    def __init__(self) -> None:
        self.text: list[str] = []
        """Text of the answer so far, in pieces."""
        self.refused = False
        self.calls: list[ToolCallPart] = []
        """Calls of the caller's tools that the model has requested. `stop` emits them as questions."""
        self._events: list[Event] = []
        self._phase: Phase | None = None
        """Phase of the open message; None if no message is open."""
        self._has_content = False
        """True if the open message has a part other than reasoning."""
        self._open: Hashable = None
        self._chars = 0
        """Length of the open message's text so far, in characters."""
        self._part_starts: dict[Hashable, int] = {}
        """Offset in the message's text at which each text part begins, in characters, by part key."""

    def take(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def count(self) -> int:
        """Number of events that have not been taken."""
        return len(self._events)

    def emit(self, event: Event) -> None:
        self._events.append(event)

    def attach(self, extras: PieceExtras, before: int) -> None:
        """Store unknown members in the newest `PartAdded` or `PartDelta` after the first `before` events. If there is
        none, emit a `Native` event with them."""
        for number in range(len(self._events) - 1, before - 1, -1):
            event = self._events[number]
            if isinstance(event, PartAdded | PartDelta):
                self._events[number] = event.replace(extra={**event.extra, PIECE_EXTRAS: extras})
                return
        self.emit(Native(protocol="openai", event=PIECE_EXTRAS, extra={PIECE_EXTRAS: extras}))

    def begin(self, phase: Phase = "answer") -> None:
        """Begin a message of a phase, after ending the open one. If the open message has the same phase and only
        reasoning, continue it instead."""
        if self._phase is not None and (self._has_content or self._phase != phase):
            self.end("stop")
        self._start(phase)

    def _start(self, phase: Phase = "answer") -> None:
        if self._phase is None:
            self._phase, self._has_content, self._chars = phase, False, 0
            self._part_starts.clear()
            self.emit(MessageStarted(phase=phase))

    def add_text(
        self,
        kind: Growing,
        text: str,
        key: Hashable = None,
        *,
        extra: JsonObject | None = None,
        head: ItemHead | None = None,
    ) -> None:
        """Emit a piece of text. Consecutive pieces with the same kind and `key` belong to one part. `extra` are members
        for the `extra` of a new part.

        `head`: members of the upstream's output item to which the part belongs, if the API has items.
        """
        if not text:
            return
        self._start(self._phase or "answer")
        if self._open == (kind, key):
            self.emit(PartDelta(text=text))
        else:
            self._close()
            self._open = (kind, key)
            part = kind(text=text, extra={"openai": extra} if extra else {})
            self.emit(PartAdded(part=part, open=True, extra={ITEM: head} if head else {}))
        if kind is TextPart:
            self._part_starts.setdefault(key, self._chars)
            self._chars += len(text)
            if self._phase == "answer":
                self.text.append(text)
        self.refused |= kind is RefusalPart
        self._has_content |= kind is not ReasoningPart

    def cite(self, part: AnnotationPart, key: Hashable = None) -> None:
        """Emit a citation. Its positions are relative to the text part `key`, and are converted to positions in the
        message's text."""
        self._start(self._phase or "answer")
        before = self._part_starts.get(key, 0)
        start = None if part.start is None else part.start + before
        end = None if part.end is None else part.end + before
        self.add(part.replace(start=start, end=end))

    def add(self, part: Part) -> None:
        self.emit(PartAdded(part=part))

    def lose(self, feature: Feature, how: str, *, mirrored: bool = False) -> None:
        """Emit a loss. `mirrored`: callers of the Responses API receive the upstream's own item or annotation, so that
        nothing is lost for them."""
        self.emit(LossNoted(feature=feature, how=how, extra={MIRRORED: {}} if mirrored else {}))

    def _close(self) -> None:
        if self._open is not None:
            self._open = None
            self.emit(PartEnded())

    def end(self, finish: Finish) -> None:
        if self._phase is not None:
            self._close()
            self._phase = None
            self.emit(MessageEnded(finish=finish))

    def stop(self, finish: Finish, usage: JsonObject, *, structured: bool, before: Event | None = None) -> None:
        """Emit the end of the message, the questions, and `RunEnded`. `structured`: an answer in JSON is also the run's
        output. `before`: event to emit ahead of the questions, if any."""
        if finish == "length":
            self._drop_truncated_calls()
        if finish == "stop" and self.refused:
            finish = "refusal"
        if not self.calls and not self.text:  # an empty answer is a message, too
            self._start()
        self.end("tool_calls" if self.calls and finish == "stop" else finish)
        if before is not None:
            self.emit(before)
        for call in self.calls:
            self.emit(_question(call))
        if self.calls:
            self.emit(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=usage))
            return
        output = output_of("".join(self.text)) if structured and not self.refused else None
        self.emit(RunEnded(output=output, usage=usage))

    def _drop_truncated_calls(self) -> None:
        """Remove calls with incomplete arguments, which the token limit cut off, and note a loss
        (SPEC/chat/chat_completion.py, finish_reason)."""
        whole = [call for call in self.calls if _is_whole(call)]
        if len(whole) < len(self.calls):
            self.calls = whole
            self.lose(Feature.CALLER_TOOLS, "a call was cut off by the limit of tokens")


def _is_whole(call: ToolCallPart) -> bool:
    return output_of(call.arguments or "{}") is not None


def _question(call: ToolCallPart) -> InterruptRaised:
    extra: JsonObject = call.extra.get("openai") or {}
    arguments: Json = call.arguments
    # A custom tool's input is free text (SPEC/responses/response_custom_tool_call.py, input).
    if extra.get("type") != "custom":
        parsed = output_of(call.arguments or "{}")
        arguments = call.arguments if parsed is None else parsed
    if call.name == ASK and isinstance(arguments, dict) and isinstance(arguments.get("question"), str):
        return _gateway_question(call, arguments)
    approval = extra.get("type") == "mcp_approval_request"
    words = TextPart(text=f"{call.name}({call.arguments})")  # some protocols show only this text of a question
    return InterruptRaised(
        ask="approval" if approval else "input",
        message=Message(parts=(words, call)),
        value={"name": call.name, "arguments": arguments, "call_id": call.call_id},
        answer_schema=_APPROVAL if approval else None,
    )


def _gateway_question(call: ToolCallPart, arguments: JsonObject) -> InterruptRaised:
    """Return the question of an agent behind another Babelgate, from the arguments of its `ask_caller` call."""
    kind, schema = arguments.get("kind"), arguments.get("schema")
    return InterruptRaised(
        ask=kind if kind in ("approval", "auth") else "input",
        message=Message(parts=(TextPart(text=arguments["question"]), call)),
        value=arguments.get("value"),
        answer_schema=cast("JsonObject", schema) if isinstance(schema, dict) else None,
    )


def decode_annotation(annotation: w.Annotation) -> AnnotationPart | None:
    """Return the annotation as a citation of a web page. Return None for other annotations, such as those that cite a
    file in the upstream's store."""
    if annotation.type != "url_citation":
        return None
    extra: JsonObject = {"own": annotation.model_extra} if annotation.model_extra else {}
    # AnnotationURLCitation: nested in SPEC/chat/chat_completion_message.py, flat in
    # SPEC/responses/response_output_text.py.
    if annotation.url_citation is not None:
        annotation = w.Annotation.model_validate(
            {**annotation.url_citation, "type": annotation.type, "url_citation": None}
        )
        extra |= {"inner": annotation.model_extra} if annotation.model_extra else {}
    return AnnotationPart(
        start=annotation.start_index,
        end=annotation.end_index,
        url=annotation.url,
        title=annotation.title,
        extra={"openai": extra} if extra else {},
    )
