"""Result of a run for its caller, independent of the protocol. Drivers read it from the wire, and `compare` compares
it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from babelgate.conformance.wire.exchange import Exchange


@dataclass(frozen=True, slots=True)
class File:
    name: str
    content: bytes
    media_type: str | None = None
    """Media type, or None if the protocol does not report it."""
    url: str = ""
    """URL of the content, if the protocol reports that instead of the content."""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    value: Any = None
    """Data that belongs to the question."""
    schema: Any = None
    """JSON Schema of the answer."""
    id: str = field(default="", compare=False)
    """Id of the question, if the protocol has one."""


@dataclass(frozen=True, slots=True)
class CallerInput:
    """Input from a caller."""

    text: str
    files: Sequence[File] = ()
    data: Any = None
    """Structured input that replaces the text, for agents that need it."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Run, identified by the ids of its protocol or by ids that are valid in all protocols of the server."""

    agent: str
    """Name of the agent, as in triggers. Empty means the server's only or first agent."""
    thread: str = ""
    task: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    state: str
    """State: submitted, working, asks, completed, failed or cancelled, or else the protocol's own word."""
    texts: Sequence[str] = ()
    """Texts of the answer, one for each message if the protocol has messages."""
    data: Sequence[Any] = ()
    files: Sequence[File] = ()
    questions: Sequence[Question] = ()
    """Open questions."""
    error: str = ""
    states: Sequence[str] | None = None
    """States in the order in which a stream showed them, or None without a stream."""
    conversation: str = ""
    """Conversation of a second turn, compared with the first: `the same` or `another`."""

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(frozen=True, slots=True)
class Shot:
    """Result that one protocol showed at one moment, with the exchanges that carried it."""

    protocol: str
    meaning: Meaning | None
    """Result, or None if it could not be read; `fault` says why."""
    exchanges: Sequence[Exchange] = ()
    telling: Exchange | None = None
    """Exchange that carries most of the result. None means the last one."""
    losses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Losses that the server declared, by feature."""
    fault: str = ""
    is_declined: bool = False
    """True if the server answered that it does not support this; False if it failed."""
    shared: Handle | None = None
    """Ids of the run in the server's other protocols, if it reports them."""
