"""Writer of the tool calls of a task, each as the message of a status."""

from collections.abc import Sequence

from babelgate.adapters.a2a.wire.task import Update
from babelgate.adapters.a2a.write.activity import encode_call, encode_result
from babelgate.adapters.a2a.write.mirrored import Mirrored
from babelgate.adapters.a2a.write.status import StatusWriter
from babelgate.canonical import Record
from babelgate.canonical.event import ToolEnded, ToolStarted


class ToolWriter:
    """Writer of the tool calls of one run. Some agents report a call both in a message and as an event, so each call is
    shown once."""

    def __init__(self, status: StatusWriter, mirrored: Mirrored) -> None:
        self._status = status
        self._mirrored = mirrored
        self._names: dict[str, str] = {}
        """Names of the tools that were called, by call id."""
        self._ended: dict[str, None] = {}  # an empty set takes 216 bytes of each silent stream
        """Ids of the calls whose end was shown."""

    def clear(self) -> None:
        """Drop all calls, because a new run begins or a restart voids them."""
        self._names.clear()
        self._ended.clear()

    def name_of(self, call_id: str) -> str:
        """Return the name of the tool that was called with this call id. Return `tool` if the call is unknown."""
        return self._names.get(call_id, "tool")

    def start(self, event: ToolStarted, record: Record) -> Sequence[Update]:
        """Return the update that shows a tool call. Return none if it was shown before."""
        call_id = event.call_id or ""
        if self._mirrored.has_shown(event.extra):
            self._ended[call_id] = None  # its server has reported the end, or does not report it
            return ()
        if call_id and call_id in self._names:
            return ()
        self._names[call_id] = event.name
        return (self._status.write_activity(record, *encode_call(event)),)

    def end(self, event: ToolEnded, record: Record) -> Sequence[Update]:
        """Return the update that shows the result of a tool call. Return none if it was shown before."""
        call_id = event.call_id or ""
        if self._mirrored.has_shown(event.extra) or (call_id and call_id in self._ended):
            return ()
        self._ended[call_id] = None
        return (self._status.write_activity(record, *encode_result(event)),)
