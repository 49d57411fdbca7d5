"""Marks in `_meta.babelgate` of a result: what MCP has no field for, so that another Babelgate reads it back."""

from typing import Any, Final, cast

import msgspec

from babelgate.canonical import AnnotationPart, Fault, Feature, ReasoningPart, ToolCallPart, ToolResultPart
from babelgate.canonical.event import Custom, StepEnded, StepStarted, ToolEnded, ToolStarted
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

LIMIT: Final = 256 * 1024
"""Maximum size of the marks of one result, as JSON, in bytes. Chosen: clients load them with every result."""


class Marks:
    """Marks of one result, by kind: `progress`, `reasoning`, `activity`, `custom`, `usage`."""

    def __init__(self, losses: dict[Loss, None]) -> None:
        """Create the marks. A value that is left out because of `LIMIT` is added to `losses`."""
        self._losses = losses
        self._lists: dict[str, list[tuple[str | None, Any]]] = {}
        self._usage: JsonObject = {}
        self._size = 0

    def encode(self) -> JsonObject:
        """Return the marks as members of `_meta.babelgate`. Kinds without content are left out."""
        marks: JsonObject = {
            kind: ["".join(cast("list[str]", each)) if isinstance(each, list) else each for _, each in listed]
            for kind, listed in self._lists.items()
            if listed
        }
        return {**marks, "usage": self._usage} if self._usage else marks

    def drop(self, run_id: str | None) -> None:
        """Remove the marks of a run that starts over."""
        for kind, listed in self._lists.items():
            self._lists[kind] = [each for each in listed if each[0] != run_id]

    def _add(self, kind: str, run_id: str | None, value: Any, feature: Feature) -> None:
        """Add a value, unless the marks would exceed `LIMIT`."""
        if self._has_room(len(msgspec.json.encode(value)), feature):
            self._lists.setdefault(kind, []).append((run_id, value))

    def _has_room(self, size: int, feature: Feature) -> bool:
        self._size += size
        if self._size > LIMIT:
            self._losses[Loss(feature=feature.value, how=f"beyond {LIMIT} bytes of marks in a result")] = None
        return self._size <= LIMIT

    def add_usage(self, usage: JsonObject) -> None:
        """Add the usage of a message or of the run. Members of later ones replace earlier ones."""
        self._usage = {**self._usage, **usage}

    def add_reasoning(self, run_id: str | None, part: ReasoningPart) -> list[str]:
        """Add a thought. Return its pieces, to which `add_piece` adds."""
        pieces = [part.text]
        self._add("reasoning", run_id, pieces, Feature.REASONING)
        return pieces

    def add_piece(self, pieces: list[str], text: str) -> None:
        """Add a piece to the text of a thought. `pieces` is the list that `add_reasoning` returned."""
        if self._has_room(len(text.encode()), Feature.REASONING):
            pieces.append(text)

    def add_activity(
        self,
        run_id: str | None,
        event: ToolStarted | ToolEnded | StepStarted | StepEnded | ToolCallPart | ToolResultPart,
    ) -> None:
        """Add the start or end of a tool or a step, or a tool call or result in a message."""
        match event:
            case ToolStarted():
                value: JsonObject = {"type": "tool_started", "id": event.call_id, "name": event.name}
                value |= _without_nulls(input=event.input)
            case ToolEnded():
                value = {"type": "tool_ended", "id": event.call_id, "name": event.name}
                value |= _without_nulls(output=event.output, fault=_fault(event.fault))
            case StepStarted():
                value = {"type": "step_started", "id": event.step_id, "name": event.name} | _without_nulls(
                    input=event.input
                )
            case StepEnded():
                value = {"type": "step_ended", "id": event.step_id, "name": event.name}
                value |= _without_nulls(update=event.update, fault=_fault(event.fault))
            case ToolCallPart():
                value = {"type": "tool_call", "id": event.call_id, "name": event.name, "arguments": event.arguments}
            case ToolResultPart():
                value = {"type": "tool_result", "id": event.call_id, "output": event.output, "error": event.error}
        is_step = isinstance(event, StepStarted | StepEnded)
        self._add("activity", run_id, value, Feature.STEP if is_step else Feature.TOOL_ACTIVITY)

    def add_progress(self, run_id: str | None, text: str) -> None:
        """Add a progress message."""
        self._add("progress", run_id, text, Feature.PROGRESS)

    def add_custom(self, run_id: str | None, event: Custom) -> None:
        """Add a custom event."""
        self._add("custom", run_id, {"name": event.name, "value": event.value}, Feature.CUSTOM)


def encode_citation(part: AnnotationPart) -> JsonObject:
    """Return a citation as a mark of the text before it."""
    return _without_nulls(start=part.start, end=part.end, url=part.url, title=part.title, description=part.description)


def _fault(fault: Fault | None) -> JsonObject | None:
    return None if fault is None else {"code": str(fault.code), "message": fault.message}


def _without_nulls(**members: Any) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}
