"""Numbered events of a response's stream.

The number of an event depends only on the records before it. So every reader, at any time, receives the same events
with the same numbers.
"""

from babelgate.canonical.value import JsonObject


class StreamEvents:
    """Queue of a response's events that were emitted and not yet taken. It numbers the events."""

    __slots__ = ("_events", "_next_number")

    def __init__(self) -> None:
        self._events: list[JsonObject] = []
        self._next_number = 0

    def emit(self, kind: str, members: JsonObject) -> None:
        """Add an event of the type `kind`, with the next sequence number."""
        self._events.append({"type": kind, "sequence_number": self._next_number, **members})
        self._next_number += 1

    def take(self) -> list[JsonObject]:
        """Return the events since the last call, and remove them."""
        events, self._events = self._events, []
        return events
