"""Reader that converts responses of the Responses API, streamed or whole, to canonical events.

Events and items without a canonical form are mirrored: a `Native` event stores them unchanged for callers of the
Responses API.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic_core import to_json

from babelgate.adapters.kit.json import validate
from babelgate.adapters.openai.codec.model import arguments_of, decode_usage, encode_response_usage, output_of
from babelgate.adapters.openai.errors.decode import decode_error
from babelgate.adapters.openai.read.messages import AnswerDecoder, Finish, Growing, decode_annotation
from babelgate.adapters.openai.wire import answers as w
from babelgate.adapters.openai.wire.replies import (
    ABOUT,
    ANNOTATION,
    ITEM,
    MIRROR,
    MIRRORED,
    ItemHead,
    ItemTail,
    PieceExtras,
)
from babelgate.canonical import (
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
from babelgate.canonical.event import ArtifactAdded, Native, RunEnded, ToolEnded, ToolStarted, UpstreamBound
from babelgate.canonical.value import Json, JsonObject

_MOST_BYTES: Final = 256_000
"""Maximum size in bytes of one mirrored event, of an item's members without a canonical form, and of the `logprobs` of
one piece. Chosen, because the size of one event in the log is limited."""
_MOST_OF_RESPONSE: Final = 64_000
"""Maximum size of a response's stored members without a canonical form, in bytes. Chosen."""
_MOST_OF_TEXT: Final = 64_000
"""Maximum length of one string member in a mirrored item, in characters; longer ones become null. Chosen: images exceed
it, and are stored as files."""
_TOO_LARGE: Final = "the output of the server is too large to keep"

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
"""Types of items for calls that the model's server executes, each with the name of the member that holds the input."""
_RESULTS: Final = ("output", "outputs", "results")
_CANONICAL_TYPES: Final = frozenset(
    {"message", "reasoning", "function_call", "custom_tool_call", "mcp_approval_request"}
)
"""Types of output items for which canonical events exist. Items of other types are mirrored."""
_REPEATS: Final = frozenset(
    {
        "response.queued",
        "response.created",
        "response.in_progress",
        "response.content_part.added",
        "response.content_part.done",
        "response.reasoning_part.added",
        "response.reasoning_part.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "keepalive",
    }
)
"""Types of events that are ignored, because other events have the same content."""
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Pattern of upstream item ids that callers get unchanged (Open Responses 2026-04-24)."""
_CALL_MEMBERS: Final = frozenset({"type", "id", "call_id", "name", "arguments", "input", "server_label"})
_ITEM_MEMBERS: Final = frozenset({"type", "id", "role", "content", "summary"})
_PART_MEMBERS: Final = frozenset({"type", "text", "refusal", "annotations", "logprobs"})
_RESPONSE_MEMBERS: Final = frozenset(
    {"object", "created_at", "completed_at", "model", "background", "conversation", "metadata", "babelgate"}
)
"""Members of the upstream's response that are dropped, because the gateway writes these members itself."""


class ResponseReader:
    """Reader of one response, streamed or whole. `structured`: the caller requested JSON."""

    def __init__(self, *, structured: bool = False) -> None:
        self.stopped = False
        self.response_id: str | None = None
        self.forgets = False
        """True if the server reported that the response does not continue the previous one, which means that it stores
        no responses."""
        self._structured = structured
        self._stored = True
        self._decoder = AnswerDecoder()
        self._heads: dict[int, ItemHead] = {}
        """Members of output items that are known at their start, by index."""
        self._items_with_text: set[int] = set()
        """Indices of output items for which text was emitted."""
        self._read_items: set[str | int] = set()
        """Ids and indices of output items for which events were emitted."""
        self._emitted_parts: set[tuple[Growing, int, int, str]] = set()
        """Parts whose text was emitted: the kind, the index of the item, the index in the item, and the form."""
        self._cited_items: set[str | int] = set()
        """Indices of output items whose annotations were emitted."""
        self._bound = False
        self._has_lost = False

    def read(self, value: Json) -> list[Event]:
        """Return the canonical events for one event of the stream.

        Raises agent_failed if the server reports an error, and invalid for a malformed event.
        """
        if isinstance(value, dict) and isinstance(value.get("error"), dict | str) and value.get("type") in (None, ""):
            raise FaultError.of(decode_error(validate(w.ErrorBody, value).error))
        event = validate(w.Event, value)
        if event.response is not None:
            self._note_response(event.response)
        if event.type in _DELTAS:
            self._delta(_DELTAS[event.type], event)
        elif event.type in _WHOLES:
            self._whole(_WHOLES[event.type], event)
        elif event.type in self._HANDLERS:
            self._HANDLERS[event.type](self, event)
        elif event.type not in _REPEATS:
            self._mirror(event)
        return self._decoder.take()

    def whole(self, value: Json) -> list[Event]:
        """Return the events of a response that is not streamed. Raises invalid if its status says that it has not
        ended, and agent_failed if it failed."""
        response = validate(w.Response, value)
        self._note_response(response)
        if response.status in ("queued", "in_progress"):
            raise FaultError(
                FaultCode.INVALID,
                f"The response has the status {response.status}, but the agent's server sent no stream.",
            )
        self._end(response, response.status or "completed")
        return self._decoder.take()

    def end(self) -> None:
        """Check the end of the stream. Raises agent_unreachable if the response had not ended."""
        if not self.stopped:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")

    def _note_response(self, response: w.Response) -> None:
        if response.id is not None and not self._bound:
            self._bound = True
            self.response_id = response.id
            self._decoder.emit(UpstreamBound(protocol="openai", ids={"run": response.id}))
        if response.store is False:
            self._stored = False
        # OpenAI repeats the id of the response that this one continues (SPEC/responses/response.py). A server that
        # stores no responses writes null.
        self.forgets = "previous_response_id" in response.model_fields_set and response.previous_response_id is None

    # Items

    def _mirror(self, event: w.Event) -> None:
        """Emit an event of the server unchanged, as a `Native` for callers of the Responses API. Members that are too
        large are left out and noted as a loss."""
        members = event.model_dump(exclude_unset=True)
        if event.item is not None:
            item: JsonObject = members["item"]
            large = [name for name, value in item.items() if isinstance(value, str) and len(value) > _MOST_OF_TEXT]
            item |= dict.fromkeys(large)
            if large:
                self._lose()
        if len(to_json(members)) > _MOST_BYTES:
            self._lose()
        else:
            self._decoder.emit(Native(protocol="openai", event=MIRROR, extra={MIRROR: members}))

    def _lose(self) -> None:
        if not self._has_lost:
            self._has_lost = True
            self._decoder.lose(Feature.CUSTOM, _TOO_LARGE)

    def _start_item(self, event: w.Event) -> None:
        item = event.item
        if item is None:
            return
        self._heads[event.output_index] = _head(item)
        if item.type == "message":
            self._decoder.begin(_phase(item))
        elif item.type not in _CANONICAL_TYPES and item.type not in _OUTPUTS:
            self._mirror(event)

    def _item(self, event: w.Event) -> None:
        if event.item is not None:
            self._finish_item(event.item, event.output_index)

    def _finish_item(self, item: w.Item, index: int) -> None:
        is_known = index in self._read_items or item.id in self._read_items
        self._read_items.add(index)
        if item.id is not None:
            self._read_items.add(item.id)
        self._heads.setdefault(index, _head(item))
        match item.type:
            case "message":
                self._message(item, index, is_emitted=is_known)
                self._end_item(item, index)
            case "reasoning":
                if not is_known:
                    self._reasoning(item, index)
                self._end_item(item, index)
            case _ if is_known:
                pass
            case "function_call" | "custom_tool_call" | "mcp_approval_request":
                self._call(item)
            case kind if kind in _OUTPUTS and self._is_called(item):
                self._result(item)
            case kind if kind in _OWN_TOOLS:
                self._tool(item)
                self._mirror_item(item, index)
            case _:
                self._decoder.lose(Feature.CUSTOM, f"an output item of type {item.type or 'none'}", mirrored=True)
                self._mirror_item(item, index)

    def _mirror_item(self, item: w.Item, index: int) -> None:
        self._mirror(w.Event(type="response.output_item.done", output_index=index, item=item))

    def _reasoning(self, item: w.Item, index: int) -> None:
        for form, thoughts in (("", item.summary), ("reasoning_text", item.content)):
            for number, thought in enumerate(thoughts or ()):
                self._add_text_of(ReasoningPart, thought.text or "", index, (index, number, form), form=form)

    def _end_item(self, item: w.Item, index: int) -> None:
        """Emit the members of a finished item that have no canonical form. An item without text is mirrored as a
        whole."""
        if index not in self._items_with_text or item.id is None:
            self._mirror_item(item, index)
            return
        members = item.model_dump(exclude_unset=True)
        tail = ItemTail(id=item.id, own={name: value for name, value in members.items() if name not in _ITEM_MEMBERS})
        parts = [
            {name: v for name, v in part.items() if name not in _PART_MEMBERS} for part in members.get("content") or ()
        ]
        if any(parts):
            tail["parts"] = parts
        if len(to_json(tail)) > _MOST_BYTES:
            self._lose()
            tail = ItemTail(id=item.id)
        self._decoder.emit(Native(protocol="openai", event=ITEM, extra={ITEM: tail}))

    def _message(self, item: w.Item, index: int, *, is_emitted: bool) -> None:
        if not is_emitted:
            self._decoder.begin(_phase(item))
        for number, content in enumerate(item.content or ()):
            if not is_emitted:
                self._add_text_of(TextPart, content.text or "", index, (index, number, ""))
                self._attach_logprobs(content.model_extra)
                self._add_text_of(RefusalPart, content.refusal or "", index, (index, number, ""))
            if index not in self._cited_items:
                for annotation in content.annotations or ():
                    self._cite(annotation, (index, number, ""))
        self._cited_items.add(index)

    def _call(self, item: w.Item) -> None:
        extra: JsonObject = {}
        call_id, text = item.call_id or item.id or f"call_{self.response_id}_{len(self._decoder.calls)}", item.arguments
        if item.type == "custom_tool_call":
            extra, text = {"type": "custom"}, item.input
        elif item.type == "mcp_approval_request":
            call_id = item.id or call_id
            extra = {"type": item.type, "server_label": item.server_label}
        more = {n: v for n, v in item.model_dump(exclude_unset=True).items() if n not in _CALL_MEMBERS}
        if len(to_json(more)) <= _MOST_OF_RESPONSE:
            extra["told"] = {"id": item.id, **more} if item.id is not None else more
        part = ToolCallPart(
            call_id=call_id,
            name=item.name or "",
            arguments=arguments_of(text),
            side="caller",
            extra={"openai": extra} if extra else {},
        )
        if all(call.call_id != part.call_id for call in self._decoder.calls):
            self._decoder.calls.append(part)

    def _is_called(self, item: w.Item) -> bool:
        return any(call.call_id == item.call_id for call in self._decoder.calls)

    def _result(self, item: w.Item) -> None:
        """Emit a tool call with its result as the agent's own, if the response has an output for it. Without this the
        caller would be asked to run the tool.

        Other Babelgates show the tools of their agents like this.
        """
        (call,) = (call for call in self._decoder.calls if call.call_id == item.call_id)
        self._decoder.calls.remove(call)
        arguments, output = (output_of(text) or text for text in (call.arguments, arguments_of(item.output)))
        self._decoder.emit(ToolStarted(call_id=call.call_id, name=call.name, input=arguments))
        fault = Fault(code=FaultCode.AGENT_FAILED, message=f"{call.name} failed") if item.status == "failed" else None
        self._decoder.emit(ToolEnded(call_id=call.call_id, name=call.name, output=output, fault=fault))

    def _tool(self, item: w.Item) -> None:
        """Emit a call of a tool that the model's server executed, and its result."""
        name = item.name or item.type.removesuffix("_call")
        tool_input: Json = item.model_dump().get(_OWN_TOOLS[item.type])
        if isinstance(tool_input, str) and item.type == "mcp_call":
            tool_input = output_of(tool_input) or tool_input
        self._decoder.emit(ToolStarted(call_id=item.id, name=name, input=tool_input, extra={MIRRORED: {}}))
        output: Json = next((v for key in _RESULTS if (v := item.model_dump().get(key)) is not None), None)
        fault = None
        if item.status == "failed" or item.error:
            message = item.error if isinstance(item.error, str) else f"{name} failed"
            fault = Fault(code=FaultCode.AGENT_FAILED, message=message)
        self._decoder.emit(ToolEnded(call_id=item.id, name=name, output=output, fault=fault, extra={MIRRORED: {}}))
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
        self._decoder.emit(ArtifactAdded(name=name, part=part, extra={MIRRORED: {}}))

    # Parts

    def _delta(self, kind: Growing, event: w.Event) -> None:
        if isinstance(event.delta, str):
            self._add_text(kind, event.delta, event)

    def _whole(self, kind: Growing, event: w.Event) -> None:
        """Emit the text of a part at its end, unless its deltas were emitted before."""
        if (kind, event.output_index, _number(event), _form(event)) not in self._emitted_parts:
            self._add_text(kind, event.text or event.refusal or "", event)

    def _add_text(self, kind: Growing, text: str, event: w.Event) -> None:
        number, form = _number(event), _form(event)
        self._read_items.add(event.output_index)
        if event.item_id is not None:
            self._read_items.add(event.item_id)
        self._emitted_parts.add((kind, event.output_index, number, form))
        self._add_text_of(kind, text, event.output_index, (event.output_index, number, form), form=form)
        self._attach_logprobs(event.model_extra)

    def _add_text_of(self, kind: Growing, text: str, index: int, key: tuple[object, ...], *, form: str = "") -> None:
        if text:
            self._items_with_text.add(index)
        head = self._heads.get(index, ItemHead())
        self._decoder.add_text(kind, text, key, head={**head, "form": form} if form else head)

    def _attach_logprobs(self, members: JsonObject | None) -> None:
        tokens = (members or {}).get("logprobs")
        if not isinstance(tokens, list) or not tokens:
            return
        if len(to_json(tokens)) > _MOST_BYTES:
            self._lose()
        else:
            self._decoder.attach(PieceExtras(logprobs={"content": tokens}), 0)

    def _annotation(self, event: w.Event) -> None:
        if event.annotation is not None:
            self._cited_items.add(event.output_index)
            self._cite(event.annotation, (event.output_index, event.content_index, ""))

    def _cite(self, annotation: w.Annotation, key: tuple[object, ...]) -> None:
        part = decode_annotation(annotation)
        if part is None:
            self._decoder.lose(Feature.CITATION, f"a {annotation.type or 'nameless'} annotation", mirrored=True)
            members = annotation.model_dump(exclude_unset=True)
            if len(to_json(members)) > _MOST_BYTES:
                self._lose()
            else:
                self._decoder.emit(Native(protocol="openai", event=ANNOTATION, extra={ANNOTATION: members}))
        else:
            self._decoder.cite(part, key)

    # Ends

    def _terminal(self, event: w.Event) -> None:
        response = event.response or w.Response()
        self._end(response, response.status or event.type.removeprefix("response."))

    def _end(self, response: w.Response, status: str) -> None:
        self.stopped = True
        if status == "failed":
            raise FaultError.of(decode_error(response.error))
        for index, item in enumerate(response.output or ()):
            if index not in self._read_items and item.id not in self._read_items:
                self._finish_item(item, index)
        decoder = self._decoder
        self._emit_members(response)
        if status == "cancelled":
            decoder.end("stop")
            decoder.emit(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
            return
        finish: Finish = "stop"
        if status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details is not None else None
            # SPEC/responses/response.py, IncompleteDetails.reason.
            finish = "refusal" if reason == "content_filter" else "length"
        # A later run continues from this response, unless a call waits for its result: servers accept no other input
        # then.
        bound = None
        if self.response_id is not None and self._stored and not decoder.calls:
            bound = UpstreamBound(protocol="openai", ids={"run": self.response_id, "context": self.response_id})
        decoder.stop(finish, decode_usage(response.usage), structured=self._structured, before=bound)

    def _emit_members(self, response: w.Response) -> None:
        """Emit the members of the response that have no canonical form. If they exceed the limit, the largest ones are
        left out."""
        members = {name: value for name, value in (response.model_extra or {}).items() if name not in _RESPONSE_MEMBERS}
        if response.incomplete_details is not None:
            members["incomplete_details"] = response.incomplete_details.model_dump(exclude_unset=True)
        if response.usage and encode_response_usage(decode_usage(response.usage)) != response.usage:
            members["usage"] = response.usage
        remaining = _MOST_OF_RESPONSE
        for size, name in sorted((len(to_json(value)), name) for name, value in members.items()):
            remaining -= size
            if remaining < 0:
                del members[name]
                self._lose()
        if members:
            self._decoder.emit(Native(protocol="openai", event=ABOUT, extra={"openai": members}))

    def _error(self, event: w.Event) -> None:
        """Raise the fault for an event `error`. OpenAI sends its members at the top level
        (SPEC/responses/response_error_event.py); other servers send them in `error`, as in an error response."""
        self.stopped = True
        error = event.error or w.Error(message=event.message, code=event.code, param=event.param)
        raise FaultError.of(decode_error(error))

    _HANDLERS: ClassVar[Mapping[str, Any]] = {
        "response.output_item.added": _start_item,
        "response.output_item.done": _item,
        "response.output_text.annotation.added": _annotation,
        "response.completed": _terminal,
        "response.incomplete": _terminal,
        "response.failed": _terminal,
        # SPEC/responses/response_stream_event.py has no event for a cancelled response; other servers send this one.
        "response.cancelled": _terminal,
        "error": _error,
    }
    """Method by type of event. Events of other types have their own branch in `read`, are mirrored or are ignored."""


def _head(item: w.Item) -> ItemHead:
    """Return the members of an output item that are known at its start: its id and phase."""
    head = ItemHead()
    if item.id is not None and _PLAIN_ID.fullmatch(item.id):
        head["id"] = item.id
    if item.phase is not None:
        head["phase"] = item.phase
    return head


def _number(event: w.Event) -> int:
    """Return the index of the event's part in the content or the summary of its item."""
    return event.content_index + event.summary_index  # a part has one of the two


def _form(event: w.Event) -> str:
    return "reasoning_text" if event.type.startswith("response.reasoning_text.") else ""


def _phase(item: w.Item) -> Any:
    # "Intermediate commentary or the final answer" (SPEC/responses/response_output_message.py, phase).
    return "progress" if item.phase == "commentary" else "answer"
