"""Queue of the writer: commands that wait, the groups that it commits together, and the outcome of a group."""

import asyncio
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.row_cache import RowChange
from babelgate.gateway.storage.transaction import Published, Transaction
from babelgate.gateway.storage.unavailable import Unstored

_GROUP = 512
"""Maximum number of commands in one transaction. Chosen, not measured: the writer never waits for more commands."""


@dataclass(slots=True, eq=False)
class QueuedCommand:
    """A command with its arguments, and the future of its caller."""

    command: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    done: "asyncio.Future[Any]"

    def run(self, tx: Transaction) -> Any:
        return self.command(tx, *self.args, **self.named)


@dataclass(slots=True, eq=False)
class CommandResult:
    """Return value or error of one command."""

    write: QueuedCommand
    value: Any
    error: BaseException | None


@dataclass(slots=True, eq=False)
class Commit:
    """Outcome of one group: records to publish, changed rows, one result per command, notices for other gateways."""

    published: Sequence[Published] = ()
    changed: Sequence[RowChange] = ()
    results: Sequence[CommandResult] = ()
    remotes: Sequence[Remote] = ()


HandOver = Callable[[Commit], None]
"""Function that publishes an outcome and resolves the futures of its commands. It takes calls from any thread."""


def refuse(results: Iterable[CommandResult]) -> Commit:
    """Return the outcome of a group that is known not to be stored, from results that were never handed over."""
    return Commit(results=[CommandResult(each.write, None, Unstored()) for each in results])


def refuse_all(writes: Iterable[QueuedCommand]) -> Commit:
    """Return the outcome of a group that is known not to be stored."""
    return refuse(CommandResult(write, None, None) for write in writes)


class WriteQueue:
    """Queue of commands, in the order in which they arrive from any thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[QueuedCommand | None] = queue.SimpleQueue()
        self._is_ending = False

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, write: QueuedCommand) -> None:
        self._queue.put(write)

    def end(self) -> None:
        """Make `take_group` return None after the commands that are queued now."""
        self._queue.put(None)

    def take_group(self, timeout: float | None) -> list[QueuedCommand] | None:
        """Wait for queued commands and return them, or None at the end.

        Return an empty list if there are none within `timeout` seconds. None = no timeout.
        """
        if self._is_ending:
            return None
        try:
            first = self._queue.get(timeout=timeout)
        except queue.Empty:
            return []
        if first is None:
            return None
        group = [first]
        while len(group) < _GROUP:
            try:
                write = self._queue.get_nowait()
            except queue.Empty:
                break
            if write is None:
                self._is_ending = True
                break
            group.append(write)
        return group
