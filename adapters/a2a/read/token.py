"""Fast path for artifact updates that differ from the previous update only in their text.

Most replies of a stream do. Such an update becomes the same event as the previous one, with its own text, and needs no
decoding.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.a2a.read.artifacts import ArtifactTracker
from babelgate.canonical import Event
from babelgate.canonical.event import PartDelta
from babelgate.canonical.value import Json, JsonObject

_WRAPPER: Final = "artifactUpdate"
"""Member of a 1.0 reply that contains an artifact update. In 0.3 the update has a `kind` and no wrapper."""
_UPDATE: Final = frozenset({"taskId", "contextId", "artifact", "append", "lastChunk", "kind"})
_ARTIFACT: Final = frozenset({"artifactId", "name", "description", "parts"})
_PART: Final = frozenset({"text", "kind", "mediaType"})
"""Members of a text part that an update may have on the fast path. Metadata are not among them, because the same
metadata may mean something new each time."""


class TokenReader:
    """Recognizer of updates that differ from the previous update of the run only in their text."""

    __slots__ = ("_last", "_message_id", "_tracker")

    def __init__(self) -> None:
        self._last: JsonObject | None = None
        """Last reply that was read in full, with an empty text."""
        self._tracker: ArtifactTracker | None = None
        self._message_id: str | None = None

    def read(self, value: Json) -> PartDelta | None:
        """Return the event for a reply that equals the last one except in its text. Return None for any other reply,
        which must be read in full."""
        tracker, self._tracker = self._tracker, None
        part = None if tracker is None else _part_of(value)
        if tracker is None or part is None:
            return None
        text = part["text"]
        part["text"] = ""
        is_alike = value == self._last
        part["text"] = text
        if not is_alike:
            return None
        self._tracker = tracker
        tracker.merged_parts[-1].texts.append(text)
        return PartDelta(message_id=self._message_id, text=text)

    def learn(self, value: Json, events: Sequence[Event], trackers: Mapping[str, ArtifactTracker]) -> None:
        """Store a reply that was read in full, and its event, for comparison with the next reply. `trackers` are those
        of the run's artifacts, by artifact id."""
        part = _part_of(value) if len(events) == 1 else None
        if part is None or not _has_only_text(reply := cast("JsonObject", value)):
            return
        [event] = events
        update: JsonObject = reply.get(_WRAPPER, reply)
        tracker = trackers.get(update["artifact"].get("artifactId"))
        if isinstance(event, PartDelta) and not event.extra and tracker and tracker.message_id == event.message_id:
            update = {**update, "artifact": {**update["artifact"], "parts": [{**part, "text": ""}]}}
            self._last = {_WRAPPER: update} if _WRAPPER in reply else update
            self._tracker, self._message_id = tracker, event.message_id


def _part_of(value: Json) -> dict[str, Any] | None:
    """Return the part of an artifact update that has exactly one part with a text that is not empty. Return None for
    any other reply."""
    update: Any = value.get(_WRAPPER, value) if isinstance(value, dict) else None
    artifact: Any = cast("JsonObject", update).get("artifact") if isinstance(update, dict) else None
    parts: Any = cast("JsonObject", artifact).get("parts") if isinstance(artifact, dict) else None
    if not isinstance(parts, list) or len(cast("list[Any]", parts)) != 1:
        return None
    part = cast("Json", parts[0])
    return part if isinstance(part, dict) and type(text := part.get("text")) is str and text else None


def _has_only_text(value: JsonObject) -> bool:
    """Return True if an update only appends text to an artifact, and has no metadata or unknown members. It must have
    exactly one part."""
    if _WRAPPER in value and len(value) > 1:
        return False
    update: JsonObject = value.get(_WRAPPER, value)
    artifact: JsonObject = update["artifact"]
    if update.get("append") is not True:  # the whole artifact, most of which was read before
        return False
    return update.keys() <= _UPDATE and artifact.keys() <= _ARTIFACT and artifact["parts"][0].keys() <= _PART
