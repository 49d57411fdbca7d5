"""Conversion of records to the events of an ACP run, and to the run object that each `run.*` event contains."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, cast

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import OF_RUN, encode_questions, requested_agent
from babelgate.adapters.acp.codec.parts import EncodingContext, extra_of
from babelgate.adapters.acp.errors import encode_error
from babelgate.adapters.acp.write.messages import MessageEncoder
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import Feature, Record, TaskState
from babelgate.canonical.event import (
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    Native,
    PartDelta,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskChanged,
    TaskCreated,
)
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Extra, JsonObject

STATUSES: Final[Mapping[TaskState, w.Status]] = {
    TaskState.SUBMITTED: "created",
    TaskState.WORKING: "in-progress",
    TaskState.INPUT_REQUIRED: "awaiting",
    TaskState.AUTH_REQUIRED: "awaiting",
    TaskState.CANCELLING: "cancelling",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.REJECTED: "failed",
    TaskState.CANCELLED: "cancelled",
}

EVENTS: Final[Mapping[w.Status, Any]] = {
    "in-progress": "run.in-progress",
    "awaiting": "run.awaiting",
    "completed": "run.completed",
    "failed": "run.failed",
    "cancelled": "run.cancelled",
}
"""Types of the events that report a new status. The status `cancelling` has no event: the stream continues until
`run.cancelled`."""


def _unknown(extra: Extra, model: type[w.Run] | w.GenericEvent) -> JsonObject:
    """Return the members in `extra` that an ACP peer sent and the model does not define."""
    fields = model.model_fields if isinstance(model, type) else type(model).model_fields
    return {name: value for name, value in extra_of(extra).items() if name not in fields}


class EventWriter:
    """Writer of one ACP run. All records of its task must be written in order; those of the tasks that continue it may
    follow."""

    def __init__(self, view: EncodingContext) -> None:
        self.view = view
        self.status: w.Status = "created"
        self.run_id: str | None = None
        """Id of the newest run in the gateway. None before the first run. The run id of ACP is that of the task."""
        self._created_at: str | None = None
        self._finished_at: str | None = None
        self._error: w.Error | None = None
        self._questions: dict[str, tuple[InterruptRaised, int]] = {}
        self._noted_losses: dict[Loss, None] = {}
        """Losses in the log: those that occurred when the gateway read the agent's server."""
        self._encoder = MessageEncoder(view)
        self._unknown: JsonObject = {}
        """Members of the run that ACP does not define, from the agent's own ACP server."""
        self._own_members: JsonObject = {}
        """Members that ACP does not define, from the gateway: `metadata`, `output` and `usage`."""

    @property
    def has_stopped(self) -> bool:
        """True if the run waits for an answer or has ended. Then `sync` requests get their response, and streams
        end."""
        return self.status == "awaiting" or self.status in w.TERMINAL

    @property
    def output(self) -> list[w.Message]:
        """Messages of the run that are complete."""
        return self._encoder.output

    @property
    def losses(self) -> Iterable[Loss]:
        """Losses of the run in its event stream: those in the log, then those of features that ACP does not carry
        whole."""
        return (*self._noted_losses, *self._encoder.losses)

    @property
    def run_losses(self) -> Iterable[Loss]:
        """Losses of the run in the run object: all `losses`, and features that only the event stream shows."""
        return (*self.losses, *self._encoder.streamed_losses)

    def run(self) -> w.Run:
        """Return the run as of the last record that was written."""
        questions = tuple(self._questions.values()) if self.status == "awaiting" else ()
        run = w.Run(
            run_id=self.view.run_id,
            agent_name=self.view.agent,
            session_id=self.view.session_id,
            status=self.status,
            await_request=encode_questions(questions, self.view) if questions else None,
            # A snapshot of this moment, with the open messages, as SDK 1.0.3 sends it.
            output=self._encoder.all_messages(),
            error=self._error,
            created_at=self._created_at,
            finished_at=self._finished_at,
        )
        own_members = {name: value for name, value in self._own_members.items() if value}
        more = {**self._unknown, **({w.OWN: own_members} if own_members else {})}
        return run.model_copy(update=more) if more else run

    def answer(self) -> w.Run:
        """Return the run for a response that is not a stream. A subclass adds the records of the Babelgate
        extension."""
        return self.run()

    def write(self, record: Record) -> list[w.Event]:
        """Apply a record, and return the wire events for it."""
        events: list[w.Event] = []
        self._encoder.events = events
        self._write(record)
        return events

    def apply(self, record: Record) -> None:
        """Apply a record without creating the wire events for it."""
        self._encoder.events = None
        self._write(record)

    def _write(self, record: Record) -> None:
        self._encoder.at, self._encoder.run_id = record.at, record.run_id
        write = self._WRITES.get(type(record.event))
        if write is None:
            self._encoder.write(record.event)
        else:
            write(self, record.event)

    def add_texts(self, record: Record, texts: Sequence[str]) -> str | None:
        """Apply the records of a passage, which add `texts` to one part (`babelgate.adapters.kit.server.passages`).
        `record` is the first of them. Return the content type of the parts. Return None, and change nothing, if each
        record must be written separately."""
        if self.has_stopped or type(record.event) is not PartDelta:
            return None
        self._encoder.at, self._encoder.run_id = record.at, record.run_id
        return self._encoder.add_texts(record.event, texts)

    def _emit_run(self, type: Any) -> None:
        self._encoder.emit(lambda: w.RunEvent(type=type, run=self.run()))

    def _task_created(self, event: TaskCreated) -> None:
        # components.schemas.Run has no metadata.
        if event.metadata and event.protocol != "acp":
            self._encoder.lose(Feature.METADATA)
        self._own_members["metadata"] = {**self._own_members.get("metadata", {}), **event.metadata}
        if self._created_at is None:
            self._created_at = encode_time(self._encoder.at)
            return
        # "Depending on agent implementation, the run could be continued, in which case it may return to the in-progress
        # state from one of the terminal states": here, a further task continues the run, and is shown under the id of
        # the first one.
        self._finished_at = None
        self._error = None
        self._become("in-progress")

    def _run_created(self, event: RunCreated) -> None:
        if self.run_id is None:
            requested_name = requested_agent(event.extra)
            if requested_name is not None:
                self.view = self._encoder.view = replace(self.view, agent=requested_name)
            self._emit_run("run.created")
        self.run_id = event.run_id
        self._own_members = {"metadata": self._own_members.get("metadata")}

    def _run_started(self, event: RunStarted) -> None:
        """Remove the output that a restart of the run voids, and emit the run without it. Do nothing at a first
        start."""
        if event.is_restart and self._encoder.start_over(event) and self.status == "in-progress":
            self._emit_run("run.in-progress")

    def _task_changed(self, event: TaskChanged) -> None:
        status = STATUSES[event.state]
        if status in w.TERMINAL:
            self._finished_at = encode_time(self._encoder.at)
            self._questions.clear()
        if status == "failed":
            self._error = encode_error(event.fault)
        self._become(status)

    def _become(self, status: w.Status) -> None:
        if status == self.status:
            return
        if status in EVENTS:
            # Unlike in SDK 1.0.3, no message stays open across an await, because other protocols end their messages
            # there. An agent that is being cancelled, for which there is no event, may still complete its message.
            self._encoder.close()
        self.status = status
        if status in EVENTS:
            self._emit_run(EVENTS[status])

    def _run_ended(self, event: RunEnded) -> None:
        if event.output is not None:
            self._encoder.lose(Feature.STRUCTURED_OUTPUT)
        self._own_members |= {"output": event.output, "usage": event.usage}
        self._encoder.end(event.output)

    def _add_question(self, event: InterruptRaised) -> None:
        if self._questions:
            self._encoder.lose(Feature.QUESTIONS)
        if event.answer_schema is not None:
            self._encoder.lose(Feature.ANSWER_SCHEMA)
        if event.ask == "auth":
            # components.schemas.RunStatus has no state for it.
            self._encoder.lose(Feature.AUTH_REQUEST)
        self._questions[event.interrupt_id or ""] = (event, self._encoder.at)

    def _remove_question(self, event: InterruptAnswered) -> None:
        self._questions.pop(event.interrupt_id, None)

    def _loss_noted(self, event: LossNoted) -> None:
        self._noted_losses[Loss(feature=event.feature, how=event.how)] = None

    def _custom(self, event: Custom) -> None:
        self._encoder.lose(Feature.CUSTOM)
        generic = event.value if not event.name and isinstance(event.value, dict) else None
        generic_event = w.GenericEvent(
            generic={"name": event.name, "value": event.value} if generic is None else generic
        )
        self._encoder.emit(lambda: generic_event.model_copy(update=_unknown(event.extra, generic_event)))

    def _native(self, event: Native) -> None:
        if event.protocol == "acp" and event.event == "message.created":
            name = event.data.get("name") if isinstance(event.data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            self._encoder.begin(name if isinstance(name, str) else None, event.extra)
        elif event.protocol == "acp" and event.event == "message.completed":
            self._encoder.close(event.extra)
        elif event.protocol == "acp" and event.event == "generic" and isinstance(event.data, dict):
            self._encoder.lose(Feature.CUSTOM)
            generic_event = w.GenericEvent(generic=cast("JsonObject", event.data))  # pyright: ignore[reportUnknownMemberType]
            self._encoder.emit(lambda: generic_event.model_copy(update=_unknown(event.extra, generic_event)))
        elif event.protocol == "acp" and event.event == OF_RUN and event.data is None:
            self._unknown = _unknown(event.extra, w.Run)
        elif event.protocol == "acp" and isinstance(event.data, dict) and event.event not in w.EVENTS:
            data = cast("JsonObject", event.data)  # pyright: ignore[reportUnknownMemberType]
            self._encoder.emit(lambda: w.NativeEvent.model_validate({**data, "type": event.event}))

    _WRITES: ClassVar[Mapping[type, Any]] = {
        TaskCreated: _task_created,
        RunCreated: _run_created,
        RunStarted: _run_started,
        TaskChanged: _task_changed,
        RunEnded: _run_ended,
        InterruptRaised: _add_question,
        InterruptAnswered: _remove_question,
        LossNoted: _loss_noted,
        Custom: _custom,
        Native: _native,
    }
