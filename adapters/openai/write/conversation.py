"""Records of a thread → the items of a conversation."""

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
"""Items of one conversation that can be shown: all of them are in memory at once. Chosen, not measured: as many as one
input may have (`wire.requests.MAX_MESSAGES`)."""


@dataclass(frozen=True, slots=True)
class ConversationItem:
    item: JsonObject
    message_id: str | None
    """None = it is of no message, and cannot be taken out."""
    turn: int
    """The seq of the record that began the turn in which it was said."""


@dataclass(slots=True)
class _Task:
    agent: str
    told: list[Record] = field(default_factory=list[Record])
    """What a later run's response has to know of the earlier ones: questions, answers, calls."""
    writers: list[ResponseWriter] = field(default_factory=list[ResponseWriter])


@dataclass(slots=True)
class _Block:
    """What was said at once: by a caller, or in one run."""

    turn: int
    run_id: str | None
    said: list[str] = field(default_factory=list[str])
    """Ids of messages."""
    messages: tuple[Message, ...] = ()
    writer: ResponseWriter | None = None


class ConversationWriter:
    """Feed it all records of a thread, in order, or all that tell of some turns."""

    def __init__(self, thread_id: str, owner: str, forgotten: Iterable[str] = ()) -> None:
        """`forgotten` = ids of messages that are left out, beside those of which the records say it."""
        self._fold = Fold(thread_id, owner)
        """Of what belongs to no run."""
        self._tasks: dict[str, _Task] = {}
        self._blocks: list[_Block] = []
        self._removed: set[str] = set()
        """Runs."""
        self._forgotten: set[str] = set(forgotten)
        """Messages."""

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
                self._removed.add(event.run_id)
            case StateSaved():
                self._forgotten |= {*event.removed_ids}
            case MessageStarted() if record.run_id is None:
                self._blocks.append(_Block(record.seq, None, said=[event.message_id or ""]))
            case _:
                pass
        if task is None:
            return
        for writer in task.writers:
            writer.write(record)
        call = isinstance(event, PartAdded) and isinstance(event.part, ToolCallPart)
        if call or isinstance(event, InterruptRaised | InterruptAnswered):
            task.told.append(record)

    def _begin(self, record: Record, event: RunCreated, task: _Task) -> None:
        writer = ResponseWriter(record.task_id or "", task.agent, event.run_id)
        for told in task.told:
            writer.write(told)
        task.writers.append(writer)
        said = _Block(record.seq, event.run_id, messages=event.messages)
        self._blocks += [said, _Block(record.seq, event.run_id, writer=writer)]

    def items(self, turns: Container[int] | None = None) -> list[ConversationItem]:
        """Those of the turns that these records began, or all. Raises too_large."""
        found: list[ConversationItem] = []
        for each in self._items(turns):
            found.append(each)
            if len(found) > _MOST_ITEMS:
                raise FaultError(
                    FaultCode.TOO_LARGE, f"The conversation has more than {_MOST_ITEMS} items.", limit=_MOST_ITEMS
                )
        return found

    def _items(self, turns: Container[int] | None) -> Iterator[ConversationItem]:
        for block in self._blocks:
            if block.run_id in self._removed or (turns is not None and block.turn not in turns):
                continue
            said = [message for each in block.said if (message := self._fold.message(each)) is not None]
            for message in (*said, *block.messages):
                if message.message_id not in self._forgotten:
                    yield ConversationItem(encode_input(message), message.message_id, block.turn)
            for item, message_id in block.writer.items() if block.writer is not None else ():
                if message_id is None or message_id not in self._forgotten:
                    yield ConversationItem(item, message_id, block.turn)
