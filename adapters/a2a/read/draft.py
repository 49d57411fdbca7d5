"""Reading of drafts: a server sends each change of a message while the agent writes it, and the whole message at the
end.

kagenti-adk 0.8.1 does so if the caller activates its extension `ui/streaming/v1`. The changes are those of JSON Patch
(RFC 6902), and `str_ins`, which inserts text into a string.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, TypeGuard, cast

from msgspec.json import encode

from babelgate.adapters.a2a.frameworks.agentstack import STREAMING
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.read.artifacts import ArtifactTracker, rest
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import DRAFT
from babelgate.adapters.kit.json import validate
from babelgate.canonical import Event, FaultError, Part, ReasoningPart
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Extra, Json, JsonObject

_MAX_BYTES: Final = 4_000_000
"""Maximum size of the changes of one message as JSON, in bytes. Chosen. Content of further changes is read from the
whole message at the end."""


class Draft:
    """The message of one run that the agent is writing, and how much of its content was read."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self._value: Json = None
        """The message so far, as JSON. None if it is not known: then changes are ignored until one of them replaces the
        whole message."""
        self._size = 0
        """Size of the changes since one replaced the whole message, as JSON, in bytes."""
        self._begins = False
        """True if the message is new, and none of its content was read."""
        self._counts: list[int] = [0, 0, 0]
        """Numbers of the message's thoughts, tool calls and progress reports that were read, in this order."""

    def read(self, metadata: JsonObject | None) -> w.Message | None:
        """Apply the changes in an update's metadata, and return the message so far. Return None if there are no
        changes, or if one of them cannot be applied."""
        streaming = next((value for key, value in (metadata or {}).items() if key.endswith(STREAMING)), None)
        changes: Any = as_object(streaming).get("message_update")
        if not isinstance(changes, list):
            return None
        try:
            for change in cast("list[Json]", changes):
                self._follow(change)
            message = cast("JsonObject", self._value)
            return self._begin(validate(w.Message, {**message, "messageId": message["message_id"]}))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, FaultError):
            self._value = None
            return None

    def _follow(self, change: Json) -> None:
        """Apply one change. Raises LookupError if the changes are too large together, and any error of an invalid
        change."""
        size = len(encode(change))
        self._size = size if as_object(change).get("path") == "" else self._size + size
        if self._size > _MAX_BYTES:
            raise LookupError(self._size)
        self._value = _apply(self._value, change)

    def _begin(self, message: w.Message) -> w.Message:
        if message.messageId != self.message_id:
            self.message_id, self._counts, self._begins = message.messageId, [0, 0, 0], True
        return message

    def is_of(self, message: w.Message | None) -> bool:
        """Return True if a message has the id of this draft."""
        return message is not None and self.message_id is not None and message.messageId == self.message_id

    def keep_news(self, decoded: DecodedContent, tracker: ArtifactTracker | None, events: list[Event]) -> bool:
        """Remove from `decoded`, the content of the draft so far, all content that was read before. The parts that
        remain are marked as a piece of the answer.

        `tracker` is that of the answer so far. Its message ends if the draft does not continue it. Return False if the
        draft has changed text that was read before.
        """
        thoughts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        words = [part for part in decoded.parts if not isinstance(part, ReasoningPart)]
        before, self._counts = self._counts, [len(thoughts), len(decoded.tools), len(decoded.progress)]
        begins, self._begins = self._begins, False
        new = words if begins or not _is_open(tracker) else rest(tracker.merged_parts, words)
        if tracker is not None and (begins or new is None):
            tracker.close(events)
        decoded.parts = [*thoughts[before[0] :], *(words if new is None else new)]
        decoded.tools, decoded.progress, decoded.states = decoded.tools[before[1] :], decoded.progress[before[2] :], []
        decoded.says = "answer"
        return new is not None

    def unread_parts(
        self, message: w.Message | None, parts: Sequence[Part], tracker: ArtifactTracker | None
    ) -> Sequence[Part]:
        """Return those of a message's parts that were not read from its draft. Return all parts if there was no draft
        of the message.

        `tracker` is that of the answer in the draft. Needed because kagenti-adk also writes questions and errors as
        drafts.
        """
        if not self.is_of(message) or not _is_open(tracker):
            return parts
        return rest(tracker.merged_parts, parts) or parts

    def mark(self, events: list[Event], start: int) -> None:
        """Mark the events from index `start` on as read from the draft. Callers of A2A receive the server's changes
        instead of them."""
        extra: Extra = {DRAFT: {"messageId": self.message_id, "told": list(self._counts)}}
        for index in range(start, len(events)):
            events[index] = events[index].replace(extra={**events[index].extra, **extra})

    def recall(self, event: Event, *, is_own: bool) -> None:
        """Restore the state from the mark of a recorded event. `is_own` is True if the event belongs to this run."""
        mark: JsonObject = event.extra.get(DRAFT) or {}
        message_id, value = mark.get("messageId"), mark.get("told")
        counts = cast("list[Json]", value) if isinstance(value, list) else []
        # The mark may be that of another gateway, and have any form.
        if is_own and isinstance(message_id, str) and len(counts) == len(self._counts):
            self.message_id, self._counts = message_id, [each if isinstance(each, int) else 0 for each in counts]


def _is_open(tracker: ArtifactTracker | None) -> TypeGuard[ArtifactTracker]:
    return tracker is not None and tracker.message_id is not None


def _apply(value: Json, change: Json) -> Json:
    """Return the value after one change, an operation of JSON Patch or `str_ins`. Raises any error that an invalid
    change causes."""
    members = cast("JsonObject", change)
    operation, path = members["op"], _split_pointer(members["path"])
    new: Any = deepcopy(members.get("value"))
    if not path:
        if operation not in ("add", "replace"):
            raise ValueError(operation)
        return new
    *parents, last = path
    holder: Any = value
    for step in parents:
        holder = holder[int(step) if isinstance(holder, list) else step]
    listed = cast("list[Any]", holder) if isinstance(holder, list) else None
    at: Any = last if listed is None else len(listed) if last == "-" else int(last)
    match operation:
        case "add" if listed is not None:
            listed.insert(at, new)
        case "add":
            holder[at] = new
        case "replace":
            holder[at]  # raises if it does not exist
            holder[at] = new
        case "remove":
            del holder[at]
        case "str_ins":
            text: str = cast("Any", holder)[at]
            position = int(members["pos"])
            holder[at] = text[:position] + new + text[position:]
        case _:
            raise ValueError(operation)
    return value


def _split_pointer(pointer: str) -> Sequence[str]:
    """Return the names and indexes in a JSON Pointer such as `/parts/0/text` (RFC 6901)."""
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
