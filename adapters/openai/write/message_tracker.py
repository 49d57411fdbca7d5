"""State of messages whose parts arrive in deltas, for the writers of both APIs."""

from collections.abc import Container
from typing import Literal

from babelgate.canonical import Part
from babelgate.canonical.event import MessageEnded, PartAdded, PartEnded
from babelgate.canonical.value import Json, JsonObject


class MessageTracker:
    """Open parts of one run's messages, the data that was shown, and the sum of token counts."""

    __slots__ = ("_data", "open_kinds", "usage")

    def __init__(self) -> None:
        self.open_kinds: dict[tuple[str, int], type[Part]] = {}
        """Type of each open part, by message id and part index. A delta does not contain it."""
        self._data: list[tuple[str, Json]] = []
        """Data parts that were shown as text, each with the id of its message."""
        self.usage: JsonObject = {}
        """Sum of the token counts of all ended messages."""

    def add_part(self, event: PartAdded) -> None:
        """Store the type of a part that is open for more text."""
        if event.open:
            self.open_kinds[event.message_id or "", event.index or 0] = type(event.part)

    def add_data(self, message_id: str, data: Json) -> None:
        """Record that the data of a part was shown."""
        self._data.append((message_id, data))

    def has_shown(self, output: Json) -> bool:
        """Return True if the run's structured output equals a data part that was shown, so that it is not shown
        twice."""
        return any(data == output for _, data in self._data)

    def drop_void(self, void: Container[str]) -> None:
        """Remove the parts and data of messages that a restart has voided. Their token counts are kept, because the
        agent has used the tokens."""
        self._data = [(message_id, data) for message_id, data in self._data if message_id not in void]
        self.open_kinds = {key: kind for key, kind in self.open_kinds.items() if key[0] not in void}

    def end_part(self, event: PartEnded) -> type[Part] | None:
        """Remove a part from the open ones. Return its type, or None if it was not open."""
        return self.open_kinds.pop((event.message_id or "", event.index or 0), None)

    def end_message(self, event: MessageEnded, *, has_refused: bool) -> Literal["length", "content_filter"] | None:
        """Add the token counts of a message that has ended. Return the reason why it is incomplete, or None.

        `has_refused`: a refusal of the model was shown, so the message is complete.
        """
        for name, count in event.usage.items():
            if isinstance(count, int):
                self.usage[name] = self.usage.get(name, 0) + count
        if event.finish == "length":
            return "length"
        return "content_filter" if event.finish == "refusal" and not has_refused else None
