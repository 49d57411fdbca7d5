"""Changes that the gateway has acknowledged, and those in doubt because their response was cut off."""

from dataclasses import dataclass, field
from typing import Any

from tests.pairs.caller import Caller, Feed


@dataclass(eq=False)
class Entry:
    """A stored thing with one value: the last acknowledged one, or any of `doubt`, which may have replaced it since.

    None means that it does not exist.
    """

    value: Any = None
    doubt: list[Any] = field(default_factory=list[Any])

    def holds(self, found: Any) -> bool:
        return found == self.value or found in self.doubt

    def is_settled_as(self, found: Any) -> None:
        """Set the value that was read; nothing is in doubt any more."""
        self.value, self.doubt = found, []


class Deed:
    """A change in progress, which is in doubt until it is acknowledged."""

    def __init__(self, entry: Entry, value: Any) -> None:
        self._entry, self._value = entry, value
        entry.doubt.append(value)

    def acknowledged(self) -> None:
        self._entry.is_settled_as(self._value)


@dataclass(eq=False)
class Run:
    """A run that a caller started."""

    caller: Caller
    text: str
    task_id: str = ""
    """Id of its task, set as soon as any response has named it."""
    feed: Feed | None = None
    cancelled: bool = False
    """True if a cancel was acknowledged."""
    cancelling: bool = False
    """True if a cancel was requested."""
    answered: bool = False
    """True if an answer was acknowledged."""
    answering: bool = False
    deleted: bool = False
    """True if the thread was deleted, or may have been."""
    settled: bool = False
    """True if its end was read in all protocols."""

    @property
    def agent(self) -> str:
        return self.caller.agent


@dataclass
class World:
    runs: list[Run] = field(default_factory=list[Run])
    threads: dict[str, Entry] = field(default_factory=dict[str, Entry])
    """Metadata of each thread, by thread id."""
    items: dict[str, Entry] = field(default_factory=dict[str, Entry])
    """Value of each store item, by key."""
    uploads: dict[str, dict[str, Entry]] = field(default_factory=dict[str, dict[str, Entry]])
    """Number of files of each name, by AIEF task and file name."""
    hooks: dict[tuple[str, str], Entry] = field(default_factory=dict[tuple[str, str], Entry])
    """URL of each push configuration, by task id and configuration id."""
    acknowledged: dict[str, int] = field(default_factory=dict[str, int])
    """Number of acknowledged writes, by kind."""

    def count(self, kind: str) -> None:
        self.acknowledged[kind] = self.acknowledged.get(kind, 0) + 1

    def run_of(self, task_id: str) -> Run | None:
        return next((run for run in self.runs if run.task_id == task_id), None)
