"""Events and messages of ACP as the official client returns them."""

from typing import Any


def kinds(events: list[Any]) -> list[str]:
    """Return the types of events."""
    return [event["type"] for event in events]


def texts(messages: list[Any]) -> list[str]:
    """Return the text of each message, without artifacts."""
    return ["".join(part["content"] or "" for part in message["parts"] if part["name"] is None) for message in messages]
