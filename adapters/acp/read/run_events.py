"""Reading of the events of one run on another ACP server: conversion to canonical events."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.acp.codec.messages import decode_questions
from babelgate.adapters.acp.codec.parts import own_of
from babelgate.adapters.acp.errors import decode_error
from babelgate.adapters.acp.read.generic import GenericReader
from babelgate.adapters.acp.read.messages import MessageReader
from babelgate.adapters.acp.read.open_message import OpenWireMessage
from babelgate.adapters.acp.read.parts import PartReader
from babelgate.adapters.acp.read.run_state import RunState
from babelgate.adapters.acp.read.tools import ToolReader
from babelgate.adapters.kit.extension import URI, RecordReader, named_question
from babelgate.adapters.kit.json import validate
from babelgate.canonical import Event, FaultCode, FaultError, Feature, RunReason, RunStatus
from babelgate.canonical.event import InterruptRaised, Native, RunEnded, UpstreamBound
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

ACTIVATION: Final = "activation"
"""Key of an upstream id: the id of the run on a server that is another gateway. The key `run` has the id of its
task."""

_UNKNOWN_EVENT: Final = f"an event of a type that ACP {VERSION} does not have"
_TEXT_KEPT: Final = "text that an agent withdrew remains"
_MESSAGE_ALONE: Final = "only the message of an await request is read"


def decode_event(value: Json) -> w.Event:
    """Return an event of the wire as a model. Raises invalid for a value without a type, or with malformed members."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise FaultError(FaultCode.INVALID, "An event has no type.")
    return validate(w.EVENTS.get(kind, w.NativeEvent), value)


class EventReader:
    """Reader of one run's events, or of those after a resume. Messages, parts and generic events have readers in
    separate modules.

    `agent` is the server's name of the agent. `extended` is True if the Babelgate extension was requested.
    """

    def __init__(self, agent: str, *, extended: bool = False) -> None:
        self.records = RecordReader()
        self.is_recorded = False
        """True if the server has confirmed the Babelgate extension, or has sent records by it."""
        self.seen = 0
        """Number of wire events that were read."""
        self.stopped = False
        """True if the run waits for an answer or has ended."""
        self.run_id: str | None = None
        self._extended = extended
        self._bound: dict[str, str] = {}
        """Server's ids of the run, the session and the activation that were already reported, by their keys in
        `UpstreamBound.ids`."""
        run = self._run = RunState(agent)
        message, tools = OpenWireMessage(run), ToolReader(run)
        self._parts = PartReader(run, message, tools)
        self._generic = GenericReader(run, message)
        self._messages = MessageReader(message, self._parts, tools, self._generic)

    def bind(self, run_id: str, session_id: str | None = None) -> list[Event]:
        """Return the event with the server's ids of the run and, if known, its session. Return no event if the ids were
        reported before."""
        ids = {"run": run_id, **({"session": session_id} if session_id else {})}
        self.run_id = run_id
        if ids.items() <= self._bound.items():
            return []
        self._bound.update(ids)
        return [UpstreamBound(protocol="acp", ids=dict(self._bound))]

    def resume(self, run_id: str, session_id: str | None = None) -> list[Event]:
        """Return the event with the server's ids of a run that is resumed, as `bind` does. The messages in the final
        `run.*` event are then not read, because an earlier reader has read them."""
        self._run.has_output = True
        return self.bind(run_id, session_id)

    def read(self, event: w.Event) -> list[Event]:
        """Return the canonical events for one wire event. Raises agent_failed if the run has failed, and invalid if the
        event breaks the protocol."""
        self.seen += 1
        run = self._run
        run.events = []
        if not self._read_records(event):
            if self._generic.key is not None and not isinstance(event, w.GenericEvent):
                self._generic.end_pieces()
            self._READS[type(event)](self, event)
        return run.events

    def end(self, run: w.Run) -> list[Event]:
        """Return the last events of a run whose end is known from a run object, and not from an event. Raises
        agent_failed if the run has failed."""
        self._run.events = []
        self._end(run)
        return self._run.events

    # The Babelgate extension

    def _read_records(self, event: w.Event) -> bool:
        """Read the records in an event, if the server sends the records of the Babelgate extension. Return True if the
        run is read from its records, so that only ids and errors are read from other events."""
        if not self._extended or isinstance(event, w.ErrorEvent):
            return False
        if isinstance(event, w.GenericEvent) and URI in event.generic:
            for each in self.records.read(event.generic[URI]):
                self._run.events.append(named_question(each) if isinstance(each, InterruptRaised) else each)
            self.is_recorded = self.records.active
            self.stopped = self.records.stopped
        elif self.records.active and isinstance(event, w.RunEvent):
            self._run.events.extend(self.bind(event.run.run_id, event.run.session_id))
        if self.records.active:
            self._bind_activation()
        return self.records.active

    def _bind_activation(self) -> None:
        run_id = self.records.run_id
        if run_id is not None and "run" in self._bound and self._bound.get(ACTIVATION) != run_id:
            self._bound[ACTIVATION] = run_id
            self._run.events.append(UpstreamBound(protocol="acp", ids=dict(self._bound)))

    # Events of the wire

    def _read_run(self, event: w.RunEvent) -> None:
        run, state = event.run, self._run
        match event.type:
            # OpenAPI 0.2.0, components.schemas: RunCreatedEvent and kin, whose `run` is a snapshot.
            case "run.created":
                state.events.extend(self.bind(run.run_id, run.session_id))
                state.read_members(run)
            case "run.in-progress":
                state.read_members(run)
                if len(run.output) < self._messages.count:  # another Babelgate, whose agent has started over
                    self._messages.finish()
                    self._messages.count = len(run.output)
                    state.lose(Feature.TEXT, _TEXT_KEPT)
            case "run.awaiting":
                self._messages.finish()
                self.stopped = True
                state.read_members(run)
                self._ask(run.await_request)
                usage = as_object(own_of(run).get("usage"))
                if usage:
                    state.events.append(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=usage))
            case _:
                self._end(run)

    def _ask(self, await_request: JsonObject | None) -> None:
        questions = decode_questions(await_request, agent=self._run.agent)
        request = await_request or {}
        if isinstance(request.get("message"), dict):
            # SDK 1.0.3: MessageAwaitRequest has no more; components.schemas.AwaitRequest is any object.
            if request.keys() - {"type", "message", w.OWN}:
                self._run.lose(Feature.QUESTION, _MESSAGE_ALONE)
            for part in validate(w.Message, request["message"]).parts:
                self._parts.lose_metadata(part)
        self._run.events.extend(questions)

    def _end(self, run: w.Run) -> None:
        """Add the events for the end of the run that a run object shows. Raises agent_failed if the run has failed."""
        self.stopped = True
        self._messages.finish()
        events = self._run.events
        self._run.read_members(run)
        # components.schemas.RunStatus; these three are terminal in SDK 1.0.3 (models.py, RunStatus.is_terminal).
        match run.status:
            case "failed":
                raise FaultError.of(decode_error(run.error))
            case "cancelled":
                events.append(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
            case _:
                if not self._run.has_output:
                    for message in run.output:
                        self._messages.read_whole(message)
                members = own_of(run)
                usage, output = as_object(members.get("usage")), members.get("output")
                if usage or output is not None:
                    events.append(RunEnded(output=output, usage=usage))

    def _read_message(self, event: w.MessageEvent) -> None:
        self._messages.read(event)

    def _read_part(self, event: w.PartEvent) -> None:
        self._parts.read(event.part)

    def _read_generic(self, event: w.GenericEvent) -> None:
        self._generic.read(event)

    def _read_error(self, event: w.ErrorEvent) -> None:
        self.stopped = True
        self._messages.finish()
        raise FaultError.of(decode_error(event.error))

    def _read_unknown(self, event: w.NativeEvent) -> None:
        self._run.lose(Feature.CUSTOM, _UNKNOWN_EVENT)
        self._run.events.append(Native(protocol="acp", event=event.type, data=event.model_dump()))

    _READS: ClassVar[Mapping[type, Any]] = {
        w.RunEvent: _read_run,
        w.MessageEvent: _read_message,
        w.PartEvent: _read_part,
        w.GenericEvent: _read_generic,
        w.ErrorEvent: _read_error,
        w.NativeEvent: _read_unknown,
    }
