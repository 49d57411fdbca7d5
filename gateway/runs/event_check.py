"""Event validation: `EventValidator` checks and completes the events of an agent before they are stored in the log.

It fills in missing ids, and ends parts, messages, tools and steps that the agent left open. It refuses events that a
log cannot hold:

- events that only the hub may append
- deltas for parts that are not open
- values that are not JSON
- events over the size limit

So the log of a run is valid even if the agent misbehaves.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import msgspec

from babelgate.canonical.difference import DIFFERENCE_DEPTH, StateChange, state_change
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    Event,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    Record,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
    encode_event,
)
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.json import NotJson, check_json
from babelgate.canonical.message import DataPart, Part, ToolResultPart
from babelgate.canonical.state import RunReason, RunStatus
from babelgate.canonical.stored import decode_event
from babelgate.canonical.value import Extra, JsonObject, is_extra
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs.budget_question import QUESTION_NODE
from babelgate.gateway.storage.size import check_size

AnyEvent = TypeVar("AnyEvent", bound=Event)

_FREE = (LossNoted, UpstreamBound, Custom, Native)
_GROWING = ("text", "reasoning", "refusal", "tool_call")
"""Types of parts to which deltas can add text."""


@dataclass(slots=True)
class _Message:
    message_id: str
    parts: int = 0
    open_parts: dict[int, int] = field(default_factory=dict[int, int])
    """Number of characters in each open part, by index."""

    @property
    def newest(self) -> int | None:
        return next(reversed(self.open_parts), None)


class EventValidator:
    """Validator of one run's events, which also fills in their ids.

    Feed it the events in order. If the run had an earlier attempt, feed it the records of that attempt first.
    """

    def __init__(
        self, node: str, limit: int, new_id: Callable[[], str] = new_id, *, output_limit: int = 64 * 2**20
    ) -> None:
        self.node = node
        self.limit = limit
        """Maximum size of one event as JSON, in bytes, and of one part that arrives in deltas, in characters."""
        self.output_limit = output_limit
        """Maximum size of all events of the run together, in bytes."""
        self._size = 0
        """Size of the run's events so far as JSON, in bytes."""
        self.ended: RunEnded | None = None
        self._new_id = new_id
        self._messages: dict[str, _Message] = {}
        self._growing: tuple[_Message, int] | None = None
        """Newest message and the index of its newest open part, cached for deltas. None after any other event, until
        the next delta."""
        self._steps: dict[str, StepStarted] = {}
        self._tools: dict[str, ToolStarted] = {}
        # Dicts, not sets: an empty set takes 216 bytes of each silent run.
        self._artifacts: dict[str, None] = {}
        """Ids of the artifacts so far."""
        self._asked: dict[str, None] = {}
        """Ids of the questions so far."""
        self._saved: dict[tuple[str, ...], tuple[str, JsonObject]] = {}
        """Id and values of the last state for which the gateway chose the id, by namespace of the graph."""

    def replay(self, records: Iterable[Record]) -> None:
        """Continue from the records of an earlier attempt of the run: count their size, and note the messages, parts,
        tools and steps that they leave open."""
        for record in records:
            self._size += len(encode_event(record.event))
            if isinstance(record.event, _AGENT_EVENTS):
                self._keep(self._fill_ids(record.event))

    def record(self, event: Event) -> tuple[Event, bytes] | None:
        """Return an agent's event as the log stores it, and its JSON. Return None for `RunEnded`, which is kept in
        `ended` for the engine.

        Raises:
            FaultError: agent_invalid.
        """
        if self.ended is not None:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent sent {_kind(event)} after the end of its run")
        if type(event) is PartDelta:  # first: most events of a long answer are deltas
            return self.add_text(event) or self._record_delta(event)
        if isinstance(event, RunEnded):
            self.ended = self._end(event)
            return None
        try:
            filled = self._fill_ids(event)
        except (AttributeError, TypeError) as error:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent sent a malformed {_kind(event)}") from error
        entry = self._validate(filled)
        self._keep(filled)
        is_named = isinstance(event, StateSaved) and event.checkpoint_id is not None
        return (None if is_named else self._shorten_state(entry[0])) or entry

    def _shorten_state(self, saved: Event) -> tuple[Event, bytes] | None:
        """Return a saved state as its difference from the last one of its namespace in the run, with its JSON. Return
        None for other events, and if the difference is not shorter.

        Called only for states whose ids the agent did not choose, because an agent may use an id twice. The values were
        read back from JSON, so the agent may change its own object.
        """
        if not isinstance(saved, StateSaved) or saved.values is None:
            return None
        before = self._saved.get(saved.ns)
        self._saved[saved.ns] = (saved.checkpoint_id or "", saved.values)
        change = None if before is None else state_change(*before, saved.values)
        if change is None:
            return None
        shorter = saved.replace(values=None, change=change)
        return shorter, encode_event(shorter)

    def _record_delta(self, event: PartDelta) -> tuple[Event, bytes]:
        try:
            filled, message = self._delta(event)
        except (AttributeError, TypeError) as error:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent sent a malformed part_delta") from error
        entry = self._validate(filled)
        message.open_parts[filled.index or 0] += len(filled.text)
        return entry

    def add_text(self, event: PartDelta) -> tuple[Event, bytes] | None:
        """Return a delta for the log with its JSON, as `record` does, but only if it just adds text to the newest part.
        Return None for any other event, which `record` may accept or refuse.

        This is a fast path for nearly all deltas. Everything except their text then comes from the gateway, and text
        that can be encoded can be decoded. It takes 0.8 µs, and the checks for any event take 1.8 to 2.2 µs (Python
        3.11.7, msgspec 0.22.0, 2026-11-26).
        """
        growing = self._growing or self._find_growing()
        if growing is None or self.ended is not None:
            return None
        message, index = growing
        message_id, text = message.message_id, event.text
        try:
            if (
                type(text) is not str
                or event.extra
                or (event.message_id is not None and event.message_id != message_id)
                or (event.index is not None and event.index != index)
            ):
                return None
            filled = PartDelta(message_id=message_id, index=index, text=text)
            body = encode_event(filled)
        except (AttributeError, TypeError, UnicodeEncodeError):
            return None
        length, size = message.open_parts[index] + len(text), len(body)
        if length > self.limit or size > self.limit or self._size + size > self.output_limit:
            return None
        message.open_parts[index] = length
        self._size += size
        return filled, body

    def _find_growing(self) -> tuple[_Message, int] | None:
        message = next(reversed(self._messages.values()), None)
        newest = None if message is None else message.newest
        if message is not None and newest is not None:
            self._growing = message, newest
        return self._growing

    def _end(self, event: RunEnded) -> RunEnded:
        """Return the agent's `RunEnded` for the log. The agent chooses the status, and the gateway derives the reason
        from it. Raises agent_invalid for `paused` without an open question, and for a status that does not end a
        run."""
        event, _ = self._validate(event)
        fault = event.fault
        match event.status:
            case RunStatus.SUCCESS:
                reason, fault = RunReason.DONE, None
            case RunStatus.PAUSED if self._asked:
                return event.replace(status=RunStatus.SUCCESS, reason=RunReason.DONE, fault=None)
            case RunStatus.CANCELLED:
                reason = RunReason.CALLER
            case RunStatus.ERROR | RunStatus.TIMEOUT:
                reason = RunReason.FAULT
                fault = fault or Fault(code=FaultCode.AGENT_FAILED, message="The agent failed")
            case status:
                raise FaultError(FaultCode.AGENT_INVALID, f"The agent ended its run as {status} with no open question")
        return event.replace(reason=reason, fault=fault)

    def close(self, messages: Collection[str] | None = None) -> list[tuple[Event, bytes]]:
        """Return the events that end the open parts, messages, tools and steps, each with its JSON.

        `messages` are the ids of the messages to end, with their parts; None ends all messages. Tools and steps are
        ended in any case.
        """
        closing: list[Event] = []
        for message in [each for each in self._messages.values() if messages is None or each.message_id in messages]:
            closing += [PartEnded(message_id=message.message_id, index=i) for i in message.open_parts]
            closing.append(MessageEnded(message_id=message.message_id))
            del self._messages[message.message_id]
        self._growing = None
        for call_id, tool in self._tools.items():
            fault = Fault(code=FaultCode.AGENT_FAILED, message="The run ended before the tool answered")
            closing.append(ToolEnded(call_id=call_id, name=tool.name, fault=fault))
        self._tools.clear()
        closing += [
            StepEnded(step_id=step_id, name=step.name, node=step.node, ns=step.ns)
            for step_id, step in self._steps.items()
        ]
        self._steps.clear()
        return [(event, encode_event(event)) for event in closing]

    def _validate(self, event: AnyEvent) -> tuple[AnyEvent, bytes]:
        """Return the event as readers of the log will decode it, and its JSON. Raises agent_invalid for an event that
        violates the model, is not JSON, or exceeds a size limit.

        The JSON is decoded again at once, because an agent can change an event so that it violates its model. Such an
        event could be stored, and would make the log unreadable. For a token, this takes 0.3 of 0.73 µs (Python 3.11.7,
        msgspec 0.22.0, 2026-11-26).
        """
        try:
            if isinstance(event, PartDelta):  # `_delta` has checked its size
                _check_extra(event.extra)
            else:
                _check_event(event)
                self._check_size(event)
            body = encode_event(event)
            event = cast("AnyEvent", decode_event(body))
        except msgspec.ValidationError as error:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent sent a malformed {_kind(event)}: {error}") from error
        except NotJson as error:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent sent {error}") from error
        except (RecursionError, ValueError, AttributeError, TypeError) as error:
            text = f"The agent sent a {_kind(event)} that lacks required fields or is not JSON"
            raise FaultError(FaultCode.AGENT_INVALID, text) from error
        if len(body) > self.limit:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent sent a {event.kind} that is larger than the limit of {self.limit} bytes",
            )
        if self._size + len(body) > self.output_limit:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The events of the run are larger than the limit of {self.output_limit} bytes (limits.output)",
            )
        self._size += len(body)
        return event, body

    def _check_size(self, event: Event) -> None:
        """Check that an event is within the size limit before it is encoded, because encoding takes longer. Raises
        agent_invalid if it is larger."""
        try:
            check_size(self.limit, event)
        except FaultError as error:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent sent a {event.kind} that is larger than the limit of {self.limit} bytes",
            ) from error

    def _fill_ids(self, event: Event) -> Event:
        """Return the event with the ids that the agent has left out. Raises agent_invalid if the event may not follow
        the earlier ones."""
        match event:
            case PartDelta():
                return self._delta(event)[0]
            case MessageStarted() | PartAdded() | PartEnded() | MessageEnded():
                return self._message_event(event)
            case ToolStarted() | ToolEnded() | StepStarted() | StepEnded():
                return self._activity(event)
            case ArtifactAdded():
                return self._artifact(event)
            case InterruptRaised():
                return self._question(event)
            case StateSaved():
                return event if event.checkpoint_id else event.replace(checkpoint_id=self._new_id())
            case _ if isinstance(event, _FREE):
                return event
            case _:
                raise FaultError(
                    FaultCode.AGENT_INVALID, f"The agent sent a {_kind(event)}, which only the gateway may append"
                )

    def _message_event(self, event: MessageStarted | PartAdded | PartEnded | MessageEnded) -> Event:
        match event:
            case MessageStarted():
                message_id = event.message_id or self._new_id()
                if message_id in self._messages:
                    raise FaultError(FaultCode.AGENT_INVALID, f"The agent opened message {message_id} twice")
                return event.replace(message_id=message_id, node=event.node or self.node)
            case PartAdded():
                message = self._message(event.message_id, event.kind)
                if event.open and event.part.kind not in _GROWING:
                    raise FaultError(FaultCode.AGENT_INVALID, f"The agent sent an open {event.part.kind} part")
                return event.replace(message_id=message.message_id, index=message.parts)
            case PartEnded():
                message = self._message(event.message_id, event.kind)
                index = message.newest if event.index is None else event.index
                if index is None or index not in message.open_parts:
                    raise FaultError(FaultCode.AGENT_INVALID, "The agent ended a part that is not open")
                return event.replace(message_id=message.message_id, index=index)
            case MessageEnded():
                message = self._message(event.message_id, event.kind)
                if message.open_parts:
                    raise FaultError(FaultCode.AGENT_INVALID, "The agent ended a message with an open part")
                return event.replace(message_id=message.message_id)

    def _question(self, event: InterruptRaised) -> Event:
        message = event.message
        if message.message_id is None:
            message = message.replace(message_id=self._new_id())
        interrupt_id = event.interrupt_id or self._new_id()
        if interrupt_id in self._asked:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent asked question {interrupt_id} twice")
        node = event.node if event.node != QUESTION_NODE else ""  # that of the gateway's own questions
        return event.replace(interrupt_id=interrupt_id, message=message, node=node or self.node)

    def _keep(self, event: Event) -> None:
        """Note the messages, parts, tools and steps that an event opens or ends. The event has its ids."""
        if isinstance(event, PartDelta):
            self._messages[event.message_id or ""].open_parts[event.index or 0] += len(event.text)
            return
        self._growing = None
        match event:
            case MessageStarted() | PartAdded() | PartEnded() | MessageEnded():
                self._keep_message(event)
            case ToolStarted():
                self._tools.setdefault(event.call_id or "", event)
            case ToolEnded():
                del self._tools[event.call_id or ""]
            case StepStarted():
                self._steps.setdefault(event.step_id or "", event)
            case StepEnded():
                del self._steps[event.step_id or ""]
            case ArtifactAdded():
                self._artifacts[event.artifact_id or ""] = None
            case InterruptRaised():
                self._asked[event.interrupt_id or ""] = None
            case _:
                pass

    def _keep_message(self, event: MessageStarted | PartAdded | PartEnded | MessageEnded) -> None:
        message_id = event.message_id or ""
        match event:
            case MessageStarted():
                self._messages[message_id] = _Message(message_id)
            case PartAdded():
                message = self._messages[message_id]
                message.parts += 1
                if event.open:
                    message.open_parts[event.index or 0] = 0
            case PartEnded():
                del self._messages[message_id].open_parts[event.index or 0]
            case MessageEnded():
                del self._messages[message_id]

    def _message(self, message_id: str | None, kind: str) -> _Message:
        """Return the open message with an id, or the newest one for None. Raises agent_invalid if there is none; `kind`
        is that of the event, for the error."""
        if message_id is None and self._messages:
            return next(reversed(self._messages.values()))
        message = self._messages.get(message_id or "")
        if message is None:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent sent a {kind} outside an open message")
        return message

    def _delta(self, event: PartDelta) -> tuple[PartDelta, _Message]:
        """Fill in the missing ids of a delta. Return the event, and the open message that it belongs to."""
        message = self._message(event.message_id, "part_delta")
        index = event.index
        if index is None:
            index = message.newest
        if index is None or index not in message.open_parts:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent sent a part_delta for a part that is not open")
        if message.open_parts[index] + len(event.text) > self.limit:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent sent a part in pieces that together are larger than the limit of {self.limit} bytes",
            )
        filled = PartDelta(extra=event.extra, message_id=message.message_id, index=index, text=event.text)
        return filled, message

    def _activity(self, event: ToolStarted | ToolEnded | StepStarted | StepEnded) -> Event:
        match event:
            case ToolStarted():
                return event.replace(call_id=event.call_id or self._new_id(), node=event.node or self.node)
            case StepStarted():
                return event.replace(step_id=event.step_id or self._new_id(), node=event.node or self.node)
            case ToolEnded():
                call_id = event.call_id or next((i for i, t in self._tools.items() if t.name == event.name), None)
                if call_id is None or call_id not in self._tools:
                    raise FaultError(
                        FaultCode.AGENT_INVALID, f"The agent ended tool {event.name}, which it had not started"
                    )
                return event.replace(call_id=call_id)
            case StepEnded():
                step_id = event.step_id or next((i for i, s in self._steps.items() if s.name == event.name), None)
                if step_id is None or step_id not in self._steps:
                    raise FaultError(
                        FaultCode.AGENT_INVALID, f"The agent ended step {event.name}, which it had not started"
                    )
                return event.replace(step_id=step_id, node=event.node or self.node)

    def _artifact(self, event: ArtifactAdded) -> ArtifactAdded:
        artifact_id = event.artifact_id or self._new_id()
        if event.append and artifact_id not in self._artifacts:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent appended to an artifact that it had not begun")
        return event.replace(artifact_id=artifact_id, origin="agent")


_AGENT_EVENTS = (
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    MessageEnded,
    ToolStarted,
    ToolEnded,
    StepStarted,
    StepEnded,
    ArtifactAdded,
    InterruptRaised,
)


def _kind(event: object) -> str:
    return str(getattr(event, "kind", type(event).__name__))


def _check_event(event: Event) -> None:
    """Check that all fields that may have any JSON value contain JSON: the encoder would store other objects in another
    form. Raises agent_invalid if a field contains anything else."""
    match event:
        case PartAdded():
            _check_part(event.part)
        case ArtifactAdded():
            _check_part(event.part)
            check_json(event.metadata)
        case MessageStarted() if event.metadata:
            check_json(event.metadata)
        case MessageEnded() if event.usage:
            check_json(event.usage)
        case InterruptRaised():
            check_json(event.value)
            check_json(event.answer_schema)
            check_json(event.message.metadata)
            _check_extra(event.message.extra)
            for part in event.message.parts:
                _check_part(part)
        case Custom():
            check_json(event.value)
        case RunEnded():
            check_json(event.output)
            check_json(event.usage)
        case ToolStarted() | ToolEnded() | StepStarted() | StepEnded():
            _check_activity(event)
        case StateSaved():
            check_json(event.values)
            check_json(event.delta)
            _check_change(event.change)
        case Native():
            check_json(event.data)
            _check_change(event.change)
        case _:
            pass
    _check_extra(event.extra)


def _check_activity(event: ToolStarted | ToolEnded | StepStarted | StepEnded) -> None:
    match event:
        case ToolStarted():
            check_json(event.input)
        case ToolEnded():
            check_json(event.output)
        case StepStarted():
            check_json(event.input)
            _check_change(event.input_change)
        case StepEnded():
            check_json(event.update)


def _check_extra(extra: Extra) -> None:
    if not extra:
        return
    check_json(dict(extra))
    if not is_extra(extra):
        raise NotJson("a member of `extra` that is neither a JSON object nor null")


def _check_change(change: StateChange | None) -> None:
    if change is not None:
        check_json(change.new, deepest=DIFFERENCE_DEPTH)


def _check_part(part: Part) -> None:
    if isinstance(part, DataPart):
        check_json(part.data)
    elif isinstance(part, ToolResultPart):
        check_json(part.output)
    if part.metadata:
        check_json(part.metadata)
    _check_extra(part.extra)
