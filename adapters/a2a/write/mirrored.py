"""Writer of those members of another A2A server's task that no canonical event covers. Callers of A2A receive them
unchanged."""

import msgspec

from babelgate.adapters.a2a.wire.task import DRAFT, IN_STATUS, PROTOCOL, REPEATED, STATUS, TASK, Status, Update
from babelgate.adapters.a2a.write.pieces import EMPTY, PieceSource
from babelgate.adapters.a2a.write.status import StatusWriter
from babelgate.adapters.a2a.write.summary import TaskSummary
from babelgate.canonical import Fault, Message, Record, TaskState
from babelgate.canonical.event import Native
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import Extra, JsonObject


class Mirrored:
    """Writer of the `Native` events of one task, which contain such members."""

    def __init__(self, summary: TaskSummary, status: StatusWriter) -> None:
        self.is_relayed = False
        """True if another A2A server has sent such members. The metadata among them then contain the usage, so that the
        gateway adds no usage."""
        self._summary = summary
        self._status = status
        self._message_ids: dict[str, None] = {}  # an empty set takes 216 bytes of each silent stream
        """Server's ids of the status messages that are shown unchanged. The events that were read from them are not
        shown."""
        self._stop: JsonObject = {}
        """Members of the server's status in which the task stops. They are held until the canonical task changes its
        state."""

    def has_shown(self, extra: Extra) -> bool:
        """Return True if the event with this `extra` must not be shown, because the message or status from which it was
        read is shown unchanged."""
        if not extra:
            return False
        members: JsonObject = extra.get(PROTOCOL) or {}
        if REPEATED in extra or DRAFT in extra:
            return True
        return (IN_STATUS in extra and bool(self._message_ids)) or members.get("messageId") in self._message_ids

    def write(self, event: Native, record: Record) -> tuple[Update, ...]:
        """Return the updates for a `Native` event. A status that stops the task has none yet: it is held until the
        canonical task changes its state."""
        foreign: JsonObject = event.extra.get(PROTOCOL) or {}
        if event.protocol != PROTOCOL or event.event not in (STATUS, TASK) or not foreign:
            return ()
        self.is_relayed = True
        if event.event == TASK:
            self._summary.read_task(foreign.get("own") or {}, foreign.get("metadata") or {})
            return ()
        if "message" in foreign:
            self._message_ids[foreign["message"]["extra"][PROTOCOL]["messageId"]] = None
        state = TaskState(foreign["state"])
        if state in TERMINAL or state in WAITING:
            self._stop = foreign
            return ()
        message = message_of(foreign) if "message" in foreign else None
        status = Status(self._status.status.state, record.at, message, foreign.get("status") or {})
        return (self._status.write(status, PieceSource(record.run_id), foreign),)

    def take_stop(self, state: TaskState) -> JsonObject:
        """Return the members of the server's status in which the task stopped with this state, and forget them. Return
        an empty object if there are none."""
        stop, self._stop = self._stop, {}
        return stop if stop.get("state") == state else {}


def message_of(foreign: JsonObject, fault: Fault | None = None) -> Message:
    """Return the message in the members of another server's status. If `fault` was read from that status, its code is
    added to the metadata of the message."""
    message = msgspec.convert(foreign["message"], Message)
    if fault is not None:
        message = message.replace(metadata={**message.metadata, "babelgate": {"fault": fault.code.value}})
    return message if message.parts else message.replace(parts=(EMPTY,))
