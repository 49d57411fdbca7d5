"""A conversation with an agent on the command line, whatever the protocol: what is sent, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass

from babelgate.canonical.value import JsonObject


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """Something on the way: progress, a tool, a file."""

    text: str


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that the agent stopped for."""

    id: str
    text: str
    schema: JsonObject | None = None


Output = TextPiece | ProgressNote | OpenQuestion


class ConversationError(Exception):
    """The agent, the gateway or the way to it failed; the message says how."""


def bearer(key: str | None) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
