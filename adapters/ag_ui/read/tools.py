"""Tool calls of another server → calls that the agent executes itself, and calls of the caller's tools."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from babelgate.adapters.ag_ui.codec.names import PROTOCOL, own_of
from babelgate.adapters.ag_ui.errors import decode_run_error
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import Event, Message, TextPart, ToolCallPart
from babelgate.canonical.event import InterruptRaised, ToolEnded, ToolStarted
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str
    parent: str
    marks: JsonObject
    arguments: str = ""
    is_complete: bool = False
    is_started: bool = False
    """True if the log has it as a call that the agent executes itself."""
    has_result: bool = False
    is_resumed: bool = False
    """True if an earlier run has shown the call, and this one only its result."""


class CallReader:
    """Reader of one run's calls. `declared` has the names of the caller's tools, and `earlier` the names of calls of
    earlier runs by id."""

    def __init__(self, add: Callable[[Event], None], declared: Container[str], earlier: Mapping[str, str]) -> None:
        self._add = add
        self._declared = declared
        self._earlier = earlier
        self._calls: dict[str, _Call] = {}

    def has_call(self, call_id: str) -> bool:
        """Return True if this run or an earlier one has shown the call."""
        return call_id in self._calls or call_id in self._earlier

    def start(self, event: JsonObject) -> None:
        """Begin a call."""
        call_id, name = as_text(event.get("toolCallId")), as_text(event.get("toolCallName"))
        if call_id and call_id not in self._calls:
            parent = as_text(event.get("parentMessageId"))
            self._calls[call_id] = _Call(call_id, name, parent, own_of(event))

    def add_arguments(self, event: JsonObject) -> None:
        """Add a piece of a call's arguments."""
        call = self._calls.get(as_text(event.get("toolCallId")))
        if call is not None:
            call.arguments += as_text(event.get("delta"))

    def end(self, call_id: str) -> None:
        """End the arguments of a call. A call of a tool that the caller has not declared is the agent's own."""
        call = self._calls.get(call_id)
        if call is not None and not call.is_complete:
            call.is_complete = True
            if call.name not in self._declared:
                self._start_own(call)

    def _start_own(self, call: _Call) -> None:
        if call.is_started:
            return
        call.is_started = True
        value: Json = None
        if call.marks.get("noInput") is not True and call.arguments:
            parsed = parse_text(call.arguments)
            value = call.arguments if parsed is ABSENT else parsed
        members: JsonObject = {"parent": call.parent} if call.parent else {}
        members |= {"resumed": True} if call.is_resumed else {}
        extra = {PROTOCOL: members} if members else {}
        self._add(
            ToolStarted(
                call_id=call.call_id, name=call.name, input=value, node=as_text(call.marks.get("node")), extra=extra
            )
        )

    def add_result(self, event: JsonObject) -> None:
        """Add the result of a call, also of a call of an earlier run."""
        call_id, marks = as_text(event.get("toolCallId")), own_of(event)
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = _Call(call_id, self._earlier.get(call_id, "tool"), "", {"noInput": True})
            call.is_resumed = call_id in self._earlier
        if call.has_result:
            return
        call.is_complete = call.has_result = True
        self._start_own(call)
        fault = as_object(marks.get("fault"))
        if fault:
            found = decode_run_error(as_text(fault.get("message")), as_text(fault.get("code")) or None)
            self._add(ToolEnded(call_id=call_id, name=call.name, output=marks.get("output"), fault=found))
            return
        self._add(ToolEnded(call_id=call_id, name=call.name, output=_output(event.get("content"), marks)))

    def close(self, pending: Json, waiting: Container[str] = ()) -> None:
        """Ask the questions of all calls that wait for their caller. `pending` is the list of their ids, if the server
        sent one. `waiting` has the ids of calls whose approval an interrupt asks for."""
        ids = [each for each in as_list(pending) if isinstance(each, str)]
        for call in self._calls.values():
            is_waiting = call.call_id in ids if pending is not None else call.name in self._declared
            if call.call_id in waiting and not call.has_result:
                self._start_own(call)
                self._add(ToolEnded(call_id=call.call_id, name=call.name, extra={PROTOCOL: {"waits": True}}))
            elif not call.has_result and is_waiting:
                self._add(_question(call))
            elif not call.has_result:
                self._start_own(call)

    def read_snapshot(self, messages: list[JsonObject]) -> None:
        """Add the calls of a snapshot that no event has shown: those with a result there, and those of the caller's
        tools."""
        results = {as_text(each.get("toolCallId")): each for each in messages if each.get("role") == "tool"}
        for message in messages:
            for call in objects_in(message.get("toolCalls")):
                call_id, function = as_text(call.get("id")), as_object(call.get("function"))
                is_pending = call_id not in results and as_text(function.get("name")) in self._declared
                if not call_id or self.has_call(call_id) or not (call_id in results or is_pending):
                    continue
                self.start(
                    {"toolCallId": call_id, "toolCallName": function.get("name"), "parentMessageId": message["id"]}
                )
                self.add_arguments({"toolCallId": call_id, "delta": function.get("arguments")})
                if call_id in results:
                    self.add_result({"toolCallId": call_id, "content": results[call_id].get("content")})


def _question(call: _Call) -> InterruptRaised:
    """Return the question that a call of the caller's tool is."""
    arguments = parse_text(call.arguments or "{}")
    extra = {PROTOCOL: {"parent": call.parent}} if call.parent else {}
    part = ToolCallPart(
        call_id=call.call_id, name=call.name, arguments=call.arguments or "{}", side="caller", extra=extra
    )
    words = TextPart(text=f"{call.name}({call.arguments or '{}'})")  # some protocols show only the text of a question
    value: Json = {
        "name": call.name,
        "arguments": call.arguments if arguments is ABSENT else arguments,
        "call_id": call.call_id,
    }
    return InterruptRaised(interrupt_id=call.call_id, message=Message(parts=(words, part)), value=value)


def _output(content: Any, marks: JsonObject) -> Json:
    if not isinstance(content, str):
        parts = objects_in(content)
        texts = [as_text(part.get("text")) for part in parts]
        return "".join(texts) if all(part.get("type") == "text" for part in parts) else content
    if marks.get("json") is True:
        value = parse_text(content)
        return content if value is ABSENT else value
    return content
