"""Conversion of the records of a thread to the items of a conversation."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from babelgate.adapters.openai.codec.items import encode_input
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import FaultCode, FaultError, Message, Record
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    MessageStarted,
    PartAdded,
    RunCreated,
    RunRemoved,
    StateSaved,
    TaskCreated,
)
from babelgate.canonical.fold import Fold
from babelgate.canonical.message import ToolCallPart
from babelgate.canonical.value import JsonObject

_MOST_ITEMS = 10_000
"""Maximum number of items of a conversation that can be read, because all of them are in memory at once. Chosen, not
measured: as many as one input may have (`wire.requests.MAX_MESSAGES`)."""


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """One item of a conversation, with its origin in the thread."""

    item: JsonObject
    message_id: str | None
    """Id of the message that the item shows. None if it shows no message, so that it cannot be deleted."""
    turn: int
    """Seq of the record that began the turn of the item."""


@dataclass(slots=True)
class _Task:
    """Task of the thread, with one writer for each of its runs."""

    agent: str
    shared: list[Record] = field(default_factory=list[Record])
    """Records that the writers of later runs of the task need, too: questions, answers and calls."""
    writers: list[ResponseWriter] = field(default_factory=list[ResponseWriter])


@dataclass(slots=True)
class _Block:
    """Source of consecutive items of one turn: messages that a caller added, a run's input, or a run's output."""

    turn: int
    run_id: str | None
    message_ids: list[str] = field(default_factory=list[str])
    """Ids of messages that a caller added outside of runs."""
    messages: tuple[Message, ...] = ()
    writer: ResponseWriter | None = None


class ConversationWriter:
    """Writer of a conversation's items. It must receive all records of a thread in order, or all records of some of its
    turns."""

    def __init__(self, thread_id: str, owner: str, removed_messages: Iterable[str] = ()) -> None:
        """Create a writer for a thread. `removed_messages` are ids of messages that were deleted by records which the
        writer does not receive."""
        self._fold = Fold(thread_id, owner)
        """Fold of the records outside of tasks, which has the messages that callers added."""
        self._tasks: dict[str, _Task] = {}
        """Tasks of the thread, by id."""
        self._blocks: list[_Block] = []
        self._removed_runs: set[str] = set()
        """Ids of runs that were rolled back or deleted."""
        self._removed_messages: set[str] = set(removed_messages)
        """Ids of messages that were deleted."""

    def write(self, record: Record) -> None:
        event, task = record.event, self._tasks.get(record.task_id or "")
        if record.run_id is None and record.task_id is None:
            self._fold.apply(record)
        match event:
            case TaskCreated():
                self._tasks[event.task_id] = _Task(event.agent)
                return
            case RunCreated() if task is not None:
                self._begin(record, event, task)
            case RunRemoved():
                self._removed_runs.add(event.run_id)
            case StateSaved():
                self._removed_messages |= {*event.removed_ids}
            case MessageStarted() if record.run_id is None:
                self._blocks.append(_Block(record.seq, None, message_ids=[event.message_id or ""]))
            case _:
                pass
        if task is None:
            return
        for writer in task.writers:
            writer.write(record)
        call = isinstance(event, PartAdded) and isinstance(event.part, ToolCallPart)
        if call or isinstance(event, InterruptRaised | InterruptAnswered):
            task.shared.append(record)

    def _begin(self, record: Record, event: RunCreated, task: _Task) -> None:
        writer = ResponseWriter(record.task_id or "", task.agent, event.run_id)
        for earlier in task.shared:
            writer.write(earlier)
        task.writers.append(writer)
        input_block = _Block(record.seq, event.run_id, messages=event.messages)
        self._blocks += [input_block, _Block(record.seq, event.run_id, writer=writer)]

    def items(self, turns: Container[int] | None = None) -> list[ConversationItem]:
        """Return the items of the turns with these seqs, or of all turns if `turns` is None. Raises too_large if there
        are more than `_MOST_ITEMS`."""
        items: list[ConversationItem] = []
        for each in self._items(turns):
            items.append(each)
            if len(items) > _MOST_ITEMS:
                raise FaultError(
                    FaultCode.TOO_LARGE, f"The conversation has more than {_MOST_ITEMS} items.", limit=_MOST_ITEMS
                )
        return items

    def _items(self, turns: Container[int] | None) -> Iterator[ConversationItem]:
        for block in self._blocks:
            if block.run_id in self._removed_runs or (turns is not None and block.turn not in turns):
                continue
            loose = [message for each in block.message_ids if (message := self._fold.message(each)) is not None]
            for message in (*loose, *block.messages):
                if message.message_id not in self._removed_messages:
                    yield ConversationItem(encode_input(message), message.message_id, block.turn)
            for item, message_id in block.writer.items() if block.writer is not None else ():
                if message_id is None or message_id not in self._removed_messages:
                    yield ConversationItem(item, message_id, block.turn)
