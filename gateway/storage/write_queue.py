"""Queue between the event loop and the writer: commands, the groups that are committed together, and their outcomes."""

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
"""Maximum number of commands in one transaction. Chosen.

It is only a bound: the writer never waits for more commands."""


@dataclass(slots=True, eq=False)
class QueuedCommand:
    """A command with its arguments, and the future on which its caller waits."""

    command: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    done: "asyncio.Future[Any]"

    def run(self, tx: Transaction) -> Any:
        return self.command(tx, *self.args, **self.named)


@dataclass(slots=True, eq=False)
class CommandResult:
    """A command with its return value, or with the error that it raised."""

    write: QueuedCommand
    value: Any
    error: BaseException | None


@dataclass(slots=True, eq=False)
class Commit:
    """Outcome of one group of commands.

    It has the records to publish, the changed rows, one result per command, and the notices for other gateways."""

    published: Sequence[Published] = ()
    changed: Sequence[RowChange] = ()
    results: Sequence[CommandResult] = ()
    remotes: Sequence[Remote] = ()


HandOver = Callable[[Commit], None]
"""Function that publishes an outcome and resolves the futures of its commands. Any thread may call it."""


def refuse(results: Iterable[CommandResult]) -> Commit:
    """Return an outcome in which each of these commands fails with Unstored, because its commit was not stored."""
    return Commit(results=[CommandResult(each.write, None, Unstored()) for each in results])


def refuse_all(writes: Iterable[QueuedCommand]) -> Commit:
    """Return an outcome in which each of these commands fails with Unstored."""
    return refuse(CommandResult(write, None, None) for write in writes)


class WriteQueue:
    """Queue of commands for the writer. Any thread may add commands; they keep their order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[QueuedCommand | None] = queue.SimpleQueue()
        self._is_ending = False

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, write: QueuedCommand) -> None:
        self._queue.put(write)

    def end(self) -> None:
        """End the queue: `take_group` returns None after the commands that are queued now."""
        self._queue.put(None)

    def take_group(self, timeout: float | None) -> list[QueuedCommand] | None:
        """Wait for a command, and return all queued commands, at most `_GROUP`. Return None when the queue has ended.

        Return an empty list if none arrives within `timeout` seconds. None means no timeout."""
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
