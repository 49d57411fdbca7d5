"""What counts as a yes. Each framework wants one in a form of its own; callers of other protocols have words."""

from typing import Final

from canonical.value import Json, JsonObject

_DECISIONS: Final = ("confirmed", "approved", "approve", "decision", "action", "outcome", "type")
_YES: Final = frozenset(
    ("yes", "y", "true", "ok", "okay", "approve", "approved", "accept", "accepted", "confirm", "confirmed", "allow")
) | {"proceed_once", "proceed_always"}


def is_yes(value: Json) -> bool:
    """Whether it approves. Everything that is no clear yes does not."""
    if isinstance(value, dict):
        said: JsonObject = value
        return any(is_yes(said[name]) for name in _DECISIONS if name in said)
    return value is True or (isinstance(value, str) and value.strip().rstrip(".!").lower() in _YES)
