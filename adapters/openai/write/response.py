"""Conversion of a task's records to one response: the output of one run, whole, or as the events of a stream."""

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.carries import RESPONSES
from babelgate.adapters.openai.codec.model import encode_response_usage
from babelgate.adapters.openai.wire.replies import MIRRORED
from babelgate.adapters.openai.write.call_items import CallItemWriter
from babelgate.adapters.openai.write.items import ItemWriter
from babelgate.adapters.openai.write.message_items import MessageItemWriter
from babelgate.adapters.openai.write.mirrored_items import MirrorWriter
from babelgate.adapters.openai.write.question_items import QuestionItemWriter
from babelgate.adapters.openai.write.response_state import ResponseState
from babelgate.adapters.openai.write.run_losses import RunLosses
from babelgate.adapters.openai.write.stream_events import StreamEvents
from babelgate.canonical import Event, Fault, Feature, Record, RunStatus
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject


class ResponseWriter:
    """Writer of one response. It needs the records of a task, from the first one on.

    The output of the run goes into the response. Of other runs, the writer reads only the questions and calls.
    Messages, calls, questions and the upstream's events have separate writers.
    """

    def __init__(self, task_id: str, agent: str, run_id: str) -> None:
        self.has_ended = False
        self.created: RunCreated | None = None
        """Request of the response, once the run is created."""
        self.metadata: JsonObject | None = None
        """Current metadata of the run; None means those of its request."""
        self._run_id = run_id
        self._events = StreamEvents()
        self._items = ItemWriter(self._events.emit)
        self._losses = RunLosses(RESPONSES)
        self._state = ResponseState(run_id, agent)
        self._questions = QuestionItemWriter(task_id, run_id, self._items, self._losses)
        self._calls = CallItemWriter(agent, self._items, self._events, self._losses)
        self._messages = MessageItemWriter(self._items, self._calls, self._losses)
        self._mirror = MirrorWriter(self._items, self._messages, self._events)

    # Reading

    @property
    def status(self) -> str:
        """Status of the response."""
        return self._state.status

    @property
    def fault(self) -> Fault | None:
        """Reason for the failure of the run; None if it did not fail or has not ended."""
        return self._state.fault

    @property
    def is_over(self) -> bool:
        """True if the response will not change any more. A question of an ended run may still be withdrawn."""
        return self._state.is_over

    @property
    def output(self) -> Json:
        """Structured output of the run."""
        return self._state.output

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses so far."""
        return self._losses.all()

    @property
    def text(self) -> str:
        """Text of the answer, without refusals."""
        return self._items.text()

    @property
    def has_to_fit(self) -> bool:
        """True if the answer must match the requested schema. A refusal, a question and an incomplete answer need
        not."""
        return self.status == "completed" and self._state.finish == "stop" and not self._messages.has_refused

    @property
    def has_called(self) -> bool:
        """True if a call of the caller's tool waits for its result."""
        return self._state.finish == "calls" and self._questions.open.has_call

    @property
    def has_failed_there(self) -> bool:
        """True if another server of this API answered with a response that failed, and not with an error."""
        return self._state.has_upstream_failed

    def items(self) -> list[tuple[JsonObject, str | None]]:
        """Return the output items, each with the id of the message that it belongs to."""
        return [(item.show(), item.message_id) for item in self._items.items if not item.is_void]

    def response(self) -> JsonObject:
        """Return the response as it is now."""
        losses = self.losses if self.has_ended else ()
        return self._state.encode(self._items.output(), self._mirror.about, self.metadata, losses)

    # Writing

    def write(self, record: Record) -> list[JsonObject]:
        """Return the events that a record adds to the stream. `end` returns the last event."""
        event = record.event
        if self.has_ended:
            self._state.follow(event)
            return []
        is_own = record.run_id == self._run_id
        if type(event) is PartDelta:  # first: most records of a long answer are deltas
            if is_own:
                self._messages.add_delta(event)
            return self._events.take()
        self._questions.open.read(event)
        self._calls.remember(event)
        if is_own:
            self._write_own(record, event)
        return self._events.take()

    def end(self, fault: Fault | None = None) -> list[JsonObject]:
        """Return the last event. `fault`: error in an answer that the agent gave as a success, if there is one."""
        if fault is not None:
            self._state.fail(fault)
        # SPEC/responses/response_stream_event.py has no event for a cancelled response.
        kind = "incomplete" if self.status == "cancelled" else self.status
        self._events.emit(f"response.{kind}", {"response": self.response()})
        return self._events.take()

    def _write_own(self, record: Record, event: Event) -> None:
        match event:
            case PartAdded() | PartEnded() | MessageStarted() | MessageEnded():
                self._messages.write(event)
            case ToolStarted():
                self._calls.start_tool(event)
            case ToolEnded():
                self._calls.end_tool(event)
            case Native():
                self._mirror.write(event)
            case LossNoted() | ArtifactAdded() if MIRRORED in event.extra:
                pass
            case StepStarted() | StepEnded() | Custom() | LossNoted() | ArtifactAdded():
                self._losses.read(event)
            case RunCreated():
                self._begin(record, event)
            case RunStarted():
                self._start(event)
            case RunEnded():
                self._end_run(record, event)
            case _:
                pass

    def _begin(self, record: Record, event: RunCreated) -> None:
        self.created = event
        self._questions.open.begin(event)
        self._state.begin(record, event)
        status = "queued" if self._state.request_members.get("background") is True else "in_progress"
        self._events.emit("response.created", {"response": {**self.response(), "status": status}})

    def _start(self, event: RunStarted) -> None:
        if self.status == "queued":
            self._state.status = "in_progress"
            self._events.emit("response.in_progress", {"response": self.response()})
        if event.is_restart:
            self._items.withdraw(event)
            self._messages.drop_void(event.void)
            self._calls.drop_void()

    def _end_run(self, record: Record, event: RunEnded) -> None:
        self._items.finish_all()
        usage = encode_response_usage(event.usage or self._messages.tracker.usage)
        self._state.usage = usage | (self._mirror.about.get("usage") or {})
        self._state.end(record, event, self._messages.incomplete_reason)
        if event.status is RunStatus.SUCCESS and event.output is not None:
            self._write_output(event.output)
        elif event.status is RunStatus.PAUSED:
            self._questions.write_open()
        self.has_ended = True

    def _write_output(self, output: Json) -> None:
        """Write structured output as text, unless the agent has shown it as data."""
        if self._messages.tracker.has_shown(output):
            return
        self._losses.note(Feature.STRUCTURED_OUTPUT)
        if not self._items.has_message:
            self._items.add_answer(f"{self._run_id}_output", json_text(output))
