"""Result of a run as its caller sees it, in terms of no protocol. Drivers read it from the wire, and `compare` compares
the results of different protocols."""

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
    """Data of the question, for programs that answer it."""
    schema: Any = None
    """JSON Schema of the answer."""
    id: str = field(default="", compare=False)
    """Id of the question, if the protocol has one."""


@dataclass(frozen=True, slots=True)
class CallerInput:
    """Input that a scenario sends to an agent."""

    text: str
    files: Sequence[File] = ()
    data: Any = None
    """Structured input that replaces the text, for agents that need it."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Ids of a run: those in its protocol, or those that are valid in all protocols of the server. Which of `thread`,
    `task` and `run` are set depends on the protocol."""

    agent: str
    """Name of the agent, as in triggers. Empty means the default agent of the server."""
    thread: str = ""
    task: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    state: str
    """State of the run: `submitted`, `working`, `asks` (a question is open), `completed`, `failed` or `cancelled`. Any
    other state is the protocol's own word."""
    texts: Sequence[str] = ()
    """Texts of the answer, one for each message if the protocol has messages."""
    data: Sequence[Any] = ()
    files: Sequence[File] = ()
    questions: Sequence[Question] = ()
    """Questions that wait for an answer."""
    error: str = ""
    states: Sequence[str] | None = None
    """States in the order in which a stream showed them, or None without a stream."""
    conversation: str = ""
    """Conversation of the second turn in the scenario `turns`, compared with that of the first: `the same` or
    `another`. Empty in all other scenarios."""

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(frozen=True, slots=True)
class Shot:
    """Result that one protocol showed at one moment of a scenario, with the HTTP exchanges that carried it."""

    protocol: str
    meaning: Meaning | None
    """Result of the run, or None if it could not be read; then `fault` has the reason."""
    exchanges: Sequence[Exchange] = ()
    telling: Exchange | None = None
    """Exchange that carries most of the result, to be shown as evidence. None means the last one."""
    losses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Losses that the server declared, by feature."""
    fault: str = ""
    is_declined: bool = False
    """True if the server declared that it does not support the operation; False if `fault` is a failure."""
    shared: Handle | None = None
    """Ids of the run that are valid in all protocols of the server, or None if it does not report them."""
