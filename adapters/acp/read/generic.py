"""Reading of `generic` events: custom events of agents, and the thoughts and tool calls of BeeAI's agents.

ACP callers receive the events of thoughts and calls unchanged. Other callers receive them as parts and tool calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.generic import Key, decode_generic, join_pieces
from babelgate.adapters.acp.codec.parts import part_extra
from babelgate.adapters.acp.errors import decode_fault
from babelgate.adapters.acp.read.gateway_members import place_of, text_member
from babelgate.adapters.acp.read.open_message import OpenWireMessage
from babelgate.adapters.acp.read.run_state import RunState
from babelgate.canonical import ReasoningPart
from babelgate.canonical.event import (
    Custom,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    StepEnded,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject


@dataclass(slots=True)
class _Call:
    """A tool call of which pieces of the name, the input and the output have arrived."""

    name: str = ""
    input: list[Json] = field(default_factory=list[Json])
    output: list[Json] = field(default_factory=list[Json])


class GenericReader:
    """Reader of one run's `generic` events. Consecutive pieces of the same thought or tool call are joined."""

    __slots__ = ("_call", "_is_unsent", "_message", "_run", "key")

    def __init__(self, run: RunState, message: OpenWireMessage) -> None:
        self.key: Key | None = None
        """Kind of the last piece, such as `thought`. None if no thought or tool call is open."""
        self._run = run
        self._message = message
        self._call: _Call | None = None
        """Tool call whose pieces are arriving. None if there is none."""
        self._is_unsent = False
        """True if the open canonical message was started only for a thought, and corresponds to no wire message."""

    def read(self, event: w.GenericEvent) -> None:
        """Add the canonical events for a `generic` event to the run."""
        generic: JsonObject = event.generic
        members = as_object(generic.get(w.OWN)) if set(generic) == {w.OWN} else {}
        if members.get("kind") == "step_ended":
            self._end_step(members)
            return
        run, message = self._run, self._message
        extra: JsonObject = {"acp": event.model_extra} if event.model_extra else {}
        pieces = decode_generic(generic)
        if pieces:
            if message.is_unshown and pieces[0][0] == "thought":
                message.open()
            message.show()
            run.events.append(Native(protocol="acp", event="generic", data=generic, extra=extra))
            self._read_pieces(pieces)
            return
        self.end_pieces()
        if set(generic) == {"name", "value"} and isinstance(generic["name"], str):
            run.events.append(Custom(name=generic["name"], value=generic["value"], extra=extra))
        else:
            run.events.append(Custom(value=generic, extra=extra))

    def _end_step(self, members: JsonObject) -> None:
        """Add the event for the end of a step, which another gateway sends as a `generic` event."""
        name, fault = text_member(members, "name") or "", decode_fault(members.get("fault"))
        self._run.events.append(StepEnded(name=name, update=members.get("update"), fault=fault, **place_of(members)))

    def _read_pieces(self, pieces: Sequence[tuple[Key, Json]]) -> None:
        for key, value in pieces:
            if key != self.key and (key in ("thought", "tool_name") or self.key == "thought"):
                self.end_pieces()
            if key == "thought":
                self._think(str(value))
            else:
                self._add_to_call(key, value)
            self.key = key

    def _add_to_call(self, key: Key, value: Json) -> None:
        call = self._call = self._call or _Call()
        match key:
            case "tool_name":
                call.name += str(value)
            case "tool_input":
                call.input.append(value)
            case _:
                if not call.output:
                    self._start(call)
                call.output.append(value)

    def _think(self, text: str) -> None:
        if self.key == "thought":
            self._run.events.append(PartDelta(text=text))
            return
        message = self._message
        if not message.is_open and message.part_count < 0:
            self._is_unsent = True
            message.open_unsent()
        message.open()
        message.end_text()
        part = ReasoningPart(text=text, extra=part_extra(None))
        self._run.events.append(PartAdded(part=part, open=True))

    def _start(self, call: _Call) -> None:
        self._run.events.append(ToolStarted(name=call.name, input=join_pieces(call.input), extra=part_extra(None)))

    def end_pieces(self) -> None:
        """Add the events that end the open thought or tool call, because something else follows."""
        events = self._run.events
        if self.key == "thought":
            events.append(PartEnded())
        key, self.key = self.key, None
        if self._is_unsent:
            self._is_unsent = False
            self._message.end_unsent()
        call, self._call = self._call, None
        if call is not None and key is not None:
            if not call.output:
                self._start(call)
            events.append(ToolEnded(name=call.name, output=join_pieces(call.output), extra=part_extra(None)))
