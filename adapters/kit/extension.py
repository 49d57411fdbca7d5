"""The Babelgate extension: the records of the log, sent in addition to the protocol's own form of a run.

It is never required, and active only if the client requests it. `docs/extension.md` describes it; parts of that page
are generated from this module. An envelope is `{"after", "events", "next"?}`:

- `events` are records in order.
- `after` is the seq of the record before the first of them in this stream.
- `next` is present in a finished object whose envelope is full: the seq from which the remaining records can be read.
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
    RunCreated,
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
"""Identifier of this version of the extension. An incompatible version gets another one. It is never fetched."""
HEADER: Final = "Babelgate-Extensions"
"""Request header that activates the extension, and response header that confirms it, in protocols that have no header
for extensions."""
START_HEADER: Final = "Babelgate-From"
"""Request header with a seq, by which a reader resumes: the server repeats the records after it, and then sends new
ones."""
MAX_SLICE: Final = 64 * 1024
"""Maximum size of an envelope in a finished object, in bytes of JSON. Chosen. An envelope with a single larger record
exceeds it, because a record is never cut, and is needed to read those after it."""
REQUESTS: Final = ("tools", "message", "answers", "uploads", "ids", "fork", "state")
"""Names of the members that the extension adds to a request, because most protocols have no field for them."""
MORE_REQUESTS: Final = (*REQUESTS, "messages", "metadata")
"""Names of the members that the extension adds to a request in protocols whose input is a list of messages, or that
have no metadata."""

_RUN_EVENTS: Final = tuple(each for each in get_args(AgentEvent) if each is not UpstreamBound)
"""Types of the events that come from the agent. Events of other types are the sending gateway's own actions, which the
receiving gateway performs itself."""
_T = TypeVar("_T")
_KINDS: Final = frozenset(str(each.kind) for each in get_args(Event))
_INVALID: Final = "a record of the extension that is not valid in the log"
_FRAME: Final = len(msgspec.json.encode({"after": 0, "events": [], "next": 2**63 - 1}))
_REPEATED: Final = "a replaced answer remains, and the new one follows it"


def params(requests: Sequence[str] = REQUESTS) -> JsonObject:
    """Return the parameters with which an agent's card or manifest announces the extension: the maximum size of an
    envelope, and the members that a request may have."""
    return {"max_bytes": MAX_SLICE, "requests": list(requests)}


def is_named(header: str | None) -> bool:
    """Return True if a header that lists URIs, separated by commas, contains the URI of the extension."""
    return header is not None and any(each.strip() == URI for each in header.split(","))


def encode_record(record: Record) -> JsonObject:
    """Return a record as JSON, without the bytes of files, which the reader fetches separately. The caller's key id and
    subject are removed, because others may read a shared thread."""
    ids: JsonObject = {"seq": record.seq, "at": record.at, "task_id": record.task_id, "run_id": record.run_id}
    event = record.event
    if isinstance(event, RunCreated) and (event.key_id or event.subject):  # others may read a shared thread
        event = event.replace(key_id="", subject="")
    return {**ids, "attempt": record.attempt, "event": msgspec.json.decode(encode_event(event))}


def envelope(after: int, records: Iterable[Record] = ()) -> JsonObject:
    """Return an envelope with records. `after` is the seq of the record before them."""
    return {"after": after, "events": [encode_record(record) for record in records]}


def _decode_all(items: Sequence[bytes]) -> list[Any]:
    return [msgspec.json.decode(item) for item in items]


class Slice:
    """Collector of the envelope in a finished object: the first records, up to `MAX_SLICE` bytes of JSON."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        """Records as JSON. The text takes a tenth of the memory of the decoded value."""
        self._size = _FRAME
        self._next: int | None = None

    @property
    def is_full(self) -> bool:
        """True if a record was omitted, because the envelope would have exceeded `MAX_SLICE`."""
        return self._next is not None

    def add(self, record: Record) -> None:
        """Add the next record. From the first record on that does not fit, all records are omitted."""
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
        """Return the envelope with the added records. `events` converts the records, each as JSON text, into the member
        `events`."""
        members: JsonObject = {"after": 0, "events": events(list(self._records))}
        return members if self._next is None else {**members, "next": self._next}


def _number(value: object) -> int | None:
    """Return an integer, also from a float such as 3.0: a relay that uses protobuf's Struct turns integers into floats.
    Return None for any other value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class _ReceivedRecord:
    """Record that another gateway has sent in an envelope."""

    seq: int
    run_id: str | None
    task_id: str | None
    event: Event | None
    """Event of the record. None if it is not valid."""


def _decode_record(value: object) -> _ReceivedRecord | None:
    """Return the record in an item of an envelope. Return None if the item has no seq."""
    record = as_object(value)
    seq = _number(record.get("seq"))
    if seq is None:
        return None
    run_id, task_id = (id_ if isinstance(id_ := record.get(name), str) else None for name in ("run_id", "task_id"))
    return _ReceivedRecord(seq, run_id, task_id, _decode_event(record.get("event")))


def _decode_event(value: object) -> Event | None:
    """Return the event in a record. An event of an unknown kind, from a newer gateway, becomes a `Native`. Return None
    for a value that is not a valid event."""
    kind = cast("JsonObject", value).get("kind") if isinstance(value, dict) else None
    # Sent by a newer gateway: this version of the extension can get more kinds.
    if isinstance(kind, str) and kind not in _KINDS:
        return Native(protocol="babelgate", event=kind, data=value)
    try:
        return decode_event(msgspec.json.encode(value))
    except (msgspec.MsgspecError, TypeError, RecursionError, UnicodeEncodeError):
        return None


def decode_said(value: object, *kinds: type[Event]) -> Event | None:
    """Return an event that a protocol transports as the log's JSON, because it has no form for it. Return None if
    `value` is no event of the types `kinds`. The event's `extra` is dropped, because it is specific to the sender's
    protocol."""
    members = as_object(value)
    event = _decode_event(members) if members else None
    return event.replace(extra={}) if isinstance(event, kinds) else None


def encode_without_extra(event: Event) -> JsonObject:
    """Return an event as the log's JSON, without the bytes of files and without `extra`, which is specific to a
    protocol."""
    return msgspec.json.decode(encode_event(event.replace(extra={})))


class RecordReader:
    """Reader that converts the envelopes of one run into the run's events.

    - `run_id` is the server's id of the run, if it is known.
    - `past_runs` are ids of earlier runs of the same task, whose events are skipped: an object that is sent from its
      start contains them, too.
    - `of_run` is True if the stream ends with the run. Otherwise it ends when the task ends or waits.
    """

    def __init__(self, run_id: str | None = None, past_runs: Set[str] = frozenset(), *, of_run: bool = False) -> None:
        self.active = False
        """True if an envelope was read. From then on, the frames in the protocol's own form are ignored."""
        self.seq: int | None = None
        """Seq of the last record that was read."""
        self.run_id = run_id
        self.task_id: str | None = None
        """Task id of the last record that was read."""
        self.state: TaskState | None = None
        self.stopped = False
        self.behind = False
        """True if records are missing. The owner of the reader must then request the records after `seq`."""
        self._past_runs = past_runs
        self._of_run = of_run
        self._has_begun = run_id is None and not past_runs
        """True if a record of the run was read, or if every record belongs to the run."""
        self._ended: RunEnded | None = None
        """Event that ended the run. It is held until the change of the task follows, which shows whether the task
        waits."""
        self._has_output = False
        """True if the agent has sent at least one event in this run."""

    def read(self, value: Json) -> list[Event]:
        """Return the events of an envelope that were not read before. Return none, and set `behind`, if records before
        the envelope are missing."""
        if not isinstance(value, dict):
            return []
        self.active = True
        after, items = _number(value.get("after")), value.get("events")
        if self.seq is None:
            self.seq = after or 0
        elif after is not None and after > self.seq:
            self.behind = True
            return []
        self.behind = False
        events: list[Event] = []
        for item in cast("list[object]", items) if isinstance(items, list) else []:
            record = _decode_record(item)
            if record is None or record.event is None:
                events.append(LossNoted(feature="custom", how=_INVALID))
            if record is not None and record.seq > self.seq and not self.stopped:
                self.seq, self.task_id = record.seq, record.task_id or self.task_id
                events += self._read_record(record)
        if _number(value.get("next")) is not None and not self.stopped:
            self.behind = True
        return events

    def _read_record(self, record: _ReceivedRecord) -> Sequence[Event]:
        event = record.event
        if record.run_id in self._past_runs:
            if isinstance(event, TaskChanged):
                self.state = event.state
            return ()
        if record.run_id is not None:
            self.run_id = self.run_id or record.run_id
            if record.run_id != self.run_id:
                return ()
            self._has_begun = True
        # A task ends with its last run, even if no record of that run was read.
        if isinstance(event, TaskChanged) and event.state in TERMINAL:
            return self._change(event)
        return self._read_event(event) if self._has_begun and event is not None else ()

    def _read_event(self, event: Event) -> Sequence[Event]:
        """Return the events to emit for one event of the other gateway's run. Return none if the event only changes the
        state of the reader, or is not the agent's."""
        match event:
            case TaskChanged():
                return self._change(event)
            case RunEnded() if self._of_run:
                self.stopped = True
                return _pause(event) if event.status is RunStatus.PAUSED else (event,)
            case RunEnded():
                self._ended = event
                return ()
            case RunStarted() if event.is_restart and self._has_output:
                return (LossNoted(feature="artifact", how=_REPEATED),)
            case ArtifactAdded(origin="caller"):
                return ()
            case _ if isinstance(event, _RUN_EVENTS):
                self._has_output = True
                return (event,)
            case _:
                return ()

    def _change(self, event: TaskChanged) -> Sequence[Event]:
        """Return the event that ends the run, if the task has changed to a state in which it has ended or waits. Return
        none for other states."""
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
    """Return a `RunEnded` with the usage of a paused run. Return none if there is no usage: the questions already show
    that the run waits."""
    if not ended.usage:
        return ()
    return (RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=ended.usage),)


def blobs_of(event: Event) -> Sequence[FilePart]:
    """Return the files of an event of which only the hash was received. Their bytes must be fetched."""
    match event:
        case PartAdded(part=FilePart() as part) | ArtifactAdded(part=FilePart() as part):
            parts: Sequence[Any] = (part,)
        case InterruptRaised():
            parts = event.message.parts
        case _:
            return ()
    return [part for part in parts if isinstance(part, FilePart) and part.blob is not None and part.inline is None]


def with_bytes(event: Event, contents: Mapping[str, bytes | None]) -> Event:
    """Return the event with the bytes of its files. `contents` has the bytes by hash, or None for a file that is not
    available: its part keeps the name and other fields, but loses the hash."""

    def fill(part: Any) -> Any:
        if not isinstance(part, FilePart) or part.blob is None or part.blob not in contents:
            return part
        return part.replace(inline=contents[part.blob], blob=None)

    if isinstance(event, PartAdded | ArtifactAdded):
        return event.replace(part=fill(event.part))
    if isinstance(event, InterruptRaised):
        parts = tuple(map(fill, event.message.parts))
        return event.replace(message=event.message.replace(parts=parts))
    return event


def schema() -> JsonObject:
    """Return the JSON Schema of an envelope."""
    (record,), parts = msgspec.json.schema_components([Record], ref_template="#/$defs/{name}")
    parts["FilePart"]["properties"].pop("inline", None)  # an envelope never contains the bytes
    for name in ("key_id", "subject"):
        parts["RunCreated"]["properties"].pop(name, None)  # nor who the caller is
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
    """Return the JSON Schema of the members that the extension adds to a request."""
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
"""Key in `extra` of a question. Under it is the id that the agent's server has given to the question, and expects in
the answer."""


@dataclass(frozen=True, slots=True)
class Start:
    """State from which a run starts, if that is not the current state of its thread: the members `fork` and `state` of
    a request."""

    fork: Fork | None = None
    values: JsonObject = field(default_factory=dict[str, object])
    """Members that replace those of the state from which the run starts."""
    as_node: str | None = None

    def __bool__(self) -> bool:
        return self.fork is not None or bool(self.values)

    def apply(self, submission: Submission) -> Submission:
        """Return the submission with the fork, values and node of this start. Return it unchanged if the start is
        empty."""
        if not self:
            return submission
        return msgspec.structs.replace(submission, fork=self.fork, state=self.values, as_node=self.as_node)

    def check_absent(self) -> None:
        """Check that a request that answers a question names no start. Raises invalid if it does."""
        if self:
            raise FaultError(FaultCode.INVALID, "An answer continues from its question: leave out fork and state.")


@dataclass(frozen=True, slots=True)
class Request:
    """Decoded members that the extension adds to a request (`MORE_REQUESTS`)."""

    tools: Sequence[Any] | None = None
    message: Message | None = None
    messages: tuple[Message, ...] | None = None
    """Messages that replace all messages in the protocol's own form."""
    metadata: JsonObject | None = None
    answered: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Answers of the caller, by the ids of the questions."""
    declined: frozenset[str] = frozenset()
    """Ids of the questions that the caller declines."""
    uploads: tuple[FilePart, ...] = ()
    """Files that the caller uploads in addition to those in the messages, with their bytes."""
    ids: tuple[str, ...] = ()
    """Ids for the last messages of the request, in their order. The sender's state contains the messages under the same
    ids."""
    start: Start = field(default_factory=Start)


def decode_request(value: object) -> Request:
    """Return the members that the extension adds to a request. Unusable members are ignored, except for those with a
    caller's content. Raises invalid for an upload that is not a file, and for a malformed start."""
    if not isinstance(value, dict):
        return Request()
    members = cast("JsonObject", value)
    tools, answers = members.get("tools"), members.get("answers")
    entries = cast("list[object]", answers) if isinstance(answers, list) else []
    by_id = {str(each["interrupt_id"]): each for each in map(as_object, entries) if isinstance(each.get(_ID), str)}
    return Request(
        tools=cast("list[Any]", tools) if isinstance(tools, list) else None,
        message=next(iter(_messages([members.get("message")]) or ()), None),
        messages=_messages(members.get("messages")),
        metadata=_convert(members.get("metadata"), JsonObject),
        answered={
            id_: answer["value"]
            for id_, answer in by_id.items()
            if answer.get("action") != "decline" and "value" in answer
        },
        declined=frozenset(id_ for id_, answer in by_id.items() if answer.get("action") == "decline"),
        uploads=_decode_uploads(members.get("uploads")),
        ids=_decode_ids(members.get("ids")),
        start=_decode_start(members.get("fork"), members.get("state")),
    )


def _decode_start(fork: object, state: object) -> Start:
    """Return the start of a run from the members `fork` and `state` of a request. Raises invalid if they are
    malformed."""
    if fork is None and state is None:
        return Start()
    as_node = as_object(state).get("as_node")
    return Start(
        None if fork is None else _decode_fork(as_object(fork)),
        {} if state is None else _decode_values(as_object(state)),
        _decode_name(as_node, "state.as_node"),
    )


def _decode_fork(members: JsonObject) -> Fork:
    names = ("task_id", "run_id", "checkpoint_id", "thread_id")
    task_id, run_id, checkpoint, thread_id = (_decode_name(members.get(name), f"fork.{name}") for name in names)
    if sum(each is not None for each in (task_id, run_id, checkpoint)) != 1:
        raise FaultError(FaultCode.INVALID, "fork: It must name exactly one of task_id, run_id and checkpoint_id.")
    return Fork(task_id=task_id, run_id=run_id, checkpoint=checkpoint, thread_id=thread_id)


def _decode_values(state: JsonObject) -> JsonObject:
    values = state.get("values")
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
    items = cast("list[object]", value) if isinstance(value, list) else ()
    ids = tuple(each for each in items if isinstance(each, str) and 0 < len(each) <= _LONGEST_ID and "\0" not in each)
    return ids if len(ids) == len(items) == len({*ids}) else ()


_ID: Final = "interrupt_id"
_LONGEST_ID: Final = 200
"""Maximum length of an id in a request, in characters. Chosen."""


def _decode_uploads(value: object) -> tuple[FilePart, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else () if value is None else (None,)
    return tuple(map(_decode_upload, items))


def _decode_upload(value: object) -> FilePart:
    members = as_object(value)
    name, content, media_type = (members.get(each) for each in ("name", "bytes", "media_type"))
    if isinstance(name, str) and isinstance(content, str) and (media_type is None or isinstance(media_type, str)):
        with suppress(ValueError):
            return FilePart(name=name, media_type=media_type, inline=b64decode(content, validate=True))
    raise FaultError(FaultCode.INVALID, "uploads: Each upload must have a name, and bytes in base64.")


def _messages(value: object) -> tuple[Message, ...] | None:
    """Return the messages in a member of a request, or None if they are invalid or contain files. Files are sent in the
    protocol's own form, because a hash in a message could be that of another owner's file."""
    messages = _convert(value, tuple[Message, ...])
    if messages is None or any(map(has_bytes, messages)) or not all(map(_is_whole, messages)):
        return None
    return messages


def _is_whole(message: Message) -> bool:
    return is_extra(message.extra) and all(is_extra(part.extra) for part in message.parts)


def has_bytes(message: Message) -> bool:
    """Return True if a message has a file that is more than a URL: with bytes, or with the hash of stored bytes."""
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
    """Return the call without the files that its caller uploaded in addition to the messages, and these files.

    Return the call unchanged, and no files, if they cannot be sent separately: the call is an answer, the last message
    contains nothing else, or a file has no bytes or no name.
    """
    count = call.input.uploaded
    if not count or call.answers or not call.messages:
        return call, ()
    last = call.messages[-1]
    parts, files = last.parts[:-count], [part for part in last.parts[-count:] if isinstance(part, FilePart)]
    if not parts or len(files) != count or any(file.inline is None or file.name is None for file in files):
        return call, ()
    messages = (*call.messages[:-1], last.replace(parts=parts))
    return replace(call, input=call.input.replace(messages=messages, uploaded=0)), files


def encode_uploads(files: Sequence[FilePart]) -> JsonObject:
    """Return the member `uploads` of a request, with the bytes of the files in base64. Return an empty object if there
    are no files."""
    uploads: list[JsonObject] = [
        {
            "name": file.name,
            **({} if file.media_type is None else {"media_type": file.media_type}),
            "bytes": b64encode(file.inline or b"").decode(),
        }
        for file in files
    ]
    return {"uploads": uploads} if uploads else {}


def encode_ids(messages: Sequence[Message]) -> JsonObject:
    """Return the member `ids` of a request, with the ids of the messages. Return an empty object if a message has no
    id."""
    ids = [message.message_id for message in messages]
    return {"ids": ids} if ids and all(ids) else {}


def encode_start(call: Invocation, name: str = "") -> JsonObject:
    """Return the members `fork` and `state` of a request, if the run starts from another state. `name` is the key in
    `call.origin` under which the server's id of the run to fork is stored."""
    fork: JsonObject = {"fork": {"run_id": call.origin[name]}} if name in call.origin else {}
    return {**fork, "state": {"values": dict(call.state)}} if call.state else fork


def has_start(call: Invocation) -> bool:
    """Return True if the run starts from another state than the current one of its thread, so that the request has the
    members of `encode_start`."""
    return bool(call.origin or call.state)


def without_start(call: Invocation) -> Invocation:
    """Return the call without its start, to repeat it after the server has refused the start."""
    return replace(call, origin={}, state={})


_OVERLOADED: Final = frozenset(
    {FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT, FaultCode.LIMITED, FaultCode.QUEUE_FULL}
)


def is_refusal(error: FaultError) -> bool:
    """Return True if a server may accept the same call without a start: it has answered, and is not overloaded."""
    return error.fault.code not in _OVERLOADED


NOT_FORKED: Final = "the agent's server can no longer fork it; a new conversation receives the history"
"""Text of the loss that is reported if a server refuses the fork of a run."""


def encode_request(call: Invocation, past: Sequence[Record] = (), *, messages: Sequence[Message] = ()) -> JsonObject:
    """Return the members that the extension adds to a request: tools, answers, metadata, ids and messages.

    `past` are the records of the run's task, which contain its questions. `messages` are included unless they have
    files, which are sent in the protocol's own form.
    """
    request: JsonObject = {}
    tools = declared_tools(call.config)
    if tools is not None:  # in an answer, too: the run that continues has no other tools
        request["tools"] = tools
    if call.answers:
        ids = _question_ids(past)
        request["answers"] = [
            _encode_answer(answer, ids.get(answer.interrupt_id) or answer.interrupt_id) for answer in call.answers
        ]
    else:
        request |= {"metadata": dict(call.metadata)} if call.metadata else {}
        if len(call.input_messages) == len(call.messages):
            request |= encode_ids(call.messages)
    if messages and not any(map(has_bytes, messages)):
        request["messages"] = [msgspec.json.decode(msgspec.json.encode(_bare(message))) for message in messages]
    return request


def _question_ids(past: Sequence[Record]) -> Mapping[str | None, str | None]:
    """Return the server's ids of the questions in the records, by the gateway's ids of the questions."""
    return {
        record.event.interrupt_id: as_object(record.event.extra.get(_OWN)).get("id")
        for record in past
        if isinstance(record.event, InterruptRaised)
    }


def _encode_answer(answer: InterruptAnswered, question_id: str) -> JsonObject:
    return {_ID: question_id, **({"action": answer.action} if answer.action == "decline" else {"value": answer.value})}


def named_answers(call: Invocation, past: Sequence[Record]) -> list[JsonObject]:
    """Return the answers of a call with the server's ids of their questions, to be sent in a request. Return an empty
    list if an answer belongs to a question that has no such id. Only gateways that ask several questions at once send
    ids."""
    ids = _question_ids(past)
    answers = [(answer, ids.get(answer.interrupt_id)) for answer in call.answers]
    return [_encode_answer(answer, id_) for answer, id_ in answers if id_] if all(id_ for _, id_ in answers) else []


def _bare(message: Message) -> Message:
    return Message(role=message.role, name=message.name, parts=message.parts, metadata=message.metadata)


def config_of(request: Request) -> JsonObject:
    """Return the configuration of the run that a request asks for: the declarations of the caller's tools, if it has
    any."""
    return {} if request.tools is None else {"tools": list(request.tools)}


def _with_ids(request: Request, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages, of which the last ones have the ids in the request. Return them unchanged if there are more
    ids than messages."""
    count = len(request.ids)
    if not count or count > len(messages):
        return messages
    last = (message.replace(message_id=id_) for message, id_ in zip(messages[-count:], request.ids, strict=True))
    return (*messages[:-count], *last)


def with_uploads(request: Request, messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with the ids in the request, and with its uploads as the last parts of the caller's last
    message. `RunInput.uploaded` is the number of these parts."""
    messages = _with_ids(request, tuple(messages))
    if not request.uploads:
        return messages
    if messages and messages[-1].role == "user":
        return (*messages[:-1], messages[-1].replace(parts=(*messages[-1].parts, *request.uploads)))
    return (*messages, Message(role="user", parts=request.uploads))


def messages_of(request: Request) -> tuple[Message, ...] | None:
    """Return the messages in the member `messages` of a request, without ids: the gateway assigns new ones. Return None
    if there is no such member."""
    return None if request.messages is None else tuple(map(_bare, request.messages))


def answer_message(value: Json) -> Message:
    """Return the value of an answer as a message of the caller, for agents that expect a message."""
    part = TextPart(text=value) if isinstance(value, str) else DataPart(data=value)
    return Message(role="user", parts=(part,))


def answer_messages(request: Request, native: Message) -> tuple[Message, ...]:
    """Return the messages of a request that answers questions.

    They are the messages in the extension's member, if there are any. Otherwise they are the extension's answers as
    messages, or `native`, the message in the protocol's own form, if there are no answers or if it has files.
    """
    messages = messages_of(request)
    if messages:
        return messages
    if has_bytes(native) or not request.answered:
        return (native,)
    return tuple(map(answer_message, request.answered.values()))


def take_answer(request: Request, interrupt_id: str, value: Json, native: Message) -> tuple[Json, Message]:
    """Return the value of the answer to the question `interrupt_id`, and the message that contains it. If the extension
    has an answer to this question, it replaces `value`, and also the message `native`, unless that has files."""
    if interrupt_id not in request.answered:
        return value, native
    value = request.answered[interrupt_id]
    return value, native if has_bytes(native) else answer_message(value)


def named_question(event: InterruptRaised) -> InterruptRaised:
    """Return a question of an agent's server with the server's id of it in `extra`. The answer needs this id, and the
    hub may give the question another one."""
    return event.replace(extra={**event.extra, _OWN: {"id": event.interrupt_id}})
