"""The events of an ACP run → canonical events.

Text is counted from `message.part` alone: for a message that was yielded whole, `message.created` holds all its parts
too (SDK 1.0.3, server/executor.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, Final, cast

from pydantic_core import to_json

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.acp.codec.generic import Key, decode_generic, join_pieces
from babelgate.adapters.acp.codec.messages import OF_RUN, decode_questions, decode_role, message_extra, own_member
from babelgate.adapters.acp.codec.parts import decode_part, is_said_before, own_of, part_extra, unwrap_value
from babelgate.adapters.acp.errors import decode_error, decode_fault
from babelgate.adapters.kit.extension import URI, RecordReader, named_question
from babelgate.adapters.kit.json import ABSENT, parse_text, validate
from babelgate.canonical import (
    DataPart,
    Event,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    RunReason,
    RunStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

ACTIVATION: Final = "activation"
"""The upstream id of the run of a gateway like this one: its own, where `run` is that of a task."""

_UNKNOWN_EVENT: Final = f"an event of a type that ACP {VERSION} does not have"
_UNKNOWN_METADATA: Final = f"metadata of a kind that ACP {VERSION} does not have"
_NO_CONTENT: Final = "an artifact without content"
_NAMELESS: Final = "the input of a tool without a name"
_TAKEN_BACK: Final = "what an agent took back stays said"
_TOO_LARGE: Final = f"members of a run that ACP {VERSION} does not have, and too large to keep"
_MOST_BYTES: Final = 64_000
"""Bytes of them: every event of a run shows them."""
_MESSAGE_ALONE: Final = "of what an agent awaits, only the message is read"


def decode_event(value: Json) -> w.Event:
    """Raises invalid."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise FaultError(FaultCode.INVALID, "An event has no type.")
    return validate(w.EVENTS.get(kind, w.NativeEvent), value)


@dataclass(slots=True)
class _Call:
    """Of a tool, as `generic` events tell of it."""

    name: str = ""
    given: list[Json] = field(default_factory=list[Json])
    output: list[Json] = field(default_factory=list[Json])


class EventReader:
    """Of one upstream run, or of what follows a resume of it. `agent` is the upstream's own name of the agent."""

    def __init__(self, agent: str, *, extended: bool = False) -> None:
        self._agent = agent
        self._extended = extended
        """The Babelgate extension was asked for."""
        self.records = RecordReader()
        self.is_recorded = False
        """The server speaks the extension."""
        self.seen = 0
        """Events read."""
        self.stopped = False
        """The run awaits an answer or has ended."""
        self.run_id: str | None = None
        self._bound: dict[str, str] = {}
        self._events: list[Event] = []
        self._role: tuple[str | None, dict[str, Any]] = (None, {})
        """Who speaks, and what only an ACP peer can say of the message."""
        self._metadata: JsonObject = {}
        """What another gateway says beside the message."""
        self._created: w.Message | None = None
        """The message that was begun on the wire, until something shows it."""
        self._bare = False
        """It was shown, and by no canonical message yet."""
        self._parts = -1
        """Of the message so far; -1 where its beginning was not seen."""
        self._message = False
        self._text: str | None = None
        """The content type of the open text part."""
        self._tools: list[tuple[str, Json]] = []
        """Calls that have no output yet."""
        self._key: Key | None = None
        """Of the piece of a `generic` event that was read last, if nothing else was meanwhile."""
        self._call: _Call | None = None
        self._aside = False
        """The open message is none of the wire's: it is of such pieces."""
        self._any_output = False
        self._completed = 0
        """Messages that were complete."""
        self._losses: set[tuple[Feature, str]] = set()
        self._unknown: JsonObject = {}
        """Members of the run that were told."""

    def bind(self, run_id: str, session_id: str | None = None) -> list[Event]:
        """Tell the upstream's ids as soon as they are known, and again only when there are more of them."""
        ids = {"run": run_id, **({"session": session_id} if session_id else {})}
        self.run_id = run_id
        if ids.items() <= self._bound.items():
            return []
        self._bound.update(ids)
        return [UpstreamBound(protocol="acp", ids=dict(self._bound))]

    def resume(self, run_id: str, session_id: str | None = None) -> list[Event]:
        """What is read is the rest of a run: its ids are known, and so is what it said before."""
        self._any_output = True
        return self.bind(run_id, session_id)

    def read(self, event: w.Event) -> list[Event]:
        """Raises agent_failed where the run did, invalid where the event breaks the protocol."""
        self.seen += 1
        self._events = []
        if not self._read_records(event):
            if self._key is not None and not isinstance(event, w.GenericEvent):
                self._end_pieces()
            self._READS[type(event)](self, event)
        return self._events

    def _read_records(self, event: w.Event) -> bool:
        """Whether the records of the extension tell of the run: then what is said beside them is not looked at, but for
        ids and errors."""
        if not self._extended or isinstance(event, w.ErrorEvent):
            return False
        if isinstance(event, w.GenericEvent) and URI in event.generic:
            for each in self.records.read(event.generic[URI]):
                self._events.append(named_question(each) if isinstance(each, InterruptRaised) else each)
            self.is_recorded = self.records.active
            self.stopped = self.records.stopped
        elif self.records.active and isinstance(event, w.RunEvent):
            self._events.extend(self.bind(event.run.run_id, event.run.session_id))
        if self.records.active:
            self._bind_activation()
        return self.records.active

    def _bind_activation(self) -> None:
        run_id = self.records.run_id
        if run_id is not None and "run" in self._bound and self._bound.get(ACTIVATION) != run_id:
            self._bound[ACTIVATION] = run_id
            self._events.append(UpstreamBound(protocol="acp", ids=dict(self._bound)))

    def _run_event(self, event: w.RunEvent) -> None:
        run = event.run
        match event.type:
            # OpenAPI 0.2.0, components.schemas: RunCreatedEvent and kin, whose `run` is a snapshot.
            case "run.created":
                self._events.extend(self.bind(run.run_id, run.session_id))
                self._beside(run)
            case "run.in-progress":
                self._beside(run)
                if len(run.output) < self._completed:  # a gateway like this one, whose agent has started over
                    self._finish()
                    self._completed = len(run.output)
                    self._lose(Feature.TEXT, _TAKEN_BACK)
            case "run.awaiting":
                self._finish()
                self._parts = -1
                self.stopped = True
                self._beside(run)
                self._question(run.await_request)
                usage = as_object(own_of(run).get("usage"))
                if usage:
                    self._events.append(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=usage))
            case _:
                self._end(run)

    def _beside(self, run: w.Run) -> None:
        """Members of the run that nobody here knows, where they are news."""
        unknown = {name: value for name, value in (run.model_extra or {}).items() if name != w.OWN}
        if unknown == self._unknown:
            return
        self._unknown = unknown
        if len(to_json(unknown)) > _MOST_BYTES:
            self._lose(Feature.CUSTOM, _TOO_LARGE)
        else:
            self._events.append(Native(protocol="acp", event=OF_RUN, extra={"acp": unknown}))

    def _lose(self, feature: Feature, how: str) -> None:
        """Tell of a loss, once."""
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self._events.append(LossNoted(feature=feature, how=how))

    def _question(self, await_request: JsonObject | None) -> None:
        asked = decode_questions(await_request, agent=self._agent)
        request = await_request or {}
        if isinstance(request.get("message"), dict):
            # SDK 1.0.3: MessageAwaitRequest has no more; components.schemas.AwaitRequest is any object.
            if request.keys() - {"type", "message", w.OWN}:
                self._lose(Feature.QUESTION, _MESSAGE_ALONE)
            for part in validate(w.Message, request["message"]).parts:
                self._lose_metadata(part)
        self._events.extend(asked)

    def end(self, run: w.Run) -> list[Event]:
        """A snapshot says that the run is terminal, and no event did. Raises agent_failed where it failed."""
        self._events = []
        self._end(run)
        return self._events

    def _end(self, run: w.Run) -> None:
        self.stopped = True
        self._finish()
        self._beside(run)
        # components.schemas.RunStatus; these three are terminal in SDK 1.0.3 (models.py, RunStatus.is_terminal).
        match run.status:
            case "failed":
                raise FaultError.of(decode_error(run.error))
            case "cancelled":
                self._events.append(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
            case _:
                if not self._any_output:
                    for message in run.output:
                        self._whole(message)
                own = own_of(run)
                usage, output = as_object(own.get("usage")), own.get("output")
                if usage or output is not None:
                    self._events.append(RunEnded(output=output, usage=usage))

    def _message_event(self, event: w.MessageEvent) -> None:
        if event.type == "message.created":
            self._finish()
            self._start(event.message)
            return
        self._completed += 1
        parts = event.message.parts
        if self._parts >= 0:  # what was told of the message and not as its parts
            for part in parts[self._parts :]:
                self._part(part)
        self._finish(event.message)

    def _start(self, message: w.Message) -> None:
        _, name = decode_role(message.role, self._agent)
        self._role = (name, message_extra(message, "created_at"))
        self._metadata = own_member(message, "metadata")
        self._created = message
        self._parts = 0

    def _whole(self, message: w.Message) -> None:
        self._start(message)
        for part in message.parts:
            self._part(part)
        self._finish(message)

    def _part_event(self, event: w.PartEvent) -> None:
        self._part(event.part)

    def _part(self, part: w.MessagePart) -> None:
        self._any_output = True
        if self._parts >= 0:
            self._parts += 1
        self._lose_metadata(part)
        own = own_of(part)
        if isinstance(part.metadata, w.Trajectory) and self._read_marked(part.metadata, own):
            return
        kind = own.get("kind")
        if kind == "output":  # which nobody said: the run tells it
            return
        # SDK 1.0.3: an Artifact is a MessagePart with a name.
        if part.name is not None and kind != "file":
            self._artifact(part, part.name, own)
            return
        tool: ToolCallPart | None = None
        for found in decode_part(part):
            match found:
                case ToolCallPart() if kind is None:
                    tool = found
                case ToolResultPart() if tool is not None:
                    pass
                case TextPart() | RefusalPart() if "acp" not in found.extra and not found.metadata:
                    self._say(found)
                case FilePart():
                    self._open_message()
                    self._end_text()
                    self._events.append(PartAdded(part=_in_store(found, own)))
                case _:
                    self._open_message()
                    self._end_text()
                    self._events.append(PartAdded(part=found))
        if tool is not None and isinstance(part.metadata, w.Trajectory):
            self._tool(part.metadata, tool)

    def _read_marked(self, told: w.Trajectory, own: JsonObject) -> bool:
        """Whether another gateway says what a trajectory stands for, which then is told."""
        match own.get("kind"):
            case "progress":
                self._end_message()
                name, _ = self._role
                self._events.append(MessageStarted(name=name, phase="progress", metadata=self._metadata))
                self._events.append(PartAdded(part=TextPart(text=told.message or "")))
                self._events.append(MessageEnded())
            case "tool":
                call_id, name, output = _text(own, "call_id"), told.tool_name or "", told.tool_output
                given = None if told.tool_input is None else unwrap_value(told.tool_input)
                fault = decode_fault(own.get("fault"))
                result = None if output is None or fault is not None else unwrap_value(output)
                self._events.append(ToolStarted(call_id=call_id, name=name, input=given))
                self._events.append(ToolEnded(call_id=call_id, name=name, output=result, fault=fault))
            case "step":
                name, place = told.message or "", _place(own)
                self._events.append(StepStarted(name=name, input=own.get("input"), **place))
            case _:
                return False
        return True

    def _end_message(self) -> None:
        """What comes next is no part of what was said so far."""
        self._end_text()
        if self._message:
            self._events.append(MessageEnded())
        self._message = False

    def _lose_metadata(self, part: w.MessagePart) -> None:
        about = part.metadata
        if isinstance(about, dict):
            if about:
                self._lose(Feature.CUSTOM, _UNKNOWN_METADATA)
            return
        if about is not None and about.model_extra:
            self._lose(Feature.CUSTOM, f"fields of a {about.kind} that ACP {VERSION} does not have")
        if isinstance(about, w.Trajectory) and about.tool_name is None and about.tool_input is not None:
            self._lose(Feature.TOOL_ACTIVITY, _NAMELESS)

    def _say(self, part: TextPart | RefusalPart) -> None:
        """A token. How its wire part differs from one is said by the event, so that text grows all the same."""
        content_type = "" if isinstance(part, RefusalPart) else part.media_type or "text/plain"
        extra = part.extra if part.text or part.extra else part_extra({"content": ""})
        self._open_message()
        if self._text == content_type:
            self._events.append(PartDelta(text=part.text, extra=extra))
            return
        self._end_text()
        self._text = content_type
        bare = part.replace(extra={}) if part.extra else part
        self._events.append(PartAdded(part=bare, open=True, extra=extra))

    def _open_message(self) -> None:
        if self._message:
            return
        self._message = True
        self._created = None
        name, own = self._role
        # Whatever role its server gives it, it is the agent that speaks.
        self._events.append(MessageStarted(name=name, metadata=self._metadata, extra=own))

    def _show_message(self) -> None:
        """Something belongs to the wire's message that is no part of a canonical one: only another ACP server can show
        that the message was begun before it."""
        if self._created is not None:
            name, own = self._role
            self._events.append(Native(protocol="acp", event="message.created", data={"name": name}, extra=own))
            self._created = None
            self._bare = True

    def _end_text(self) -> None:
        if self._text is not None:
            self._text = None
            self._events.append(PartEnded())

    def _finish(self, completed: w.Message | None = None) -> None:
        """The message ends, or the run; `completed` = the message as it ended."""
        self._end_pieces()
        self._end_text()
        self._events.extend(ToolEnded(name=name, extra=part_extra(None)) for name, _ in self._tools)
        self._tools.clear()
        extra = {} if completed is None else message_extra(completed, "completed_at")
        if completed is not None and not self._message:
            self._show_message()
        if self._message:
            usage = {} if completed is None else own_member(completed, "usage")
            self._events.append(MessageEnded(usage=usage, extra=extra))
        elif self._bare:
            self._events.append(Native(protocol="acp", event="message.completed", extra=extra))
        self._message = self._bare = False
        self._created = None
        self._role, self._metadata = (None, {}), {}
        self._parts = -1

    def _artifact(self, part: w.MessagePart, name: str, own: JsonObject) -> None:
        self._show_message()
        # Legal (components.schemas.MessagePart: "or neither").
        if part.content is None and part.content_url is None:
            self._lose(Feature.ARTIFACT, _NO_CONTENT)
        about: dict[str, Any] = {each: _text(own, each) for each in ("description", "folder")}
        about["metadata"] = as_object(own.get("labels"))
        place: dict[str, Any] = {"artifact_id": _text(own, "artifact_id"), "name": name or None, **about}
        for found in decode_part(part):
            if isinstance(found, FilePart):
                named = found.replace(name=_text(own, "file_name") or found.name or name or None)
                found = _content(_in_store(named, own), own.get("content"))
            pieces = _cut(found, own.get("pieces"))
            for number, piece in enumerate(pieces):
                append = number > 0 or own.get("continues") is True
                last = number == len(pieces) - 1 and own.get("more") is not True
                self._events.append(ArtifactAdded(part=piece, append=append, last=last, **place))

    def _step_ended(self, own: JsonObject) -> None:
        name, fault = _text(own, "name") or "", decode_fault(own.get("fault"))
        self._events.append(StepEnded(name=name, update=own.get("update"), fault=fault, **_place(own)))

    def _tool(self, step: w.Trajectory, call: ToolCallPart) -> None:
        """The wire part is shown by the first event that it makes, unless its content shows it."""
        self._show_message()
        said = is_said_before(call.extra)
        shown = call.extra if said else part_extra({"metadata": step.model_dump()}, call.extra)
        given: Json = None if step.tool_input is None else unwrap_value(step.tool_input)
        # Each of them may be null (components.schemas.TrajectoryMetadata).
        if step.tool_output is None:
            self._tools.append((call.name, given))
            self._events.append(ToolStarted(name=call.name, input=given, extra=shown))
            return
        begun = next((each for each in self._tools if each[0] == call.name and given in (None, each[1])), None)
        if begun is None:
            self._events.append(ToolStarted(name=call.name, input=given, extra=part_extra(None)))
        else:
            self._tools.remove(begun)
        self._events.append(ToolEnded(name=call.name, output=unwrap_value(step.tool_output), extra=shown))

    def _generic(self, event: w.GenericEvent) -> None:
        generic: JsonObject = event.generic
        own = as_object(generic.get(w.OWN)) if set(generic) == {w.OWN} else {}
        if own.get("kind") == "step_ended":
            self._step_ended(own)
            return
        extra: JsonObject = {"acp": event.model_extra} if event.model_extra else {}
        pieces = decode_generic(generic)
        if pieces:
            if self._created is not None and pieces[0][0] == "thought":
                self._open_message()
            self._show_message()
            self._events.append(Native(protocol="acp", event="generic", data=generic, extra=extra))
            self._pieces(pieces)
            return
        self._end_pieces()
        if set(generic) == {"name", "value"} and isinstance(generic["name"], str):
            self._events.append(Custom(name=generic["name"], value=generic["value"], extra=extra))
        else:
            self._events.append(Custom(value=generic, extra=extra))

    # Thoughts and calls of tools in `generic` events, which callers of ACP see as they came

    def _pieces(self, pieces: Sequence[tuple[Key, Json]]) -> None:
        for key, value in pieces:
            if key != self._key and (key in ("thought", "tool_name") or self._key == "thought"):
                self._end_pieces()
            if key == "thought":
                self._think(str(value))
            else:
                call = self._call = self._call or _Call()
                match key:
                    case "tool_name":
                        call.name += str(value)
                    case "tool_input":
                        call.given.append(value)
                    case "tool_output":
                        if not call.output:
                            self._begin_call(call)
                        call.output.append(value)
            self._key = key

    def _think(self, text: str) -> None:
        if self._key == "thought":
            self._events.append(PartDelta(text=text))
            return
        if not self._message and self._parts < 0:
            self._message = self._aside = True
            self._events.append(MessageStarted(extra=part_extra(None)))
        self._open_message()
        self._end_text()
        self._events.append(PartAdded(part=ReasoningPart(text=text, extra=part_extra(None)), open=True))

    def _begin_call(self, call: _Call) -> None:
        self._events.append(ToolStarted(name=call.name, input=join_pieces(call.given), extra=part_extra(None)))

    def _end_pieces(self) -> None:
        """Whatever they tell of is over."""
        if self._key == "thought":
            self._events.append(PartEnded())
        key, self._key = self._key, None
        if self._aside:
            self._events.append(MessageEnded())
            self._message = self._aside = False
        call, self._call = self._call, None
        if call is not None and key is not None:
            if not call.output:
                self._begin_call(call)
            self._events.append(ToolEnded(name=call.name, output=join_pieces(call.output), extra=part_extra(None)))

    def _error(self, event: w.ErrorEvent) -> None:
        self.stopped = True
        self._finish()
        raise FaultError.of(decode_error(event.error))

    def _native(self, event: w.NativeEvent) -> None:
        self._lose(Feature.CUSTOM, _UNKNOWN_EVENT)
        self._events.append(Native(protocol="acp", event=event.type, data=event.model_dump()))

    _READS: ClassVar[Mapping[type, Any]] = {
        w.RunEvent: _run_event,
        w.MessageEvent: _message_event,
        w.PartEvent: _part_event,
        w.GenericEvent: _generic,
        w.ErrorEvent: _error,
        w.NativeEvent: _native,
    }


# What another gateway says that ACP has no place for


def _text(own: JsonObject, name: str) -> str | None:
    told = own.get(name)
    return told if isinstance(told, str) else None


def _texts(value: object) -> tuple[str, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(each for each in listed if isinstance(each, str))


def _place(own: JsonObject) -> dict[str, Any]:
    """Of a step."""
    return {"step_id": _text(own, "step_id"), "node": _text(own, "node") or "", "ns": _texts(own.get("ns"))}


def _in_store(part: FilePart, own: JsonObject) -> FilePart:
    """A file that the other gateway keeps, by its hash, of which the bytes are to be fetched."""
    blob = _text(own, "blob")
    return part if blob is None or part.inline is not None else part.replace(blob=blob, url=None)


def _content(part: FilePart, kind: object) -> Part:
    """What an artifact is made of, if that is no file."""
    media_type = part.media_type if part.media_type not in ("text/plain", "application/json") else None
    if part.inline is None:
        return part
    if kind == "text":
        return TextPart(text=part.inline.decode(errors="replace"), media_type=media_type)
    data = parse_text(part.inline.decode(errors="replace")) if kind == "data" else ABSENT
    return part if data is ABSENT else DataPart(data=data, media_type=media_type)


def _cut(part: Part, sizes: object) -> list[Part]:
    """The pieces in which an artifact came: characters of a text, bytes of a file."""
    told = cast("list[object]", sizes) if isinstance(sizes, list) else []
    lengths = [int(each) for each in told if isinstance(each, int | float) and each >= 0]
    content = part.text if isinstance(part, TextPart) else part.inline if isinstance(part, FilePart) else None
    if content is None or len(lengths) != len(told) or len(lengths) < 2 or sum(lengths) != len(content):
        return [part]
    ends = list(accumulate(lengths))
    cuts = [content[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return [
        part.replace(text=cut) if isinstance(part, TextPart) else part.replace(inline=cut, size=len(cut))
        for cut in cuts
    ]
