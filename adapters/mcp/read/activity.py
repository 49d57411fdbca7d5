"""Events from the marks of another Babelgate's result: tools, steps, and custom events. A mark is the member
`babelgate` of `_meta`."""

from collections.abc import Sequence
from typing import Final

from babelgate.canonical import Event, Fault, FaultCode, ToolCallPart, ToolResultPart
from babelgate.canonical.event import (
    Custom,
    MessageEnded,
    MessageStarted,
    PartAdded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import JsonObject

_CODES: Final = {str(code): code for code in FaultCode}


def read_activity(mark: JsonObject) -> Sequence[Event]:
    """Return the events for the members `activity` and `custom` of a mark. Entries of unknown types are ignored."""
    events = [event for each in objects_in(mark.get("activity")) for event in _activity(each)]
    customs = [
        Custom(name=as_text(each.get("name")), value=each.get("value")) for each in objects_in(mark.get("custom"))
    ]
    return [*events, *customs]


def _activity(entry: JsonObject) -> Sequence[Event]:
    key, name = as_text(entry.get("id")), as_text(entry.get("name"))
    match entry.get("type"):
        case "tool_started":
            return [ToolStarted(call_id=key, name=name, input=entry.get("input"))]
        case "tool_ended":
            return [ToolEnded(call_id=key, name=name, output=entry.get("output"), fault=_fault(entry))]
        case "step_started":
            return [StepStarted(step_id=key, name=name, input=entry.get("input"))]
        case "step_ended":
            return [StepEnded(step_id=key, name=name, update=entry.get("update"), fault=_fault(entry))]
        case "tool_call":
            part = ToolCallPart(call_id=key, name=name, arguments=as_text(entry.get("arguments")))
            return [MessageStarted(), PartAdded(part=part), MessageEnded()]
        case "tool_result":
            result = ToolResultPart(call_id=key, output=entry.get("output"), error=entry.get("error") is True)
            return [MessageStarted(role="tool"), PartAdded(part=result), MessageEnded()]
        case _:
            return ()


def _fault(entry: JsonObject) -> Fault | None:
    fault = as_object(entry.get("fault"))
    if not fault:
        return None
    code = _CODES.get(as_text(fault.get("code")), FaultCode.AGENT_FAILED)
    return Fault(code=code, message=as_text(fault.get("message")))
