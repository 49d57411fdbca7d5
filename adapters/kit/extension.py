"""The Babelgate extension: beside the native form of what a run says, the records of the log themselves.

It is never required, and active only where the client asks for it. `docs/extension.md` is its page, which is made from
what stands here. An envelope is `{"after", "events", "next"?}`: records in order, the seq of the one that stood before
the first of them in this stream, and, in a slice of a finished object, the seq from which on the rest can be had.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from babelgate.canonical import (
    DataPart,
    Event,
    FaultCode,
    FaultError,
    FilePart,
    Fork,
    Invocation,
    Message,
    Record,
    RunReason,
    RunStatus,
    Submission,
    TaskState,
    TextPart,
)
from babelgate.canonical.caller_tool import declared_tools
from babelgate.canonical.event import (
    AgentEvent,
    ArtifactAdded,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    Native,
    PartAdded,
    RunEnded,
    RunStarted,
    TaskChanged,
    UpstreamBound,
    encode_event,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.stored import decode_event
from babelgate.canonical.value import Json, JsonObject, is_extra

URI: Final = "https://w3id.org/babelgate/events/v1"
"""An identifier, of this version: what breaks it gets another one. Nothing looks behind it."""
HEADER: Final = "Babelgate-Extensions"
"""What activates it where the protocol has no header for that; the answer has it, too."""
START_HEADER: Final = "Babelgate-From"
"""The seq after which what was said is told again."""
MAX_SLICE: Final = 64 * 1024
"""Bytes of an envelope in a finished object, at most, as JSON. Only one record that is larger alone goes beyond it:
none is cut, and without it whoever reads would not get on."""
REQUESTS: Final = ("tools", "message", "answers", "uploads", "ids", "fork", "state")
"""What a request may say in it, where its protocol has no field for that."""
MORE_REQUESTS: Final = (*REQUESTS, "messages", "metadata")
"""The same, of protocols whose input is a list of messages, or that have no metadata."""

_SAID: Final = tuple(each for each in get_args(AgentEvent) if each is not UpstreamBound)
"""What a run says. All else is what the gateway there does, and whoever reads it does for itself."""
_T = TypeVar("_T")
_KINDS: Final = frozenset(str(each.kind) for each in get_args(Event))
_INVALID: Final = "a record of the extension that is none of the log's"
_FRAME: Final = len(msgspec.json.encode({"after": 0, "events": [], "next": 2**63 - 1}))
_SAID_ANEW: Final = "an answer that was replaced stays said, and is said again"


def params(requests: Sequence[str] = REQUESTS) -> JsonObject:
    """Where it is announced."""
    return {"max_bytes": MAX_SLICE, "requests": list(requests)}


def is_named(header: str | None) -> bool:
    """Whether a header, of URIs that commas separate, names it."""
    return header is not None and any(each.strip() == URI for each in header.split(","))


def encode_record(record: Record) -> JsonObject:
    """Without the bytes of files, which have a place of their own."""
    told: JsonObject = {"seq": record.seq, "at": record.at, "task_id": record.task_id, "run_id": record.run_id}
    return {**told, "attempt": record.attempt, "event": msgspec.json.decode(encode_event(record.event))}


def envelope(after: int, records: Iterable[Record] = ()) -> JsonObject:
    return {"after": after, "events": [encode_record(record) for record in records]}


def _decode_all(items: Sequence[bytes]) -> list[Any]:
    return [msgspec.json.decode(item) for item in items]


class Slice:
    """The records of a finished object, from the first on, up to `MAX_SLICE`."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        """Each as JSON, which takes a tenth of the value."""
        self._size = _FRAME
        self._next: int | None = None

    @property
    def is_full(self) -> bool:
        return self._next is not None

    def add(self, record: Record) -> None:
        if self._next is not None:
            return
        written = msgspec.json.encode(encode_record(record))
        size = len(written) + len(",")
        if self._records and self._size + size > MAX_SLICE:
            self._next = record.seq
            return
        self._records.append(written)
        self._size += size

    def envelope(self, events: Callable[[Sequence[bytes]], Any] = _decode_all) -> JsonObject:
        """`events`: makes the list of the records from the JSON of each."""
        told: JsonObject = {"after": 0, "events": events(list(self._records))}
        return told if self._next is None else {**told, "next": self._next}


def _number(value: object) -> int | None:
    """An integer, also where a relay made a number of it that has a point (protobuf's Struct)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class _Told:
    """A record as another gateway tells it."""

    seq: int
    run_id: str | None
    task_id: str | None
    event: Event | None
    """None for one that cannot be read."""


def _decode_record(value: object) -> _Told | None:
    if not isinstance(value, dict):
        return None
    told = cast("JsonObject", value)
    seq = _number(told.get("seq"))
    if seq is None:
        return None
    run_id, task_id = (value if isinstance(value := told.get(name), str) else None for name in ("run_id", "task_id"))
    return _Told(seq, run_id, task_id, _decode_event(told.get("event")))


def _decode_event(value: object) -> Event | None:
    kind = cast("JsonObject", value).get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _KINDS:  # of a newer gateway: this version grows by kinds
        return Native(protocol="babelgate", event=kind, data=value)
    try:
        return decode_event(msgspec.json.encode(value))
    except (msgspec.MsgspecError, TypeError, RecursionError, UnicodeEncodeError):
        return None


def decode_said(value: object, *kinds: type[Event]) -> Event | None:
    """An event in the JSON of the log, as protocols have them beside what they have words for, without what only an
    adapter of its own log has a use for; None for one of no such kind."""
    event = _decode_event(as_object(value))
    return event.replace(extra={}) if isinstance(event, kinds) else None


def encode_said(event: Event) -> JsonObject:
    """The same, without what only the same protocol has a use for, and without the bytes of files."""
    return msgspec.json.decode(encode_event(event.replace(extra={})))


class RecordReader:
    """The envelopes of one run → what it said. `run_id` = the run, where it is known there; `told` = runs of the same
    task that were read before: an object that is told from its start has theirs, too. `of_run` = the stream is the
    run's own, and ends with it and not with a change of its task."""

    def __init__(self, run_id: str | None = None, told: Set[str] = frozenset(), *, of_run: bool = False) -> None:
        self.active = False
        """An envelope was read: from then on they are the truth, and native frames are not looked at."""
        self.seq: int | None = None
        """Of the last record that was told."""
        self.run_id = run_id
        self.task_id: str | None = None
        """Of the last record that was told."""
        self.state: TaskState | None = None
        self.stopped = False
        self.behind = False
        """Records are missing: whoever reads has to ask for them, from `seq` on."""
        self._told = told
        self._of_run = of_run
        self._found = run_id is None and not told
        """The run that is read has begun."""
        self._ended: RunEnded | None = None
        self._said = False

    def read(self, value: Json) -> list[Event]:
        """What is news in an envelope."""
        if not isinstance(value, dict):
            return []
        self.active = True
        after, told = _number(value.get("after")), value.get("events")
        if self.seq is None:
            self.seq = after or 0
        elif after is not None and after > self.seq:
            self.behind = True
            return []
        self.behind = False
        events: list[Event] = []
        for each in cast("list[object]", told) if isinstance(told, list) else []:
            record = _decode_record(each)
            if record is None or record.event is None:
                events.append(LossNoted(feature="custom", how=_INVALID))
            if record is not None and record.seq > self.seq and not self.stopped:
                self.seq, self.task_id = record.seq, record.task_id or self.task_id
                events += self._take(record)
        if _number(value.get("next")) is not None and not self.stopped:
            self.behind = True
        return events

    def _take(self, record: _Told) -> Sequence[Event]:
        if record.run_id in self._told:
            if isinstance(record.event, TaskChanged):
                self.state = record.event.state
            return ()
        if record.run_id is not None:
            self.run_id = self.run_id or record.run_id
            if record.run_id != self.run_id:
                return ()
            self._found = True
        event = record.event
        if isinstance(event, TaskChanged) and event.state in TERMINAL:  # of its last run, whichever that was
            return self._change(event)
        if not self._found or event is None:
            return ()
        match event:
            case TaskChanged():
                return self._change(event)
            case RunEnded() if self._of_run:
                self.stopped = True
                return _pause(event) if event.status is RunStatus.PAUSED else (event,)
            case RunEnded():
                self._ended = event
                return ()
            case RunStarted() if event.is_restart and self._said:
                return (LossNoted(feature="artifact", how=_SAID_ANEW),)
            case ArtifactAdded(origin="caller"):
                return ()
            case _ if isinstance(event, _SAID):
                self._said = True
                return (event,)
            case _:
                return ()

    def _change(self, event: TaskChanged) -> Sequence[Event]:
        self.state = event.state
        ended, self._ended = self._ended, None
        if event.state not in TERMINAL | WAITING:
            return ()
        self.stopped = True
        if event.state in WAITING:
            return () if ended is None else _pause(ended)
        if ended is None:
            status = RunStatus.CANCELLED if event.state is TaskState.CANCELLED else RunStatus.ERROR
            ended = RunEnded(
                status=RunStatus.SUCCESS if event.state is TaskState.COMPLETED else status,
                reason=RunReason.FAULT if status is RunStatus.ERROR else RunReason.CALLER,
                fault=event.fault,
            )
        return (ended,)


def _pause(ended: RunEnded) -> Sequence[Event]:
    """That it waits for an answer, its questions say."""
    if not ended.usage:
        return ()
    return (RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=ended.usage),)


def blobs_of(event: Event) -> Sequence[FilePart]:
    """Files whose bytes are still to be had: an envelope names them by their hash."""
    match event:
        case PartAdded(part=FilePart() as part) | ArtifactAdded(part=FilePart() as part):
            parts: Sequence[Any] = (part,)
        case InterruptRaised():
            parts = event.message.parts
        case _:
            return ()
    return [part for part in parts if isinstance(part, FilePart) and part.blob is not None and part.inline is None]


def with_bytes(event: Event, found: Mapping[str, bytes | None]) -> Event:
    """The event with its files, by hash; one whose bytes are not to be had keeps its name and what else is known."""

    def fill(part: Any) -> Any:
        if not isinstance(part, FilePart) or part.blob is None or part.blob not in found:
            return part
        return part.replace(inline=found[part.blob], blob=None)

    if isinstance(event, PartAdded | ArtifactAdded):
        return event.replace(part=fill(event.part))
    if isinstance(event, InterruptRaised):
        parts = tuple(map(fill, event.message.parts))
        return event.replace(message=event.message.replace(parts=parts))
    return event


def schema() -> JsonObject:
    """JSON Schema of an envelope."""
    (record,), parts = msgspec.json.schema_components([Record], ref_template="#/$defs/{name}")
    parts["FilePart"]["properties"].pop("inline", None)  # the bytes are never in it
    parts["Request"] = _request_schema()
    number: JsonObject = {"type": "integer", "minimum": 0}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": URI,
        "title": "Envelope",
        "type": "object",
        "required": ["after", "events"],
        "properties": {"after": number, "events": {"type": "array", "items": record}, "next": number},
        "$defs": parts,
    }


def _request_schema() -> JsonObject:
    """What a request may say."""
    text: JsonObject = {"type": "string"}
    name: JsonObject = {"type": "string", "minLength": 1, "maxLength": _LONGEST_ID}
    message: JsonObject = {"$ref": "#/$defs/Message"}

    def list_of(items: JsonObject) -> JsonObject:
        return {"type": "array", "items": items}

    def object_of(*required: str, **properties: JsonObject) -> JsonObject:
        return {"type": "object", "required": list(required), "properties": properties}

    fork = object_of(task_id=name, run_id=name, checkpoint_id=name, thread_id=name)
    starts = ("task_id", "run_id", "checkpoint_id")
    return object_of(
        tools={"type": "array"},
        message=message,
        messages=list_of(message),
        metadata={"type": "object"},
        answers=list_of(object_of("interrupt_id", interrupt_id=text, action=text, value={})),
        uploads=list_of(object_of("name", "bytes", name=text, media_type=text, bytes=text)),
        ids=list_of(name),
        fork={**fork, "oneOf": [{"required": [each]} for each in starts]},
        state=object_of("values", values={"type": "object"}, as_node=name),
    )


# Requests

_OWN: Final = "babelgate"
"""The key in `extra` of a question for the id by which it is answered there."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts, if not from what its thread is."""

    fork: Fork | None = None
    values: JsonObject = field(default_factory=dict[str, object])
    """Members that take the place of those of the state there."""
    as_node: str | None = None

    def __bool__(self) -> bool:
        return self.fork is not None or bool(self.values)

    def apply(self, ask: Submission) -> Submission:
        if not self:
            return ask
        return msgspec.structs.replace(ask, fork=self.fork, state=self.values, as_node=self.as_node)

    def check_absent(self) -> None:
        """For an answer. Raises invalid."""
        if self:
            raise FaultError(FaultCode.INVALID, "An answer goes on from its question: it takes neither fork nor state.")


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller says in it."""

    tools: Sequence[Any] | None = None
    message: Message | None = None
    messages: tuple[Message, ...] | None = None
    """In the place of all native ones."""
    metadata: JsonObject | None = None
    answered: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Answers, by the ids of their questions."""
    declined: frozenset[str] = frozenset()
    """Ids of questions that are not answered."""
    uploads: tuple[FilePart, ...] = ()
    """Files that are given beside the messages, with their bytes."""
    ids: tuple[str, ...] = ()
    """Of the messages, from the last one back: what they are called where they come from, and so in the state there."""
    start: Start = field(default_factory=Start)


def decode_request(value: object) -> Request:
    """What is of no use is left out: nobody need know the extension. Raises invalid for an upload that is no file, and
    for a start that is none, as what a caller hands over is not lost without a word."""
    if not isinstance(value, dict):
        return Request()
    told = cast("JsonObject", value)
    tools, answers = told.get("tools"), told.get("answers")
    entries = cast("list[object]", answers) if isinstance(answers, list) else []
    named = {str(each["interrupt_id"]): each for each in map(as_object, entries) if isinstance(each.get(_ID), str)}
    return Request(
        tools=cast("list[Any]", tools) if isinstance(tools, list) else None,
        message=next(iter(_messages([told.get("message")]) or ()), None),
        messages=_messages(told.get("messages")),
        metadata=_convert(told.get("metadata"), JsonObject),
        answered={
            name: each["value"] for name, each in named.items() if each.get("action") != "decline" and "value" in each
        },
        declined=frozenset(name for name, each in named.items() if each.get("action") == "decline"),
        uploads=_decode_uploads(told.get("uploads")),
        ids=_decode_ids(told.get("ids")),
        start=_decode_start(told.get("fork"), told.get("state")),
    )


def _decode_start(fork: object, state: object) -> Start:
    """Raises invalid."""
    if fork is None and state is None:
        return Start()
    as_node = as_object(state).get("as_node")
    return Start(
        None if fork is None else _decode_fork(as_object(fork)),
        {} if state is None else _decode_values(as_object(state)),
        _decode_name(as_node, "state.as_node"),
    )


def _decode_fork(given: JsonObject) -> Fork:
    names = ("task_id", "run_id", "checkpoint_id", "thread_id")
    task_id, run_id, checkpoint, thread_id = (_decode_name(given.get(name), f"fork.{name}") for name in names)
    if sum(each is not None for each in (task_id, run_id, checkpoint)) != 1:
        raise FaultError(FaultCode.INVALID, "fork: It must name exactly one of task_id, run_id and checkpoint_id.")
    return Fork(task_id=task_id, run_id=run_id, checkpoint=checkpoint, thread_id=thread_id)


def _decode_values(given: JsonObject) -> JsonObject:
    values = given.get("values")
    if not isinstance(values, dict):
        raise FaultError(FaultCode.INVALID, "state: Its values must be an object.")
    return cast("JsonObject", values)


def _decode_name(value: object, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID or not value.isprintable():
        raise FaultError(FaultCode.INVALID, f"{what}: It must be a text of 1 to {_LONGEST_ID} characters.")
    return value


def _decode_ids(value: object) -> tuple[str, ...]:
    given = cast("list[object]", value) if isinstance(value, list) else ()
    found = tuple(each for each in given if isinstance(each, str) and 0 < len(each) <= _LONGEST_ID and "\0" not in each)
    return found if len(found) == len(given) == len({*found}) else ()


_ID: Final = "interrupt_id"
_LONGEST_ID: Final = 200
"""Characters."""


def _decode_uploads(value: object) -> tuple[FilePart, ...]:
    given = cast("list[object]", value) if isinstance(value, list) else () if value is None else (None,)
    return tuple(map(_decode_upload, given))


def _decode_upload(value: object) -> FilePart:
    given = as_object(value)
    name, content, media_type = (given.get(each) for each in ("name", "bytes", "media_type"))
    if isinstance(name, str) and isinstance(content, str) and (media_type is None or isinstance(media_type, str)):
        with suppress(ValueError):
            return FilePart(name=name, media_type=media_type, inline=b64decode(content, validate=True))
    raise FaultError(FaultCode.INVALID, "uploads: Each upload must have a name, and bytes in base64.")


def _messages(value: object) -> tuple[Message, ...] | None:
    """None where they have bytes, which are sent natively: a hash may be that of a file of somebody else."""
    found = _convert(value, tuple[Message, ...])
    return found if found is not None and not any(map(has_bytes, found)) and all(map(_is_whole, found)) else None


def _is_whole(message: Message) -> bool:
    return is_extra(message.extra) and all(is_extra(part.extra) for part in message.parts)


def has_bytes(message: Message) -> bool:
    """Whether it has a file that is more than a URL."""
    return any(
        isinstance(part, FilePart) and (part.url is None or part.blob is not None or part.inline is not None)
        for part in message.parts
    )


def _convert(value: object, kind: type[_T]) -> _T | None:
    try:
        return msgspec.convert(value, kind | None)
    except (msgspec.ValidationError, RecursionError):
        return None


def split_uploads(call: Invocation) -> tuple[Invocation, Sequence[FilePart]]:
    """The call without the files that were given beside its messages, and these. They stay where they are, as files of
    a message, if nothing else was said, if not all have their bytes and a name, and in an answer."""
    count = call.input.uploaded
    if not count or call.answers or not call.messages:
        return call, ()
    last = call.messages[-1]
    said, files = last.parts[:-count], [part for part in last.parts[-count:] if isinstance(part, FilePart)]
    if not said or len(files) != count or any(file.inline is None or file.name is None for file in files):
        return call, ()
    messages = (*call.messages[:-1], last.replace(parts=said))
    return replace(call, input=call.input.replace(messages=messages, uploaded=0)), files


def encode_uploads(files: Sequence[FilePart]) -> JsonObject:
    """The member of a request for them."""
    told: list[JsonObject] = [
        {
            "name": file.name,
            **({} if file.media_type is None else {"media_type": file.media_type}),
            "bytes": b64encode(file.inline or b"").decode(),
        }
        for file in files
    ]
    return {"uploads": told} if told else {}


def encode_ids(messages: Sequence[Message]) -> JsonObject:
    """The member of a request for what the messages of an input are called here."""
    ids = [message.message_id for message in messages]
    return {"ids": ids} if ids and all(ids) else {}


def encode_start(call: Invocation, name: str = "") -> JsonObject:
    """The members of a request for where its run starts: `name` = by which the server's runs are bound, if it is to
    fork one of them."""
    told: JsonObject = {"fork": {"run_id": call.origin[name]}} if name in call.origin else {}
    return {**told, "state": {"values": dict(call.state)}} if call.state else told


def has_start(call: Invocation) -> bool:
    """Whether there is such a member."""
    return bool(call.origin or call.state)


def without_start(call: Invocation) -> Invocation:
    """As a server is called that has refused it."""
    return replace(call, origin={}, state={})


def is_refusal(error: FaultError) -> bool:
    """Whether a server may take the same call without a start: it has answered, and not with too much work."""
    return error.fault.code not in (FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT, FaultCode.QUEUE_FULL)


NOT_FORKED: Final = "the agent's server does not fork it any more: a new conversation is told what was said"
"""The loss where a start was refused."""


def encode_request(call: Invocation, past: Sequence[Record] = (), *, messages: Sequence[Message] = ()) -> JsonObject:
    """What a run is called with, as far as its protocol has no field for it; `past` = the records of its task, where
    the questions stand, and `messages` = those that are told. With files they never are: these are sent natively."""
    told: JsonObject = {}
    tools = declared_tools(call.config)
    if tools is not None:  # also of an answer: the run that goes on has no other
        told["tools"] = tools
    if call.answers:
        names = _names(past)
        told["answers"] = [
            _encode_answer(each, names.get(each.interrupt_id) or each.interrupt_id) for each in call.answers
        ]
    else:
        told |= {"metadata": dict(call.metadata)} if call.metadata else {}
        if len(call.input_messages) == len(call.messages):
            told |= encode_ids(call.messages)
    if messages and not any(map(has_bytes, messages)):
        told["messages"] = [msgspec.json.decode(msgspec.json.encode(_bare(message))) for message in messages]
    return told


def _names(past: Sequence[Record]) -> Mapping[str | None, str | None]:
    """By which questions are answered there."""
    return {
        record.event.interrupt_id: as_object(record.event.extra.get(_OWN)).get("id")
        for record in past
        if isinstance(record.event, InterruptRaised)
    }


def _encode_answer(answer: InterruptAnswered, name: str) -> JsonObject:
    return {_ID: name, **({"action": answer.action} if answer.action == "decline" else {"value": answer.value})}


def named_answers(call: Invocation, past: Sequence[Record]) -> list[JsonObject]:
    """Of a call that answers questions which were all asked by name, as gateways do that tell several at once."""
    names = _names(past)
    told = [(each, names.get(each.interrupt_id)) for each in call.answers]
    return [_encode_answer(each, name) for each, name in told if name] if all(name for _, name in told) else []


def _bare(message: Message) -> Message:
    return Message(role=message.role, name=message.name, parts=message.parts, metadata=message.metadata)


def given_config(told: Request) -> JsonObject:
    return {} if told.tools is None else {"tools": list(told.tools)}


def _with_ids(told: Request, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    count = len(told.ids)
    if not count or count > len(messages):
        return messages
    named = (message.replace(message_id=own) for message, own in zip(messages[-count:], told.ids, strict=True))
    return (*messages[:-count], *named)


def with_uploads(told: Request, messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages with the uploads at the end of the last one, as `RunInput.uploaded` says."""
    said = _with_ids(told, tuple(messages))
    if not told.uploads:
        return said
    if said and said[-1].role == "user":
        return (*said[:-1], said[-1].replace(parts=(*said[-1].parts, *told.uploads)))
    return (*said, Message(role="user", parts=told.uploads))


def given_messages(told: Request) -> tuple[Message, ...] | None:
    """Without ids, which are the gateway's own to give."""
    return None if told.messages is None else tuple(map(_bare, told.messages))


def answer_message(value: Json) -> Message:
    """An answer as a message of the caller's, for agents that take those."""
    part = TextPart(text=value) if isinstance(value, str) else DataPart(data=value)
    return Message(role="user", parts=(part,))


def answer_messages(told: Request, native: Message) -> tuple[Message, ...]:
    """Of a request that answers: those that it says by the extension, else what its values amount to, else the native
    one, which need not say the values that stand beside it. Files are in that one alone."""
    said = given_messages(told)
    if said:
        return said
    return (native,) if has_bytes(native) or not told.answered else tuple(map(answer_message, told.answered.values()))


def take_answer(told: Request, interrupt_id: str, value: Json, native: Message) -> tuple[Json, Message]:
    """The answer to one of several questions, and the message that it is: as it is said by the extension, if it is.
    Files are in the native message alone."""
    if interrupt_id not in told.answered:
        return value, native
    value = told.answered[interrupt_id]
    return value, native if has_bytes(native) else answer_message(value)


def named_question(event: InterruptRaised) -> InterruptRaised:
    """With the id by which it is answered there, whatever it is called here."""
    return event.replace(extra={**event.extra, _OWN: {"id": event.interrupt_id}})
