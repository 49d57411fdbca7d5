"""Events of a response's stream, or a whole response → canonical events."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from adapters._json import validate
from adapters.openai.codec.model import arguments_of, decode_usage, output_of
from adapters.openai.errors.decode import decode_error
from adapters.openai.read.messages import Finish, Growing, MessageDecoder, decode_annotation
from adapters.openai.wire import answers as w
from canonical import (
    Event,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    ReasoningPart,
    RefusalPart,
    RunReason,
    RunStatus,
    TextPart,
    ToolCallPart,
)
from canonical.event import ArtifactAdded, Native, RunEnded, ToolEnded, ToolStarted, UpstreamBound
from canonical.value import Json, JsonObject

_DELTAS: Final[Mapping[str, Growing]] = {
    "response.output_text.delta": TextPart,
    "response.refusal.delta": RefusalPart,
    "response.reasoning_summary_text.delta": ReasoningPart,
    "response.reasoning_text.delta": ReasoningPart,
}
_WHOLES: Final[Mapping[str, Growing]] = {
    "response.output_text.done": TextPart,
    "response.refusal.done": RefusalPart,
    "response.reasoning_summary_text.done": ReasoningPart,
    "response.reasoning_text.done": ReasoningPart,
}
_OWN_TOOLS: Final[Mapping[str, str]] = {
    "code_interpreter_call": "code",
    "file_search_call": "queries",
    "image_generation_call": "revised_prompt",
    "mcp_call": "arguments",
    "web_search_call": "action",
}
"""Tools that the server itself executes → the field that says with what."""
_RESULTS: Final = ("output", "outputs", "results")


class ResponseReader:
    """Of one response. `structured` = the answer is JSON."""

    def __init__(self, *, structured: bool = False) -> None:
        self.stopped = False
        self.response_id: str | None = None
        self.forgets = False
        """The server has said that it goes on from no other response."""
        self._structured = structured
        self._stored = True
        self._speech = MessageDecoder()
        self._seen: set[str | int] = set()
        """Output items that were said, by id and by index."""
        self._spoken: set[tuple[Growing, str | int, int]] = set()
        """Parts of which deltas came."""
        self._cited: set[str | int] = set()
        self._bound = False

    def read(self, value: Json) -> list[Event]:
        """Raises agent_failed where the response did, invalid where it breaks the protocol."""
        if isinstance(value, dict) and isinstance(value.get("error"), dict | str) and value.get("type") in (None, ""):
            raise FaultError.of(decode_error(validate(w.ErrorBody, value).error))
        event = validate(w.Event, value)
        if event.response is not None:
            self._about(event.response)
        if event.type in _DELTAS:
            self._delta(_DELTAS[event.type], event)
        elif event.type in _WHOLES:
            self._whole(_WHOLES[event.type], event)
        elif event.type in self._READS:
            self._READS[event.type](self, event)
        return self._speech.take()

    def whole(self, value: Json) -> list[Event]:
        """An answer that is no stream. Raises invalid."""
        response = validate(w.Response, value)
        self._about(response)
        if response.status in ("queued", "in_progress"):
            raise FaultError(FaultCode.INVALID, f"The response is {response.status}, and no stream of it came.")
        self._end(response, response.status or "completed")
        return self._speech.take()

    def end(self) -> None:
        """The stream is over. Raises agent_unreachable where the response was not."""
        if not self.stopped:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")

    def _about(self, response: w.Response) -> None:
        if response.id is not None and not self._bound:
            self._bound = True
            self.response_id = response.id
            self._speech.emit(UpstreamBound(protocol="openai", ids={"run": response.id}))
        if response.store is False:
            self._stored = False
        # OpenAI repeats what it goes on from (SPEC/responses/response.py); a server that keeps nothing writes null.
        self.forgets = "previous_response_id" in response.model_fields_set and response.previous_response_id is None

    # Items

    def _start_item(self, event: w.Event) -> None:
        if event.item is not None and event.item.type == "message":
            self._speech.begin(_phase(event.item))

    def _item(self, event: w.Event) -> None:
        if event.item is not None:
            self._finish_item(event.item, event.output_index)

    def _finish_item(self, item: w.Item, index: int) -> None:
        seen = index in self._seen or item.id in self._seen
        self._seen.add(index)
        if item.id is not None:
            self._seen.add(item.id)
        match item.type:
            case "message":
                self._message(item, index, spoken=seen)
            case _ if seen:
                pass
            case "reasoning":
                for number, thought in enumerate(item.summary or item.content or ()):
                    self._speech.say(ReasoningPart, thought.text or "", (index, number))
            case "function_call" | "custom_tool_call" | "mcp_approval_request":
                self._call(item)
            case "function_call_output" | "custom_tool_call_output" if self._is_called(item):
                self._result(item)
            case kind if kind in _OWN_TOOLS:
                self._tool(item)
            case _:
                self._speech.lose(Feature.CUSTOM, f"an output item of type {item.type or 'none'}")
                native = Native(protocol="openai", event="response.output_item.done", data=item.model_dump())
                self._speech.emit(native)

    def _message(self, item: w.Item, index: int, *, spoken: bool) -> None:
        if not spoken:
            self._speech.begin(_phase(item))
        for number, content in enumerate(item.content or ()):
            if not spoken:
                self._speech.say(TextPart, content.text or "", (index, number))
                self._speech.say(RefusalPart, content.refusal or "", (index, number))
            if index not in self._cited:
                for annotation in content.annotations or ():
                    self._cite(annotation, (index, number))
        self._cited.add(index)

    def _call(self, item: w.Item) -> None:
        own: JsonObject = {}
        call_id, text = item.call_id or item.id or f"call_{self.response_id}_{len(self._speech.calls)}", item.arguments
        if item.type == "custom_tool_call":
            own, text = {"type": "custom"}, item.input
        elif item.type == "mcp_approval_request":
            call_id = item.id or call_id
            own = {"type": item.type, "server_label": item.server_label}
        part = ToolCallPart(
            call_id=call_id,
            name=item.name or "",
            arguments=arguments_of(text),
            side="caller",
            extra={"openai": own} if own else {},
        )
        if all(call.call_id != part.call_id for call in self._speech.calls):
            self._speech.calls.append(part)

    def _is_called(self, item: w.Item) -> bool:
        return any(call.call_id == item.call_id for call in self._speech.calls)

    def _result(self, item: w.Item) -> None:
        """Of a function that the server has called itself: agents behind this API show their own calls so, and the
        caller is not asked for what was done."""
        (call,) = (call for call in self._speech.calls if call.call_id == item.call_id)
        self._speech.calls.remove(call)
        given, output = (output_of(text) or text for text in (call.arguments, arguments_of(item.output)))
        self._speech.emit(ToolStarted(call_id=call.call_id, name=call.name, input=given))
        fault = Fault(code=FaultCode.AGENT_FAILED, message=f"{call.name} failed") if item.status == "failed" else None
        self._speech.emit(ToolEnded(call_id=call.call_id, name=call.name, output=output, fault=fault))

    def _tool(self, item: w.Item) -> None:
        """A call that the server made and got the result of."""
        name = item.name or item.type.removesuffix("_call")
        given: Json = item.model_dump().get(_OWN_TOOLS[item.type])
        if isinstance(given, str) and item.type == "mcp_call":
            given = output_of(given) or given
        self._speech.emit(ToolStarted(call_id=item.id, name=name, input=given))
        output: Json = next((v for key in _RESULTS if (v := item.model_dump().get(key)) is not None), None)
        fault = None
        if item.status == "failed" or item.error:
            said = item.error if isinstance(item.error, str) else f"{name} failed"
            fault = Fault(code=FaultCode.AGENT_FAILED, message=said)
        self._speech.emit(ToolEnded(call_id=item.id, name=name, output=output, fault=fault))
        if item.type == "image_generation_call" and item.result:
            self._image(item)

    def _image(self, item: w.Item) -> None:
        try:
            content = b64decode(item.result or "", validate=True)
        except ValueError as error:
            raise FaultError(FaultCode.INVALID, "An image is not base64.") from error
        kind = item.output_format or "png"
        name = f"image.{kind}"
        part = FilePart(name=name, media_type=f"image/{kind}", inline=content, size=len(content))
        self._speech.emit(ArtifactAdded(name=name, part=part))

    # Parts

    def _delta(self, kind: Growing, event: w.Event) -> None:
        if isinstance(event.delta, str):
            self._say(kind, event.delta, event)

    def _whole(self, kind: Growing, event: w.Event) -> None:
        """The end of a part: its words, if no delta told them."""
        if (kind, event.output_index, event.content_index + event.summary_index) not in self._spoken:
            self._say(kind, event.text or event.refusal or "", event)

    def _say(self, kind: Growing, text: str, event: w.Event) -> None:
        number = event.content_index + event.summary_index  # a part has one of the two
        self._seen.add(event.output_index)
        if event.item_id is not None:
            self._seen.add(event.item_id)
        self._spoken.add((kind, event.output_index, number))
        self._speech.say(kind, text, (event.output_index, number))

    def _annotation(self, event: w.Event) -> None:
        if event.annotation is not None:
            self._cited.add(event.output_index)
            self._cite(event.annotation, (event.output_index, event.content_index))

    def _cite(self, annotation: w.Annotation, key: tuple[int, int]) -> None:
        part = decode_annotation(annotation)
        if part is None:
            self._speech.lose(Feature.CITATION, f"a {annotation.type or 'nameless'} annotation")
        else:
            self._speech.cite(part, key)

    # Ends

    def _terminal(self, event: w.Event) -> None:
        response = event.response or w.Response()
        self._end(response, response.status or event.type.removeprefix("response."))

    def _end(self, response: w.Response, status: str) -> None:
        self.stopped = True
        if status == "failed":
            raise FaultError.of(decode_error(response.error))
        for index, item in enumerate(response.output or ()):
            if index not in self._seen and item.id not in self._seen:
                self._finish_item(item, index)
        speech = self._speech
        if status == "cancelled":
            speech.end("stop")
            speech.emit(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
            return
        finish: Finish = "stop"
        if status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details is not None else None
            # SPEC/responses/response.py, IncompleteDetails.reason.
            finish = "refusal" if reason == "content_filter" else "length"
        # A later turn goes on from here, unless a call waits for its result: no server takes another input then.
        kept = None
        if self.response_id is not None and self._stored and not speech.calls:
            kept = UpstreamBound(protocol="openai", ids={"run": self.response_id, "context": self.response_id})
        speech.stop(finish, decode_usage(response.usage), structured=self._structured, before=kept)

    def _error(self, event: w.Event) -> None:
        """Of the stream itself. OpenAI spells its fields out (SPEC/responses/response_error_event.py); others nest
        them, as in a refusal."""
        self.stopped = True
        error = event.error or w.Error(message=event.message, code=event.code, param=event.param)
        raise FaultError.of(decode_error(error))

    _READS: ClassVar[Mapping[str, Any]] = {
        "response.output_item.added": _start_item,
        "response.output_item.done": _item,
        "response.output_text.annotation.added": _annotation,
        "response.completed": _terminal,
        "response.incomplete": _terminal,
        "response.failed": _terminal,
        # Not in SPEC/responses/response_stream_event.py, where a response that was cancelled has no event.
        "response.cancelled": _terminal,
        "error": _error,
    }
    """All others repeat what these say, or tell of progress."""


def _phase(item: w.Item) -> Any:
    # "Intermediate commentary or the final answer" (SPEC/responses/response_output_message.py, phase).
    return "progress" if item.phase == "commentary" else "answer"
