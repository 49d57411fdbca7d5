"""Conversation with an agent on the command line, in any protocol: the output of the agent."""

from collections.abc import Mapping
from dataclasses import dataclass

from babelgate.canonical.value import JsonObject


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """Note on the work so far: progress, a tool, a file."""

    text: str


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """Question that the agent stopped for."""

    id: str
    text: str
    schema: JsonObject | None = None


Output = TextPiece | ProgressNote | OpenQuestion


class ConversationError(Exception):
    """Failure of the agent, the gateway or the connection. The message gives the reason."""


def bearer(key: str | None) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
