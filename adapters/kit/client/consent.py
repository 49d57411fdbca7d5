"""Detection of approval in a caller's answer to a question. Each framework expects its own form of approval, but
callers of other protocols send words such as `yes`."""

from typing import Final

from babelgate.canonical.value import Json, JsonObject

_DECISIONS: Final = ("confirmed", "approved", "approve", "decision", "action", "outcome", "type")
"""Members of an answer that hold a decision, by framework:

- `confirmed`: google-adk 2.13.0
- `approved`: kagent 1.0.0a17
- `approve`: OpenAI Responses API
- `decision`: agentstack-sdk 0.7.1, and `action` in its tool calls
- `outcome`: gemini-cli 0.25.2
- `type`: decisions of langchain 1.5.0
"""
_YES: Final = frozenset(
    ("yes", "y", "true", "ok", "okay", "approve", "approved", "accept", "accepted", "confirm", "confirmed", "allow")
) | {"proceed_once", "proceed_always"}
"""Words that approve, and the outcomes of gemini-cli 0.25.2 that approve a tool call."""


def is_yes(value: Json) -> bool:
    """Return True if the caller's answer approves. Every answer that is not a clear yes counts as a no."""
    if isinstance(value, dict):
        answer: JsonObject = value
        return any(is_yes(answer[name]) for name in _DECISIONS if name in answer)
    return value is True or (isinstance(value, str) and value.strip().rstrip(".!").lower() in _YES)
