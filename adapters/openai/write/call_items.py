"""Output items of a response for calls of the agent's own tools."""

from typing import Final

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.codec.names import encode_item_id
from babelgate.adapters.openai.wire.replies import MIRRORED
from babelgate.adapters.openai.write.items import ItemWriter, OutputItem
from babelgate.adapters.openai.write.run_losses import RunLosses
from babelgate.adapters.openai.write.stream_events import StreamEvents
from babelgate.canonical import Event, Feature, ToolCallPart, ToolResultPart
from babelgate.canonical.event import PartAdded, ToolEnded, ToolStarted
from babelgate.canonical.value import Json, JsonObject

_ARGUMENTS: Final = "mcp_call_arguments"


class CallItemWriter:
    """Writer of one run's calls of the agent's own tools. Agents report a call as a part of a message, as tool events,
    or as both."""

    __slots__ = ("_agent", "_events", "_items", "_losses", "_parts", "_waiting")

    def __init__(self, agent: str, items: ItemWriter, events: StreamEvents, losses: RunLosses) -> None:
        self._agent = agent
        self._items = items
        self._events = events
        self._losses = losses
        self._waiting: dict[str, OutputItem] = {}
        """Items of the calls that have no result yet, by call id."""
        self._parts: dict[str, ToolCallPart] = {}
        """Call parts in messages of all runs of the task, by call id."""

    def remember(self, event: Event) -> None:
        """Store a call that any run of the task reports in a message, because a later run may report its result."""
        if isinstance(event, PartAdded) and isinstance(event.part, ToolCallPart):
            self._parts[event.part.call_id] = event.part

    def drop_void(self) -> None:
        """Remove the calls without a result whose items a restart of the agent has voided."""
        self._waiting = {call_id: item for call_id, item in self._waiting.items() if not item.is_void}

    # Parts of messages

    def add(self, part: ToolCallPart, message_id: str, *, is_open: bool) -> None:
        """Begin an item for a call in a message, unless the call has one. `is_open`: more of its arguments will
        follow."""
        if part.call_id not in self._waiting:
            item = self._begin(part.call_id, part.name, message_id)
            self._items.add_arguments(item, _ARGUMENTS, part.arguments, ends=not is_open)

    def extend_arguments(self, call_id: str, text: str) -> None:
        """Add text to the arguments of a call whose item has begun."""
        item = self._waiting.get(call_id)
        if item is not None:
            self._items.add_arguments(item, _ARGUMENTS, text, ends=False)

    def end_arguments(self, call_id: str) -> None:
        """Mark the arguments of a call as complete."""
        item = self._waiting.get(call_id)
        if item is not None:
            self._items.add_arguments(item, _ARGUMENTS, "")

    def add_result(self, part: ToolResultPart) -> None:
        """End the item of a call with the result in a message."""
        self._end(part.call_id, part.call_id, part.output, has_failed=part.error)

    # Events of tools

    def start_tool(self, event: ToolStarted) -> None:
        """Begin an item for a call in a tool event, unless a message or an item of the upstream shows the call."""
        call_id = event.call_id or ""
        if call_id in self._waiting or MIRRORED in event.extra:
            return
        item = self._begin(call_id, event.name)
        self._items.add_arguments(item, _ARGUMENTS, "{}" if event.input is None else json_text(event.input))

    def end_tool(self, event: ToolEnded) -> None:
        """End the item of a call with the result in a tool event, unless a message has reported the result."""
        call_id, fault = event.call_id or "", event.fault
        if call_id in self._waiting:
            error = "" if fault is None else fault.message
            self._end(call_id, event.name, event.output, has_failed=fault is not None, error=error)

    # Items

    def _begin(self, call_id: str, name: str, message_id: str | None = None) -> OutputItem:
        # SPEC/responses/response_output_item.py, McpCall: a tool that the server calls, and not its caller.
        body: JsonObject = {
            "type": "mcp_call",
            "id": encode_item_id("mcp_", call_id),
            "server_label": self._agent,
            "name": name,
            "arguments": "",
            "output": None,
            "error": None,
            "approval_request_id": None,
        }
        self._losses.note(Feature.TOOL_ACTIVITY)
        item = self._waiting[call_id] = self._items.add(body, message_id)
        self._emit("in_progress", item)
        return item

    def _end(self, call_id: str, name: str, output: Json, *, has_failed: bool, error: str = "") -> None:
        item = self._waiting.pop(call_id, None)
        if item is None:
            part = self._parts.get(call_id)
            if part is not None and part.side == "caller":
                return
            # An earlier run of the task made the call.
            item = self._begin(call_id, name if part is None else part.name)
            self._items.add_arguments(item, _ARGUMENTS, "" if part is None else part.arguments)
            self._waiting.pop(call_id)
        text = output if isinstance(output, str) else json_text(output)
        if has_failed:
            item.body["error"] = {"type": "mcp_tool_execution_error", "content": error or text}
        else:
            item.body["output"] = text
        status = "failed" if has_failed else "completed"
        self._emit(status, item)
        self._items.finish(item, status)

    def _emit(self, status: str, item: OutputItem) -> None:
        self._events.emit(f"response.mcp_call.{status}", {"item_id": item.item_id, "output_index": item.index})
