"""What a model says, as canonical events: one message at a time, with one part open in it, and its questions last."""

from collections.abc import Hashable
from typing import Final, Literal, cast

from babelgate.adapters.openai.codec.model import output_of
from babelgate.adapters.openai.codec.questions import ASK
from babelgate.adapters.openai.wire import answers as w
from babelgate.adapters.openai.wire.replies import BESIDE, ITEM, MIRRORED, Beside, ItemHead
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

_APPROVAL: Final[JsonObject] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean"}},
    "required": ["approve"],
}
"""SPEC/responses/response_input_item_param.py, McpApprovalResponse."""


class MessageDecoder:
    def __init__(self) -> None:
        self.text: list[str] = []
        """Of the answer."""
        self.refused = False
        self.calls: list[ToolCallPart] = []
        """What the model asks its caller for."""
        self._events: list[Event] = []
        self._phase: Phase | None = None
        """Of the open message."""
        self._worded = False
        """Whether more than thoughts were said in it."""
        self._open: Hashable = None
        self._chars = 0
        """Of the text parts of the message."""
        self._began: dict[Hashable, int] = {}
        """Characters of the message before each of its text parts."""

    def take(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken

    @property
    def count(self) -> int:
        """Of the events that nobody has taken."""
        return len(self._events)

    def emit(self, event: Event) -> None:
        self._events.append(event)

    def say_beside(self, beside: Beside, before: int) -> None:
        """With the last piece of those that were said after the first `before` events, or alone."""
        for number in range(len(self._events) - 1, before - 1, -1):
            event = self._events[number]
            if isinstance(event, PartAdded | PartDelta):
                self._events[number] = event.replace(extra={**event.extra, BESIDE: beside})
                return
        self.emit(Native(protocol="openai", event=BESIDE, extra={BESIDE: beside}))

    def begin(self, phase: Phase = "answer") -> None:
        """Another message; what was only thought before it is part of it."""
        if self._phase is not None and (self._worded or self._phase != phase):
            self.end("stop")
        self._start(phase)

    def _start(self, phase: Phase = "answer") -> None:
        if self._phase is None:
            self._phase, self._worded, self._chars = phase, False, 0
            self._began.clear()
            self.emit(MessageStarted(phase=phase))

    def say(
        self,
        kind: Growing,
        text: str,
        key: Hashable = None,
        *,
        extra: JsonObject | None = None,
        head: ItemHead | None = None,
    ) -> None:
        """A piece of the part `key`; what follows under the same kind and key belongs to the same part. `head` = the
        item that it is of."""
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
            self._began.setdefault(key, self._chars)
            self._chars += len(text)
            if self._phase == "answer":
                self.text.append(text)
        self.refused |= kind is RefusalPart
        self._worded |= kind is not ReasoningPart

    def cite(self, part: AnnotationPart, key: Hashable = None) -> None:
        """Its indices count from the start of the part `key`."""
        self._start(self._phase or "answer")
        before = self._began.get(key, 0)
        start = None if part.start is None else part.start + before
        end = None if part.end is None else part.end + before
        self.add(part.replace(start=start, end=end))

    def add(self, part: Part) -> None:
        self.emit(PartAdded(part=part))

    def lose(self, feature: Feature, how: str, *, mirrored: bool = False) -> None:
        """`mirrored` = callers of the same API are told it as it came."""
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
        """The end of the run: of its message, and then of all. `before` comes ahead of the questions."""
        if finish == "length":
            self._drop_torn()
        if finish == "stop" and self.refused:
            finish = "refusal"
        if not self.calls and not self.text:  # that nothing was said is an answer too
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

    def _drop_torn(self) -> None:
        """A call that the limit of tokens cut off (SPEC/chat/chat_completion.py, finish_reason) cannot be made."""
        whole = [call for call in self.calls if _is_whole(call)]
        if len(whole) < len(self.calls):
            self.calls = whole
            self.lose(Feature.CALLER_TOOLS, "a call was cut off by the limit of tokens")


def _is_whole(call: ToolCallPart) -> bool:
    return output_of(call.arguments or "{}") is not None


def _question(call: ToolCallPart) -> InterruptRaised:
    own: JsonObject = call.extra.get("openai") or {}
    arguments: Json = call.arguments
    # A custom tool's input is free text (SPEC/responses/response_custom_tool_call.py, input).
    if own.get("type") != "custom":
        parsed = output_of(call.arguments or "{}")
        arguments = call.arguments if parsed is None else parsed
    if call.name == ASK and isinstance(arguments, dict) and isinstance(arguments.get("question"), str):
        return _gateway_question(call, arguments)
    approval = own.get("type") == "mcp_approval_request"
    words = TextPart(text=f"{call.name}({call.arguments})")  # all that some protocols show of a question
    return InterruptRaised(
        ask="approval" if approval else "input",
        message=Message(parts=(words, call)),
        value={"name": call.name, "arguments": arguments, "call_id": call.call_id},
        answer_schema=_APPROVAL if approval else None,
    )


def _gateway_question(call: ToolCallPart, told: JsonObject) -> InterruptRaised:
    """A question of an agent behind another Babelgate, which calls a tool to ask it (`codec.questions`)."""
    kind, schema = told.get("kind"), told.get("schema")
    return InterruptRaised(
        ask=kind if kind in ("approval", "auth") else "input",
        message=Message(parts=(TextPart(text=told["question"]), call)),
        value=told.get("value"),
        answer_schema=cast("JsonObject", schema) if isinstance(schema, dict) else None,
    )


def decode_annotation(found: w.Annotation) -> AnnotationPart | None:
    """A citation of a page; None for one of a file in the upstream's own store, which nobody else can read."""
    if found.type != "url_citation":
        return None
    own: JsonObject = {"own": found.model_extra} if found.model_extra else {}
    # AnnotationURLCitation: nested in SPEC/chat/chat_completion_message.py, flat in
    # SPEC/responses/response_output_text.py.
    if found.url_citation is not None:
        found = w.Annotation.model_validate({**found.url_citation, "type": found.type, "url_citation": None})
        own |= {"inner": found.model_extra} if found.model_extra else {}
    return AnnotationPart(
        start=found.start_index,
        end=found.end_index,
        url=found.url,
        title=found.title,
        extra={"openai": own} if own else {},
    )
