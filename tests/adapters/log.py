"""Small logs of one task, as the hub writes them."""

from collections.abc import Iterable

from babelgate.canonical import Event, Message, Record, RunReason, RunStatus, Task, TaskState, TextPart
from babelgate.canonical.event import (
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
)

THREAD = "00000000-0000-4000-8000-000000000001"
TASK = "00000000-0000-4000-8000-000000000002"
RUN = "00000000-0000-4000-8000-000000000003"
CONTEXT = "my context"
T0 = 1_760_000_000_000_000


def message_events(message_id: str, *parts: PartAdded) -> list[Event]:
    return [
        MessageStarted(message_id=message_id),
        *(part.replace(message_id=message_id) for part in parts),
        MessageEnded(message_id=message_id),
    ]


def streamed(message_id: str, *tokens: str) -> list[Event]:
    return [
        MessageStarted(message_id=message_id),
        PartAdded(message_id=message_id, index=0, part=TextPart(text=""), open=True),
        *(PartDelta(message_id=message_id, index=0, text=token) for token in tokens),
        PartEnded(message_id=message_id, index=0),
        MessageEnded(message_id=message_id),
    ]


class Log:
    """Builder of a log, with records one millisecond apart."""

    def __init__(self, *inputs: Message, created: TaskCreated | None = None) -> None:
        self.records: list[Record] = []
        self.run_id: str | None = None
        self._add(ThreadChanged(), task=False)
        self._add(created or TaskCreated(task_id=TASK, agent="echo"))
        self.input(RUN, *inputs)

    def _add(self, event: Event, *, task: bool = True, run: bool = False) -> None:
        seq = len(self.records) + 1
        run_id = self.run_id if run else None
        self.records.append(Record(seq, T0 + seq * 1000, TASK if task else None, run_id, 1 if run else 0, event))

    def input(self, run_id: str, *messages: Message, **more: object) -> "Log":
        self.run_id = run_id
        self._add(RunCreated(run_id=run_id, messages=messages, **more), run=True)  # pyright: ignore[reportArgumentType]
        return self

    def start(self) -> "Log":
        self._add(RunStarted(attempt=1, node="echo"), run=True)
        return self.become(TaskState.WORKING)

    def add(self, *events: Event) -> "Log":
        for event in events:
            self._add(event, run=True)
        return self

    def become(self, state: TaskState, **more: object) -> "Log":
        self._add(TaskChanged(state=state, **more))  # pyright: ignore[reportArgumentType]
        return self

    def done(self, **more: object) -> "Log":
        self._add(RunEnded(**more), run=True)  # pyright: ignore[reportArgumentType]
        return self.become(TaskState.COMPLETED)

    def paused(self, state: TaskState = TaskState.INPUT_REQUIRED) -> "Log":
        self._add(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT), run=True)
        return self.become(state)


def task_of(records: Iterable[Record]) -> Task:
    for record in records:
        event = record.event
        if isinstance(event, TaskCreated):
            return Task(
                task_id=event.task_id,
                thread_id=THREAD,
                agent=event.agent,
                state=TaskState.SUBMITTED,
                created_at=record.at,
                changed_at=record.at,
                first_seq=record.seq,
                last_seq=record.seq,
                metadata=event.metadata,
            )
    raise AssertionError("no task in this log")
