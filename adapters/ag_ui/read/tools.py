"""Tool calls of another server → calls that the agent executes itself, and calls of the caller's tools."""

from collections.abc import Callable, Container, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from babelgate.adapters.ag_ui.codec.names import PROTOCOL, own_of
from babelgate.adapters.ag_ui.codec.questions import APPROVED
from babelgate.adapters.ag_ui.errors import decode_run_error
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import Event, Message, TextPart, ToolCallPart
from babelgate.canonical.event import InterruptRaised, ToolEnded, ToolStarted
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

ADK_CONFIRMATION: Final = "adk_request_confirmation"
"""Name of the tool by which ag-ui-adk 0.11 requests a confirmation, unless it is configured to put it into the outcome
of the run."""


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str
    parent: str
    marks: JsonObject
    arguments: str = ""
    is_complete: bool = False
    is_started: bool = False
    """True if a `ToolStarted` event was added, because the agent executes the call itself."""
    has_result: bool = False
    is_resumed: bool = False
    """True if an earlier run has shown the call, and this run has only its result."""
    is_followed: bool = False
    """True if the agent has said something after the call. So nothing waits for the result of the call."""


class CallReader:
    """Decoder of the tool calls of one run. It passes canonical events to `add`. `declared` are the names of the
    caller's tools. `earlier` has the tool names of earlier runs' calls, by call id."""

    def __init__(self, add: Callable[[Event], None], declared: Container[str], earlier: Mapping[str, str]) -> None:
        self._add = add
        self._declared = declared
        self._earlier = earlier
        self._calls: dict[str, _Call] = {}

    def has_call(self, call_id: str) -> bool:
        """Return True if this run or an earlier one has shown the call."""
        return call_id in self._calls or call_id in self._earlier

    def start(self, event: JsonObject) -> None:
        """Begin the call of a `TOOL_CALL_START`. No event is added until its arguments are complete."""
        call_id, name = as_text(event.get("toolCallId")), as_text(event.get("toolCallName"))
        if call_id and call_id not in self._calls:
            parent = as_text(event.get("parentMessageId"))
            self._calls[call_id] = _Call(call_id, name, parent, own_of(event))

    def add_arguments(self, event: JsonObject) -> None:
        """Append the text of a `TOOL_CALL_ARGS` to the arguments of its call."""
        call = self._calls.get(as_text(event.get("toolCallId")))
        if call is not None:
            call.arguments += as_text(event.get("delta"))

    def end(self, call_id: str) -> None:
        """Complete the arguments of a call. If the caller has not declared the tool, the agent executes the call
        itself, and a `ToolStarted` event is added."""
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
        """Add a `ToolEnded` event for a `TOOL_CALL_RESULT`, also for a call of an earlier run. A second result of a
        call is ignored."""
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

    def note_text(self) -> None:
        """Note that the agent has said something after the calls that are complete."""
        for call in self._calls.values():
            call.is_followed = call.is_followed or call.is_complete

    def close(self, pending: Json, waiting: Set[str] = frozenset(), *, has_questions: bool = False) -> None:
        """Handle the calls without a result when the run has ended. Calls that the caller must execute become
        questions: those in `pending`, or without such a list all calls of declared tools. `waiting` has the ids of
        calls whose approval an interrupt requests.

        Without a list and without a question (`has_questions`), the end of the run waits for the other calls, too, if
        the agent has said nothing after them (§ Tools of the specification). Agno 3.1 ends so for a confirmation.
        """
        calls = [call for call in self._calls.values() if not call.has_result]
        ids = [each for each in as_list(pending) if isinstance(each, str)]
        if pending is not None:
            pending_calls = [call for call in calls if call.call_id in ids]
        elif has_questions:
            pending_calls = [call for call in calls if call.name in self._declared]
        else:
            pending_calls = [call for call in calls if call.name in self._declared or not call.is_followed]
            waiting = waiting | {_confirmed_id(call) for call in pending_calls if call.name == ADK_CONFIRMATION}
        for call in calls:
            if call.call_id in waiting:
                self._wait(call)
            elif call not in pending_calls:
                self._start_own(call)
            elif call.name == ADK_CONFIRMATION:
                self._wait(call)
                self._add(_confirmation(call))
            else:
                self._add(_question(call))

    def _wait(self, call: _Call) -> None:
        """Add the events of a call that an answer of the caller permits or rejects in the next run."""
        self._start_own(call)
        self._add(ToolEnded(call_id=call.call_id, name=call.name, extra={PROTOCOL: {"waits": True}}))

    def read_snapshot(self, messages: list[JsonObject]) -> None:
        """Add the tool calls and results in a `MESSAGES_SNAPSHOT` that no earlier event has shown. Calls of the
        agent's own tools are added only with a result."""
        results = {as_text(each.get("toolCallId")): each for each in messages if each.get("role") == "tool"}
        for message in messages:
            for call in objects_in(message.get("toolCalls")):
                call_id, function = as_text(call.get("id")), as_object(call.get("function"))
                is_pending = call_id not in results and as_text(function.get("name")) in self._declared
                if call_id in self._calls and call_id in results:
                    self.add_result({"toolCallId": call_id, "content": results[call_id].get("content")})
                if not call_id or self.has_call(call_id) or not (call_id in results or is_pending):
                    continue
                self.start(
                    {"toolCallId": call_id, "toolCallName": function.get("name"), "parentMessageId": message["id"]}
                )
                self.add_arguments({"toolCallId": call_id, "delta": function.get("arguments")})
                if call_id in results:
                    self.add_result({"toolCallId": call_id, "content": results[call_id].get("content")})


def _confirmed_id(call: _Call) -> str:
    """Return the id of the call for which a call of `adk_request_confirmation` requests the confirmation."""
    return as_text(as_object(as_object(parse_text(call.arguments or "{}")).get("originalFunctionCall")).get("id"))


def _confirmation(call: _Call) -> InterruptRaised:
    """Return the approval that a call of `adk_request_confirmation` requests. Its id is that of the call."""
    arguments = as_object(parse_text(call.arguments or "{}"))
    original = as_object(arguments.get("originalFunctionCall"))
    hint = as_text(as_object(arguments.get("toolConfirmation")).get("hint"))
    members = {"parent": call.parent} if call.parent else {}
    return InterruptRaised(
        interrupt_id=call.call_id,
        ask="approval",
        message=Message.of(hint or f"May I call {as_text(original.get('name')) or 'the tool'}?"),
        value={"name": original.get("name"), "args": original.get("args")},
        answer_schema=APPROVED,
        extra={PROTOCOL: {**members, "confirmation": True}},
    )


def _question(call: _Call) -> InterruptRaised:
    """Return the question that asks the caller to execute a tool. Its id is that of the call, and its answer is the
    result."""
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
