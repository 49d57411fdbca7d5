"""Reading of tool calls from trajectories, the metadata of parts."""

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.parts import is_repetition, part_extra, unwrap_value
from babelgate.adapters.acp.read.run_state import RunState
from babelgate.canonical import ToolCallPart
from babelgate.canonical.event import ToolEnded, ToolStarted
from babelgate.canonical.value import Json


class ToolReader:
    """Reader of the tool calls in one message. They have no ids, so a result belongs to the first open call of the same
    tool, with the same input if the result repeats the input."""

    __slots__ = ("_open", "_run")

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._open: list[tuple[str, Json]] = []
        """Tool calls without a result: the name of the tool, and the input."""

    def read(self, step: w.Trajectory, call: ToolCallPart) -> None:
        """Add the events for a trajectory that reports the start of a tool call, or its result. `call` is the canonical
        part of the call. The last event stores the wire part, unless a part of a message already stores it."""
        events = self._run.events
        is_shown = is_repetition(call.extra)
        extra = call.extra if is_shown else part_extra({"metadata": step.model_dump()}, call.extra)
        tool_input: Json = None if step.tool_input is None else unwrap_value(step.tool_input)
        # Both the input and the output may be null (components.schemas.TrajectoryMetadata).
        if step.tool_output is None:
            self._open.append((call.name, tool_input))
            events.append(ToolStarted(name=call.name, input=tool_input, extra=extra))
            return
        started = next((each for each in self._open if each[0] == call.name and tool_input in (None, each[1])), None)
        if started is None:
            events.append(ToolStarted(name=call.name, input=tool_input, extra=part_extra(None)))
        else:
            self._open.remove(started)
        events.append(ToolEnded(name=call.name, output=unwrap_value(step.tool_output), extra=extra))

    def end_open(self) -> None:
        """Add the events that end the calls without a result, because their message ends."""
        self._run.events.extend(ToolEnded(name=name, extra=part_extra(None)) for name, _ in self._open)
        self._open.clear()
