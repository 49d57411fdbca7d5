"""Fast path (memoised parsing) for pieces of an answer that differ in their text only, which most replies of a stream
are: what one of them was read as, the next one is, with its own text."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.a2a.read.artifacts import ArtifactTracker
from babelgate.canonical import Event
from babelgate.canonical.event import PartDelta
from babelgate.canonical.value import Json, JsonObject

_WRAPPER: Final = "artifactUpdate"
"""Of 1.0. In 0.3 the update is the reply, and says its `kind`."""
_UPDATE: Final = frozenset({"taskId", "contextId", "artifact", "append", "lastChunk", "kind"})
_ARTIFACT: Final = frozenset({"artifactId", "name", "description", "parts"})
_PART: Final = frozenset({"text", "kind", "mediaType"})
"""Members of which none says anything new when it is said again. Metadata may: they are read each time."""


class TokenReader:
    """Of one run."""

    __slots__ = ("_like", "_message_id", "_tracker")

    def __init__(self) -> None:
        self._like: JsonObject | None = None
        """The reply before, without its text."""
        self._tracker: ArtifactTracker | None = None
        self._message_id: str | None = None

    def read(self, value: Json) -> PartDelta | None:
        """None for a reply that has to be looked at."""
        tracker, self._tracker = self._tracker, None
        part = None if tracker is None else _part_of(value)
        if tracker is None or part is None:
            return None
        text = part["text"]
        part["text"] = ""
        is_alike = value == self._like
        part["text"] = text
        if not is_alike:
            return None
        self._tracker = tracker
        tracker.merged_parts[-1].texts.append(text)
        return PartDelta(message_id=self._message_id, text=text)

    def learn(self, value: Json, events: Sequence[Event], trackers: Mapping[str, ArtifactTracker]) -> None:
        """From a reply that was looked at, and what it came to. `trackers`: by artifact."""
        part = _part_of(value) if len(events) == 1 else None
        if part is None or not _says_no_more(reply := cast("JsonObject", value)):
            return
        [event] = events
        update: JsonObject = reply.get(_WRAPPER, reply)
        tracker = trackers.get(update["artifact"].get("artifactId"))
        if isinstance(event, PartDelta) and not event.extra and tracker and tracker.message_id == event.message_id:
            update = {**update, "artifact": {**update["artifact"], "parts": [{**part, "text": ""}]}}
            self._like = {_WRAPPER: update} if _WRAPPER in reply else update
            self._tracker, self._message_id = tracker, event.message_id


def _part_of(value: Json) -> dict[str, Any] | None:
    """The only part of the artifact of an update, if it is a text."""
    update: Any = value.get(_WRAPPER, value) if isinstance(value, dict) else None
    artifact: Any = cast("JsonObject", update).get("artifact") if isinstance(update, dict) else None
    parts: Any = cast("JsonObject", artifact).get("parts") if isinstance(artifact, dict) else None
    if not isinstance(parts, list) or len(cast("list[Any]", parts)) != 1:
        return None
    part = cast("Json", parts[0])
    return part if isinstance(part, dict) and type(text := part.get("text")) is str and text else None


def _says_no_more(value: JsonObject) -> bool:
    """Of an update whose artifact has one part."""
    if _WRAPPER in value and len(value) > 1:
        return False
    update: JsonObject = value.get(_WRAPPER, value)
    artifact: JsonObject = update["artifact"]
    if update.get("append") is not True:  # all of the artifact, of which most was told before
        return False
    return update.keys() <= _UPDATE and artifact.keys() <= _ARTIFACT and artifact["parts"][0].keys() <= _PART
