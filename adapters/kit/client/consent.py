"""What counts as a yes. Each framework wants one in a form of its own; callers of other protocols have words."""

from typing import Final

from babelgate.canonical.value import Json, JsonObject

_DECISIONS: Final = ("confirmed", "approved", "approve", "decision", "action", "outcome", "type")
"""Members of an answer: `confirmed` of google-adk 2.13.0, `approved` of kagent 1.0.0a17, `approve` of the OpenAI
Responses API, `decision` of agentstack-sdk 0.7.1, and `action` of its calls of tools, `outcome` of gemini-cli 0.25.2,
`type` of a decision of langchain 1.5.0."""
_YES: Final = frozenset(
    ("yes", "y", "true", "ok", "okay", "approve", "approved", "accept", "accepted", "confirm", "confirmed", "allow")
) | {"proceed_once", "proceed_always"}
"""Words, and the outcomes of gemini-cli 0.25.2 that go ahead."""


def is_yes(value: Json) -> bool:
    """Whether it approves. Everything that is no clear yes does not."""
    if isinstance(value, dict):
        said: JsonObject = value
        return any(is_yes(said[name]) for name in _DECISIONS if name in said)
    return value is True or (isinstance(value, str) and value.strip().rstrip(".!").lower() in _YES)
