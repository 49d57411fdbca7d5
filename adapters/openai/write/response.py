"""Conversion of a task's records to one response, which shows the output of one run: whole, or as the events of a
stream."""

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
    """Writer of the response that shows the run `run_id`. It must receive the records of the run's task from the first
    one on.

    Of other runs of the task, it reads only the questions and calls. Messages, calls, questions and the upstream's
    mirrored events have separate writers.
    """

    def __init__(self, task_id: str, agent: str, run_id: str) -> None:
        self.has_ended = False
        self.created: RunCreated | None = None
        """Event that created the run, with its request. None: not read yet."""
        self.metadata: JsonObject | None = None
        """Metadata of the run, if they were read from its row; a caller may have changed them. None: those in the
        request."""
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
        """Status of the response, such as `in_progress`."""
        return self._state.status

    @property
    def fault(self) -> Fault | None:
        """Fault of the run, or None if it has not failed."""
        return self._state.fault

    @property
    def is_over(self) -> bool:
        """True if no later record can change the response. After a stop for a question, the task can still be
        cancelled."""
        return self._state.is_over

    @property
    def output(self) -> Json:
        """Structured output of the run, or None."""
        return self._state.output

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses of the run so far."""
        return self._losses.all()

    @property
    def text(self) -> str:
        """Text of the answer so far, without refusals."""
        return self._items.text()

    @property
    def has_to_fit(self) -> bool:
        """True if the answer must match the requested schema: the run has succeeded, without a refusal, a question or a
        limit."""
        return self.status == "completed" and self._state.finish == "stop" and not self._messages.has_refused

    @property
    def has_called(self) -> bool:
        """True if the run has stopped for a call of one of the caller's tools."""
        return self._state.finish == "calls" and self._questions.open.has_call

    @property
    def has_failed_there(self) -> bool:
        """True if the upstream returned a response with the status `failed`. The caller then gets such a response, too,
        and no HTTP error."""
        return self._state.has_upstream_failed

    def items(self) -> list[tuple[JsonObject, str | None]]:
        """Return the output items as JSON, each with the id of the canonical message that it shows, or None."""
        return [(item.show(), item.message_id) for item in self._items.items if not item.is_void]

    def response(self) -> JsonObject:
        """Return the response object as JSON, from the records read so far."""
        losses = self.losses if self.has_ended else ()
        return self._state.encode(self._items.output(), self._mirror.about, self.metadata, losses)

    # Writing

    def write(self, record: Record) -> list[JsonObject]:
        """Read a record, and return the events that it adds to the stream. The last event comes from `end`."""
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
        """Return the last event of the stream. `fault`: fault found in the answer of a run that succeeded, or None."""
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
        """Write the run's structured output as a message with its JSON, unless the agent has shown it or has sent
        messages."""
        if self._messages.tracker.has_shown(output):
            return
        self._losses.note(Feature.STRUCTURED_OUTPUT)
        if not self._items.has_message:
            self._items.add_answer(f"{self._run_id}_output", json_text(output))
