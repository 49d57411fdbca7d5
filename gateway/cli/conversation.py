"""A conversation with an agent on the command line, in no protocol's words: what is sent, and what is heard."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from canonical.value import Json, JsonObject

ABSENT: Final = "no gateway answers there: start one with babelgate serve, or name another with --url"


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something on the way: progress, a tool, a file."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that the agent stopped for."""

    id: str
    text: str
    schema: JsonObject | None = None


Heard = Said | Noted | Asked


class Failed(Exception):
    """The agent, the gateway or the way to it failed; the message says how."""


class Conversation(Protocol):
    """With one agent, in one protocol."""

    def send(self, text: str) -> AsyncGenerator[Heard]:
        """Raises Failed."""
        ...

    def answer(self, answers: Sequence[tuple[Asked, Json]]) -> AsyncGenerator[Heard]:
        """All questions that were asked. Raises Failed."""
        ...

    async def aclose(self) -> None: ...


def bearer(key: str | None) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
