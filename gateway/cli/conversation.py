"""Output of an agent in a conversation on the command line, which is the same for all protocols."""

from collections.abc import Mapping
from dataclasses import dataclass

from babelgate.canonical.value import JsonObject


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Piece of the text of an agent's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """Note on the agent's progress, such as a tool call or a file."""

    text: str


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """Question for which the agent has stopped."""

    id: str
    text: str
    schema: JsonObject | None = None


Output = TextPiece | ProgressNote | OpenQuestion


class ConversationError(Exception):
    """Failure of the agent, the gateway or the connection. The message gives the reason."""


def bearer(key: str | None) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
