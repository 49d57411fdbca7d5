"""What the gateway has acknowledged, and what is in doubt because its answer was cut off."""

from dataclasses import dataclass, field
from typing import Any

from tests.pairs.caller import Caller, Feed


@dataclass(eq=False)
class Known:
    """Something with one value: `value` was acknowledged last, and each of `doubt` may have taken its place since.
    None = it is not there."""

    value: Any = None
    doubt: list[Any] = field(default_factory=list[Any])

    def holds(self, found: Any) -> bool:
        return found == self.value or found in self.doubt

    def is_settled_as(self, found: Any) -> None:
        """It was looked at, and nothing is in doubt any more."""
        self.value, self.doubt = found, []


class Deed:
    """A change that is being made: it is in doubt until it is acknowledged."""

    def __init__(self, known: Known, value: Any) -> None:
        self._known, self._value = known, value
        known.doubt.append(value)

    def acknowledged(self) -> None:
        self._known.is_settled_as(self._value)


@dataclass(eq=False)
class Run:
    """What a caller started."""

    caller: Caller
    text: str
    task_id: str = ""
    """Known as soon as any answer has named it."""
    feed: Feed | None = None
    cancelled: bool = False
    """Acknowledged."""
    cancelling: bool = False
    """Somebody asked for it."""
    answered: bool = False
    """Acknowledged."""
    answering: bool = False
    deleted: bool = False
    """The thread was, or may have been."""
    settled: bool = False
    """It was seen at its end in all protocols."""

    @property
    def agent(self) -> str:
        return self.caller.agent


@dataclass
class World:
    runs: list[Run] = field(default_factory=list[Run])
    threads: dict[str, Known] = field(default_factory=dict[str, Known])
    """By id: the metadata."""
    items: dict[str, Known] = field(default_factory=dict[str, Known])
    """By key: the value."""
    uploads: dict[str, dict[str, Known]] = field(default_factory=dict[str, dict[str, Known]])
    """By AIEF task and file name: how many there are."""
    hooks: dict[tuple[str, str], Known] = field(default_factory=dict[tuple[str, str], Known])
    """By task and id of a push configuration: its URL."""
    acknowledged: dict[str, int] = field(default_factory=dict[str, int])
    """Writes, by kind."""

    def count(self, kind: str) -> None:
        self.acknowledged[kind] = self.acknowledged.get(kind, 0) + 1

    def run_of(self, task_id: str) -> Run | None:
        return next((run for run in self.runs if run.task_id == task_id), None)
