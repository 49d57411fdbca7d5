"""Encoder of yielded values: converts the values that an in-process agent yields or returns into events.

Tokens extend one open message, and all other values are complete. The encoder closes everything that it has opened
before a question and at the end. So the same values produce the same events when they are replayed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar, cast, get_args
from uuid import NAMESPACE_URL, uuid5

import msgspec
from pydantic import BaseModel

from babelgate.canonical import (
    Artifact,
    Ask,
    DataPart,
    Event,
    FaultCode,
    FaultError,
    Message,
    Part,
    Step,
    TextPart,
    ToolCall,
    ToolCallPart,
    UseTool,
)
from babelgate.canonical.event import (
    AgentEvent,
    ArtifactAdded,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    whole_message,
)
from babelgate.canonical.json import MAX_BITS, MAX_DEPTH, MAX_VALUES, is_number, is_text
from babelgate.canonical.value import Json, Value

V = TypeVar("V", bound=Value)

_ENVELOPE = 4
"""Nesting levels that a canonical value adds around the author's data: message, parts, part, data."""

_PARTS = get_args(Part)
_RAW: tuple[type[AgentEvent | RunEnded], ...] = (*get_args(AgentEvent), RunEnded)
"""Types of events that an agent may yield."""
_OF_THE_GATEWAY = tuple(set(get_args(Event)) - set(_RAW))
_QUESTION_TYPES = (Ask, UseTool, InterruptRaised)
_SAYABLE = (Message, Artifact, Step, ToolCall, *_PARTS, *_RAW)


def _all(items: object, kinds: tuple[type, ...]) -> bool:
    """Return True if an object is a non-empty list or tuple whose members all have one of these types."""
    if not isinstance(items, list | tuple):
        return False
    members = cast("Sequence[object]", items)
    return bool(members) and all(isinstance(member, kinds) for member in members)


def _invalid(what: str) -> FaultError:
    return FaultError(FaultCode.AGENT_INVALID, f"The agent yielded {what}.")


def check_text(text: str) -> str:
    """Return the text. Raises agent_invalid if it has a lone surrogate."""
    if not is_text(text):
        raise _invalid("text with a lone surrogate, which is not valid Unicode")
    return text


def as_json(value: object, depth: int = 0) -> Json:
    """Return a copy of `value` as JSON, with models and dataclasses as objects.

    Raises:
        FaultError: agent_invalid, naming the type, if a value has no form in JSON.
    """
    return _Copy().of(value, depth)


def _check_value(value: V) -> V:
    """Return a canonical value that the agent's author has constructed. Raises agent_invalid if a member has the wrong
    type.

    The constructors of these types do not check their arguments.
    """
    members = cast("dict[str, Any]", as_json(value, -_ENVELOPE))
    try:
        type(value).of_members(members)
    except msgspec.ValidationError as error:
        raise _invalid(f"a malformed {type(value).__name__}: {error}") from error
    return value


def _number(value: float) -> float:
    if is_number(value):
        return value
    if isinstance(value, int):
        raise _invalid(f"an integer of more than {MAX_BITS} bits")
    raise _invalid(f"the float {value}, which is not JSON")


class _Copy:
    """Conversion of one value to JSON, which counts the nested values and limits their number."""

    def __init__(self) -> None:
        self._remaining = MAX_VALUES

    def of(self, value: object, depth: int) -> Json:
        """Return a value as JSON. `depth` is its nesting level. Raises agent_invalid for a value that JSON cannot
        represent, or that is nested too deeply."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return check_text(value)
        if isinstance(value, int | float):
            return _number(value)
        if depth >= MAX_DEPTH:
            raise _invalid(f"data nested deeper than {MAX_DEPTH} levels")
        return self._convert_nested(value, depth)

    def _convert_nested(self, value: object, depth: int) -> Json:
        if isinstance(value, Value):
            return self.of(value.members(), depth)
        if isinstance(value, BaseModel):
            return self.of(value.model_dump(by_alias=True), depth)
        if is_dataclass(value) and not isinstance(value, type):
            return self.of(asdict(value), depth)
        if isinstance(value, Mapping):
            return self._object(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            members = cast("Sequence[object]", value)
            self._count(len(members))
            return [self.of(member, depth + 1) for member in members]
        raise _invalid(f"a value of type {type(value).__name__}, which is not JSON")

    def _object(self, value: Mapping[object, object], depth: int) -> Json:
        self._count(len(value))
        members: dict[str, Json] = {}
        for key, member in value.items():
            if not isinstance(key, str):
                raise _invalid(f"an object with a key of type {type(key).__name__}, which is not JSON")
            members[check_text(key)] = self.of(member, depth + 1)
        return members

    def _count(self, values: int) -> None:
        self._remaining -= values
        if self._remaining <= 0:
            raise _invalid(f"data of more than {MAX_VALUES} values")


class YieldEncoder:
    """Encoder of the items that one call of an agent yields, in all runs of its task. `scope_id` identifies the call in
    the ids of artifacts."""

    def __init__(self, scope_id: str) -> None:
        self._said_in = scope_id
        self._artifacts = 0
        self._tools = 0
        self._message = False
        self._part = False
        self._numbered: list[int] = []
        """Indexes of the open parts to which the author has given an index."""
        self._step: str | None = None

    def encode(self, item: object) -> Sequence[Event]:
        """Return the events of one yielded item. Raises agent_invalid for an item that has no canonical form.

        Before a question, the open message, steps and tool calls are closed.
        """
        if type(item) is not str:
            return self._convert(item)
        if not item.isascii():
            check_text(item)
        if self._part:
            return (PartDelta(text=item),) if item else ()
        return self._token(item)

    def answer(self, value: object) -> list[Event]:
        """Return the events of the value that the agent returned. Raises agent_invalid for a value that JSON cannot
        represent.

        A text becomes a message. Other JSON becomes a message and the structured output.
        """
        if isinstance(value, str):
            whole = PartAdded(part=TextPart(text=check_text(str(value))))
            return [*self.close(), MessageStarted(), whole, MessageEnded()]
        if value is None:
            return self.close()
        if isinstance(value, (*_SAYABLE, Ask, UseTool)) or _all(value, _QUESTION_TYPES):
            return [*self.encode(value), *self.close()]
        if _all(value, _SAYABLE):
            events = [event for item in cast("Sequence[object]", value) for event in self.encode(item)]
            return [*events, *self.close()]
        if isinstance(value, _OF_THE_GATEWAY):
            self._convert_json(value)
        output = as_json(value)
        whole = PartAdded(part=DataPart(data=output))
        return [*self.close(), MessageStarted(), whole, MessageEnded(), RunEnded(output=output)]

    def close(self) -> list[Event]:
        """Return the events that end the open message, its parts, and the open step."""
        events = self._end_message()
        if self._step is not None:
            events.append(StepEnded(name=self._step))
            self._step = None
        return events

    def _token(self, text: str) -> Sequence[Event]:
        if self._part:
            return (PartDelta(text=text),) if text else ()
        self._part = True
        opened = PartAdded(part=TextPart(text=text), open=True)
        return (opened,) if self._message else (*self._start_message(), opened)

    def _start_message(self) -> list[Event]:
        if self._message:
            return []
        self._message = True
        return [MessageStarted()]

    def _end_part(self) -> list[Event]:
        if not self._part:
            return []
        self._part = False
        return [PartEnded()]

    def _end_parts(self) -> list[Event]:
        events = [*self._end_part(), *(PartEnded(index=index) for index in self._numbered)]
        self._numbered.clear()
        return events

    def _end_message(self) -> list[Event]:
        events = self._end_parts()
        if self._message:
            self._message = False
            events.append(MessageEnded())
        return events

    def _convert(self, item: object) -> Sequence[Event]:
        if isinstance(item, Value):
            _check_value(item)
        match item:
            case Message():
                return self._convert_message(item)
            case Artifact():
                return self._convert_artifact(item)
            case Step():
                return self._convert_step(item)
            case ToolCall():
                return self._convert_tool_call(item)
            case Ask():
                return self._ask(item)
            case UseTool():
                return self._use_tool(item)
            case _ if isinstance(item, _RAW):
                return self._convert_raw(item)
            case _ if isinstance(item, _PARTS):
                return self._add(cast("Part", item))
            case _:
                return self._convert_json(item)

    def _convert_json(self, item: object) -> Sequence[Event]:
        if item is None:
            return ()
        if isinstance(item, _OF_THE_GATEWAY):
            raise _invalid(f"the event {type(item).__name__}, which only the gateway may append")
        if isinstance(item, str):
            return self._token(check_text(str(item)))
        if _all(item, _QUESTION_TYPES):
            return [event for question in cast("Sequence[object]", item) for event in self._convert(question)]
        return self._add(DataPart(data=as_json(item)))

    def _add(self, part: Part) -> list[Event]:
        return [*self._end_part(), *self._start_message(), PartAdded(part=part)]

    def _convert_message(self, message: Message) -> list[Event]:
        # An empty id counts as no id. Otherwise the hub would assign one, and the parts would not refer to it.
        named = message if message.message_id else message.replace(message_id=None)
        return [*self._end_message(), *whole_message(named)]

    def _convert_artifact(self, artifact: Artifact) -> list[Event]:
        if not artifact.parts:
            raise _invalid("an Artifact without parts")
        last = len(artifact.parts) - 1
        artifact_id = artifact.artifact_id
        if artifact_id is None and last > 0:  # pieces need a common id, the same in a replay
            artifact_id = str(uuid5(NAMESPACE_URL, f"{self._said_in}/artifact/{self._artifacts}"))
        self._artifacts += 1
        return [
            ArtifactAdded(
                artifact_id=artifact_id,
                name=artifact.name,
                description=artifact.description,
                part=part,
                append=index > 0,
                last=artifact.complete and index == last,
                folder=artifact.folder,
                metadata=artifact.metadata,
                extra=artifact.extra,
            )
            for index, part in enumerate(artifact.parts)
        ]

    def _convert_step(self, step: Step) -> list[Event]:
        ended: list[Event] = [] if self._step is None else [StepEnded(name=self._step)]
        started = _check_value(StepStarted(name=step.name, input=as_json(step.input)))
        self._step = step.name
        return [*ended, started]

    def _convert_tool_call(self, call: ToolCall) -> list[Event]:
        started = _check_value(ToolStarted(name=call.name, input=as_json(call.input)))
        return [started, ToolEnded(name=call.name, output=as_json(call.output))]

    def _ask(self, ask: Ask) -> list[Event]:
        raised = InterruptRaised(
            ask=ask.kind,
            message=ask.message,
            value=as_json(ask.value),
            answer_schema=None if ask.schema is None else cast("dict[str, Any]", as_json(ask.schema)),
        )
        return [*self.close(), _check_value(raised)]

    def _use_tool(self, use: UseTool) -> list[Event]:
        arguments = cast("dict[str, Any]", as_json(use.arguments))
        text = json.dumps(arguments, ensure_ascii=False)
        self._tools += 1
        call_id = f"call_{self._tools}"  # the same in a replay
        call = ToolCallPart(call_id=call_id, name=use.name, arguments=text, side="caller")
        summary = TextPart(text=f"{use.name}({text})")  # some protocols show only the text of a question
        raised = InterruptRaised(
            message=Message(parts=(summary, call)),
            value={"name": use.name, "arguments": arguments, "call_id": call_id},
        )
        return [*self.close(), _check_value(raised)]

    def _convert_raw(self, event: Event) -> list[Event]:
        """Return the events for an event that the author has constructed, which may end earlier parts or messages
        first.

        Text tokens may continue a part that the author's event opens, and the encoder closes that part like any other.
        An author who numbers the parts may have several of them open.
        """
        before: list[Event] = []
        match event:
            case PartAdded() | PartEnded() if event.index is not None:
                self._number(event, event.index)
            case MessageStarted():
                before = self._end_message()
                self._message = True
            case PartAdded():
                before = [*self._end_part(), *self._start_message()]
                self._part = event.open
            case PartEnded():
                self._part = False
            case MessageEnded():
                before = self._end_parts()
                self._message = False
            case InterruptRaised() | RunEnded():
                before = self.close()
            case _:
                pass
        return [*before, event]

    def _number(self, event: PartAdded | PartEnded, index: int) -> None:
        if isinstance(event, PartAdded) and event.open:
            self._numbered.append(index)
        elif index in self._numbered:
            self._numbered.remove(index)
