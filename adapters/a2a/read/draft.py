"""A message that its server tells by changes of it while it is made, and whole at the end: kagenti-adk 0.8.1, to
whoever names its extension `ui/streaming/v1`. The changes are those of JSON Patch (RFC 6902), and `str_ins`."""

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

_MOST_BYTES: Final = 4_000_000
"""Bytes of changes of one message, as JSON, that are followed: the rest is told when the message is whole."""


class Draft:
    """What is known of the message, and how much of it was told."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self._value: Json = None
        """None = it is not known: until it is told whole, changes say nothing."""
        self._size = 0
        """Of the changes that made it, as JSON."""
        self._begins = False
        """Nothing of it was told."""
        self._told: list[int] = [0, 0, 0]
        """Thoughts, calls of tools, and what was said on the way."""

    def read(self, metadata: JsonObject | None) -> w.Message | None:
        """The message as it is now, if an update's metadata change it in a way that can be followed."""
        told = next((value for key, value in (metadata or {}).items() if key.endswith(STREAMING)), None)
        changes: Any = as_object(told).get("message_update")
        if not isinstance(changes, list):
            return None
        try:
            for change in cast("list[Json]", changes):
                self._follow(change)
            about = cast("JsonObject", self._value)
            return self._begin(validate(w.Message, {**about, "messageId": about["message_id"]}))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, FaultError):
            self._value = None
            return None

    def _follow(self, change: Json) -> None:
        """Raises as `_apply`, and LookupError where there would be too much of it."""
        size = len(encode(change))
        self._size = size if as_object(change).get("path") == "" else self._size + size
        if self._size > _MOST_BYTES:
            raise LookupError(self._size)
        self._value = _apply(self._value, change)

    def _begin(self, message: w.Message) -> w.Message:
        if message.messageId != self.message_id:
            self.message_id, self._told, self._begins = message.messageId, [0, 0, 0], True
        return message

    def is_of(self, message: w.Message | None) -> bool:
        return message is not None and self.message_id is not None and message.messageId == self.message_id

    def take_news(self, decoded: DecodedContent, tracker: ArtifactTracker | None, events: list[Event]) -> bool:
        """Leave in it what was not told, and call that a piece of the answer. `tracker` = of the answer so far, which
        ends if this does not go on with it. False, if what was told is no beginning of this."""
        thoughts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        words = [part for part in decoded.parts if not isinstance(part, ReasoningPart)]
        before, self._told = self._told, [len(thoughts), len(decoded.tools), len(decoded.progress)]
        begins, self._begins = self._begins, False
        new = words if begins or not _is_open(tracker) else rest(tracker.merged_parts, words)
        if tracker is not None and (begins or new is None):
            tracker.close(events)
        decoded.parts = [*thoughts[before[0] :], *(words if new is None else new)]
        decoded.tools, decoded.progress, decoded.states = decoded.tools[before[1] :], decoded.progress[before[2] :], []
        decoded.says = "answer"
        return new is not None

    def find_untold(
        self, message: w.Message | None, parts: Sequence[Part], tracker: ArtifactTracker | None
    ) -> Sequence[Part]:
        """What the message says beside what was told of it: kagenti-adk asks and fails in the one that it has begun."""
        if not self.is_of(message) or not _is_open(tracker):
            return parts
        return rest(tracker.merged_parts, parts) or parts

    def mark(self, events: list[Event], start: int) -> None:
        """Callers of A2A see the changes as they came."""
        extra: Extra = {DRAFT: {"messageId": self.message_id, "told": list(self._told)}}
        for index in range(start, len(events)):
            events[index] = events[index].replace(extra={**events[index].extra, **extra})

    def recall(self, event: Event, *, mine: bool) -> None:
        own: JsonObject = event.extra.get(DRAFT) or {}
        message_id, told = own.get("messageId"), own.get("told")
        counts = cast("list[Json]", told) if isinstance(told, list) else []
        # Records of another gateway come with what its own reader kept there, or with anything.
        if mine and isinstance(message_id, str) and len(counts) == len(self._told):
            self.message_id, self._told = message_id, [each if isinstance(each, int) else 0 for each in counts]


def _is_open(tracker: ArtifactTracker | None) -> TypeGuard[ArtifactTracker]:
    return tracker is not None and tracker.message_id is not None


def _apply(value: Json, change: Json) -> Json:
    """Raises whatever a change does that is none of the value, or no change."""
    told = cast("JsonObject", change)
    operation, path = told["op"], _steps(told["path"])
    new: Any = deepcopy(told.get("value"))
    if not path:
        if operation not in ("add", "replace"):
            raise ValueError(operation)
        return new
    *way, last = path
    holder: Any = value
    for step in way:
        holder = holder[int(step) if isinstance(holder, list) else step]
    listed = cast("list[Any]", holder) if isinstance(holder, list) else None
    at: Any = last if listed is None else len(listed) if last == "-" else int(last)
    match operation:
        case "add" if listed is not None:
            listed.insert(at, new)
        case "add":
            holder[at] = new
        case "replace":
            holder[at]  # which is there
            holder[at] = new
        case "remove":
            del holder[at]
        case "str_ins":
            text: str = cast("Any", holder)[at]
            place = int(told["pos"])
            holder[at] = text[:place] + new + text[place:]
        case _:
            raise ValueError(operation)
    return value


def _steps(pointer: str) -> Sequence[str]:
    """Of a JSON Pointer (RFC 6901)."""
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
