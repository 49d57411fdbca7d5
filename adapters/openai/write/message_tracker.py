"""Assembly of messages whose parts arrive in deltas, for the writers of both APIs."""

from collections.abc import Container
from typing import Literal

from babelgate.canonical import Part
from babelgate.canonical.event import MessageEnded, PartAdded, PartEnded
from babelgate.canonical.value import Json, JsonObject


class MessageTracker:
    """Open parts of one run's messages, and the totals of the messages."""

    __slots__ = ("_data", "open_kinds", "usage")

    def __init__(self) -> None:
        self.open_kinds: dict[tuple[str, int], type[Part]] = {}
        """Types of the open parts, by message id and index. Deltas do not name the type of their part."""
        self._data: list[tuple[str, Json]] = []
        """Data that was shown, each with the id of its message."""
        self.usage: JsonObject = {}
        """Sum of the messages' usage."""

    def add_part(self, event: PartAdded) -> None:
        """Remember the type of a part if deltas of it follow."""
        if event.open:
            self.open_kinds[event.message_id or "", event.index or 0] = type(event.part)

    def add_data(self, message_id: str, data: Json) -> None:
        """Remember data that was shown."""
        self._data.append((message_id, data))

    def has_shown(self, output: Json) -> bool:
        """Return True if structured output equals data that was shown, and is not to be shown again."""
        return any(data == output for _, data in self._data)

    def drop_void(self, void: Container[str]) -> None:
        """Remove the messages that a restart voided. Their usage stays: the agent has used it."""
        self._data = [(message_id, data) for message_id, data in self._data if message_id not in void]
        self.open_kinds = {key: kind for key, kind in self.open_kinds.items() if key[0] not in void}

    def end_part(self, event: PartEnded) -> type[Part] | None:
        """Remove an open part, and return its type, or None if no such part is open."""
        return self.open_kinds.pop((event.message_id or "", event.index or 0), None)

    def end_message(self, event: MessageEnded, *, has_refused: bool) -> Literal["length", "content_filter"] | None:
        """Add the usage of a message. Return the reason why the message is incomplete, or None.

        `has_refused`: the refusal was shown, so it is the whole answer.
        """
        for name, count in event.usage.items():
            if isinstance(count, int):
                self.usage[name] = self.usage.get(name, 0) + count
        if event.finish == "length":
            return "length"
        return "content_filter" if event.finish == "refusal" and not has_refused else None
