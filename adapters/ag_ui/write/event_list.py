"""List of the AG-UI events that one record adds. The writers of a run share it."""

from typing import Any

from babelgate.canonical.value import JsonObject


class EventList:
    """Events of the record that is being written."""

    def __init__(self) -> None:
        self.events: list[JsonObject] = []
        self.at = 0
        """Time of the record, in milliseconds since 1970."""

    def begin(self, at: int) -> None:
        """Begin an empty list for a record. `at` is its time, in milliseconds since 1970."""
        self.events, self.at = [], at

    def emit(self, type: str, **members: Any) -> None:
        """Add an event. Members that are None are left out, because old clients refuse null."""
        event: JsonObject = {"type": type, "timestamp": self.at}
        event.update((name, value) for name, value in members.items() if value is not None)
        self.events.append(event)

    def add(self, event: JsonObject) -> None:
        """Add an event as it is."""
        self.events.append(event)
