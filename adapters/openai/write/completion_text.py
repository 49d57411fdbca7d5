"""Text of one chat completion, whose only message joins all messages of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from babelgate.canonical.value import JsonObject

CONTENT: Final = "content"
REFUSAL: Final = "refusal"

_SEPARATOR: Final = "\n"
"""Text between two messages of the agent in the joined content."""


@dataclass(slots=True)
class _Segment:
    """Consecutive text of one agent's message, for one member of the completion's message such as `content`."""

    message_id: str
    member: str
    pieces: list[str] = field(default_factory=list[str])
    is_separated: bool = False
    """True if `_SEPARATOR` precedes the text."""

    def join(self) -> str:
        text = "".join(self.pieces)
        return _SEPARATOR + text if self.is_separated else text


class CompletionText:
    """Text of a run's messages in the order of arrival, so that the sum of a stream's deltas equals the whole
    completion."""

    __slots__ = ("_citations", "_length", "_segments", "_starts")

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._starts: dict[str, int] = {}
        """Offset in the joined content at which each message begins, in characters, by message id."""
        self._length = 0
        """Length of the joined content, in characters."""
        self._citations: list[tuple[str, JsonObject]] = []
        """Annotations of the content, each with the id of its message."""

    @property
    def is_empty(self) -> bool:
        return not self._segments

    @property
    def annotations(self) -> list[JsonObject]:
        return [annotation for _, annotation in self._citations]

    def join(self, member: str) -> str:
        """Return the whole text of a member of the completion's message, such as `content`."""
        return "".join([segment.join() for segment in self._segments if segment.member == member])

    def members(self) -> list[str]:
        """Return the names of the members that have text, in the order of their first text."""
        return list(dict.fromkeys(segment.member for segment in self._segments))

    def has_content_of(self, message_id: str) -> bool:
        return message_id in self._starts

    def add(self, message_id: str, member: str, text: str) -> str:
        """Add text of a message to a member. Return the text as it is appended: `_SEPARATOR` precedes the first content
        of a message, unless no other message has content yet."""
        is_first = member == CONTENT and message_id not in self._starts
        segment = self._segments[-1] if self._segments else None
        if segment is None or is_first or segment.message_id != message_id or segment.member != member:
            segment = _Segment(message_id, member)
            self._segments.append(segment)
        if is_first:
            self._begin(segment)
        segment.pieces.append(text)
        if member == CONTENT:
            self._length += len(text)
        return _SEPARATOR + text if is_first and segment.is_separated else text

    def extend(self, message_id: str, texts: Sequence[str]) -> None:
        """Add several texts to the content of a message that has content already."""
        self.add(message_id, CONTENT, "".join(texts))  # one string takes half the memory of many short ones

    def cite(self, message_id: str, annotation: JsonObject) -> None:
        """Add an annotation of the content. `message_id` is empty if its message is not known."""
        self._citations.append((message_id, annotation))

    def span(self, message_id: str, start: int | None, end: int | None) -> JsonObject:
        """Convert a range in a message's text to `start_index` and `end_index` in the joined content. None means the
        start or the end of the text."""
        begin = self._starts.get(message_id, self._length)
        return {"start_index": begin + (start or 0), "end_index": self._length if end is None else begin + end}

    def drop(self, is_void: Callable[[str], bool]) -> int:
        """Remove the text and citations of messages that a restart has voided. Return the number of removed
        segments."""
        rest = [segment for segment in self._segments if not is_void(segment.message_id)]
        removed = len(self._segments) - len(rest)
        starts, self._segments, self._starts, self._length = self._starts, rest, {}, 0
        for segment in rest:
            if segment.member == CONTENT:
                segment.is_separated = False
                if segment.message_id not in self._starts:
                    self._begin(segment)
                self._length += sum(map(len, segment.pieces))
        self._citations = [
            (message_id, self._move(annotation, self._starts.get(message_id, 0) - starts.get(message_id, 0)))
            for message_id, annotation in self._citations
            if not message_id or not is_void(message_id)
        ]
        return removed

    def _begin(self, segment: _Segment) -> None:
        segment.is_separated = self._length > 0
        self._length += len(_SEPARATOR) if segment.is_separated else 0
        self._starts[segment.message_id] = self._length

    @staticmethod
    def _move(annotation: JsonObject, distance: int) -> JsonObject:
        citation: JsonObject | None = annotation.get("url_citation")
        if not distance or not citation:
            return annotation
        moved = {name: citation[name] + distance for name in ("start_index", "end_index") if name in citation}
        return {**annotation, "url_citation": {**citation, **moved}}
