"""What a run meant to its caller, in no protocol's words. Drivers read it from the wire; `compare` compares it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from babelgate.conformance.wire.exchange import Exchange


@dataclass(frozen=True, slots=True)
class File:
    name: str
    content: bytes
    media_type: str | None = None
    """None where the protocol has none."""
    url: str = ""
    """Where it is, if that is told instead of its content."""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    value: Any = None
    """Data that goes with it."""
    schema: Any = None
    """Of the answer."""
    id: str = field(default="", compare=False)
    """Where the protocol has one."""


@dataclass(frozen=True, slots=True)
class Input:
    """What a caller says."""

    text: str
    files: Sequence[File] = ()
    data: Any = None
    """Structured input instead of the text, for agents that want it."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A run, by the ids that its protocol has for it, or by those that are the same in all protocols of the server."""

    agent: str
    """As triggers name it; nothing: the server's only or first one."""
    thread: str = ""
    task: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    state: str
    """submitted, working, asks, completed, failed or cancelled; else the protocol's own word."""
    texts: Sequence[str] = ()
    """By message, where the protocol has messages."""
    data: Sequence[Any] = ()
    files: Sequence[File] = ()
    questions: Sequence[Question] = ()
    """That are open."""
    error: str = ""
    states: Sequence[str] | None = None
    """In the order in which a stream told them; None where there was no stream."""
    conversation: str = ""
    """Of a second turn: `the same`, or `another` than that of the first."""

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(frozen=True, slots=True)
class Shot:
    """What one protocol told at one moment, and how."""

    protocol: str
    meaning: Meaning | None
    """None: it could not be had, and `fault` says why."""
    exchanges: Sequence[Exchange] = ()
    telling: Exchange | None = None
    """The one of them that says most of it; None: the last."""
    losses: Mapping[str, str] = field(default_factory=dict[str, str])
    """That the server declared, by feature."""
    fault: str = ""
    is_declined: bool = False
    """The server said that it does not do such a thing, and did not fail at it."""
    shared: Handle | None = None
    """By which ids the run is known in the server's other protocols, if it says so."""
