"""Short logs for tests of encoders."""

import json
from collections.abc import Iterable
from typing import Any

from babelgate.adapters.langchain.codec.stream_modes import StreamParameters
from babelgate.adapters.langchain.write.run_frames import EventWriter
from babelgate.canonical import Event, Interrupt, Message, Record, Run, RunReason, RunStatus, StateHistory, TaskState
from babelgate.canonical.event import (
    InterruptRaised,
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
from babelgate.canonical.message import TextPart
from tests.strategies import T0

THREAD = "11111111-1111-4111-8111-111111111111"
TASK = "22222222-2222-4222-8222-222222222222"
RUN = "33333333-3333-4333-8333-333333333333"
RUN_2 = "44444444-4444-4444-8444-444444444444"

EVERYTHING = ("values", "messages", "messages-tuple", "updates", "events", "tasks", "checkpoints", "debug", "custom")


class Log:
    """Log of a thread with one task, as the hub writes it: one record each millisecond."""

    def __init__(self, agent: str = "echo", *, stateful: bool = False) -> None:
        self.records: list[Record] = []
        self.run_id: str | None = None
        self.attempt = 0
        self.agent = agent
        self.add(ThreadChanged(metadata={"purpose": "test"}), task=False)
        self.add(TaskCreated(task_id=TASK, agent=agent, stateful=stateful))

    def add(self, *events: Event, task: bool = True) -> "Log":
        for event in events:
            number = len(self.records) + 1
            run_id, attempt = (self.run_id, self.attempt) if task else (None, 0)
            task_id = TASK if task else None
            self.records.append(Record(number, T0 + number * 1000, task_id, run_id, attempt, event))
        return self

    def begin(self, *messages: Message, run_id: str = RUN, data: Any = None, **fields: Any) -> "Log":
        """Add a pending run."""
        self.run_id, self.attempt = run_id, 0
        return self.add(RunCreated(run_id=run_id, messages=messages, data=data, **fields))

    def start(self) -> "Log":
        self.attempt += 1
        return self.add(RunStarted(attempt=self.attempt, node=self.agent))

    def say(self, *pieces: str, message_id: str = "m1", **fields: Any) -> "Log":
        """Add one streamed message."""
        self.add(MessageStarted(message_id=message_id, **fields))
        self.add(PartAdded(message_id=message_id, index=0, part=TextPart(text=""), open=True))
        self.add(*(PartDelta(message_id=message_id, index=0, text=piece) for piece in pieces))
        return self.add(PartEnded(message_id=message_id, index=0), MessageEnded(message_id=message_id))

    def ask(self, *questions: InterruptRaised) -> "Log":
        self.add(*questions, RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT))
        return self.add(TaskChanged(state=TaskState.INPUT_REQUIRED))

    def end(self, **fields: Any) -> "Log":
        return self.add(RunEnded(**fields))

    @property
    def history(self) -> StateHistory:
        return StateHistory(THREAD, "alice", self.records)

    def run(self, run_id: str = RUN) -> Run:
        return self.history.fold.runs[run_id]

    def created(self, run_id: str = RUN) -> RunCreated:
        return next(r.event for r in self.records if isinstance(r.event, RunCreated) and r.event.run_id == run_id)

    def written(self, *modes: str, run_id: str | None = RUN, **fields: Any) -> list[tuple[str, Any]]:
        """Return event and data of all frames."""
        view = StreamParameters(thread_id=THREAD, owner="alice", run_id=run_id, modes=modes, **fields)
        return [(event, data) for event, _, data in frames(view, self.records)]


def interrupt(question: InterruptRaised) -> Interrupt:
    return Interrupt(
        interrupt_id=question.interrupt_id or "",
        task_id=TASK,
        run_id=RUN,
        ask=question.ask,
        message=question.message,
        raised_at=T0,
        value=question.value,
        answer_schema=question.answer_schema,
    )


def frames(view: StreamParameters, records: Iterable[Record]) -> list[tuple[str, str, Any]]:
    """Return event, id and data of each frame."""
    writer = EventWriter(view)
    return [_read(frame) for record in records for _, frame in small_frames(writer, record)]


def ids_of(view: StreamParameters, records: Iterable[Record]) -> dict[tuple[int, int], bytes]:
    writer = EventWriter(view)
    return {(record.seq, n): frame for record in records for n, frame in small_frames(writer, record)}


def small_frames(writer: EventWriter, record: Record) -> list[tuple[int, bytes]]:
    """Return the frames of a record, which must all be small."""
    encoded: list[tuple[int, bytes]] = []
    for number, frame in writer.write(record):
        assert isinstance(frame, bytes)
        encoded.append((number, frame))
    return encoded


def _read(frame: bytes) -> tuple[str, str, Any]:
    fields = dict(line.split(": ", 1) for line in frame.decode().rstrip("\n").split("\n"))
    return fields["event"], fields["id"], json.loads(fields["data"])
