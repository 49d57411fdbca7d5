"""Drafts: messages that a server sends as changes while it writes them, and whole at the end.

kagenti-adk 0.8.1 does so if the caller activates its extension `ui/streaming/v1`. The changes are those of JSON Patch
(RFC 6902), and `str_ins`.
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
"""Maximum size of one message's changes, as JSON. Further changes are read with the whole message. Chosen."""


class Draft:
    """The current draft of one run, and how much of it was read."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self._value: Json = None
        """The message as JSON. None if it is unknown: then changes are ignored until one replaces it."""
        self._size = 0
        """Size of the changes since it was last replaced, as JSON."""
        self._begins = False
        """True while no event of it was read."""
        self._counts: list[int] = [0, 0, 0]
        """Numbers of thoughts, tool calls and progress reports that were read."""

    def read(self, metadata: JsonObject | None) -> w.Message | None:
        """Return the message after the changes in an update's metadata; None if none of them applies."""
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
        """Apply one change. Raises as `_apply`, and LookupError if the changes become too large."""
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
        """Return True if the message is the one that was drafted."""
        return message is not None and self.message_id is not None and message.messageId == self.message_id

    def keep_news(self, decoded: DecodedContent, tracker: ArtifactTracker | None, events: list[Event]) -> bool:
        """Remove from the content of a draft what was read before. The rest is a piece of the answer.

        `tracker` is that of the answer so far, whose message ends if the draft does not continue it. Returns False if
        the draft has changed what was read.
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
        """Return the parts of a message that were not read as a draft. A message that was not drafted (or None) returns
        all of them.

        `tracker` is that of the drafted answer. kagenti-adk asks and fails in its draft.
        """
        if not self.is_of(message) or not _is_open(tracker):
            return parts
        return rest(tracker.merged_parts, parts) or parts

    def mark(self, events: list[Event], start: int) -> None:
        """Mark the events from `start` on as those of the draft: callers of A2A receive its changes instead."""
        extra: Extra = {DRAFT: {"messageId": self.message_id, "told": list(self._counts)}}
        for index in range(start, len(events)):
            events[index] = events[index].replace(extra={**events[index].extra, **extra})

    def recall(self, event: Event, *, is_own: bool) -> None:
        """Restore the state from a recorded event. `is_own`: it is of this run."""
        mark: JsonObject = event.extra.get(DRAFT) or {}
        message_id, value = mark.get("messageId"), mark.get("told")
        counts = cast("list[Json]", value) if isinstance(value, list) else []
        # The mark may be that of another gateway, and have any form.
        if is_own and isinstance(message_id, str) and len(counts) == len(self._counts):
            self.message_id, self._counts = message_id, [each if isinstance(each, int) else 0 for each in counts]


def _is_open(tracker: ArtifactTracker | None) -> TypeGuard[ArtifactTracker]:
    return tracker is not None and tracker.message_id is not None


def _apply(value: Json, change: Json) -> Json:
    """Return the value after one change. Raises any error that an invalid change causes."""
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
    """Return the names and indexes in a JSON Pointer (RFC 6901)."""
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
