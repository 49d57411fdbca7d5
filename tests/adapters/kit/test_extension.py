"""The Babelgate extension: encoding and decoding of its envelopes."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from babelgate.adapters.kit.extension import (
    MAX_SLICE,
    URI,
    RecordReader,
    Slice,
    answer_messages,
    blobs_of,
    decode_request,
    encode_request,
    encode_uploads,
    envelope,
    is_named,
    messages_of,
    named_question,
    params,
    schema,
    split_uploads,
    with_bytes,
    with_uploads,
)
from babelgate.canonical import (
    DataPart,
    Event,
    FaultError,
    FilePart,
    Invocation,
    Message,
    Record,
    RefusalPart,
    RunInput,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskChanged,
)
from tests.submissions import make

MESSAGE: Sequence[Event] = (
    MessageStarted(message_id="m1"),
    PartAdded(message_id="m1", part=TextPart(text="Hello")),
    MessageEnded(message_id="m1"),
)
DONE: Sequence[Event] = (RunEnded(output={"words": 1}), TaskChanged(state=TaskState.COMPLETED))


def records(*events: Event, first: int = 1, run_id: str = "r1") -> list[Record]:
    return [
        Record(seq=number, at=1, task_id="t1", run_id=run_id, attempt=1, event=event)
        for number, event in enumerate(events, first)
    ]


def test_events_of_the_agent_are_read_without_the_gateways() -> None:
    reader = RecordReader()
    assert reader.read(envelope(0, records(RunStarted(), *MESSAGE, *DONE))) == [*MESSAGE, RunEnded(output={"words": 1})]
    assert reader.stopped
    assert (reader.run_id, reader.state) == ("r1", TaskState.COMPLETED)


def test_the_key_and_name_of_the_caller_are_left_out() -> None:
    event = RunCreated(run_id="r", key_id="1a2b3c4d", subject="user:corp:1a2b3c4d")
    record = Record(seq=1, at=1, task_id="t", run_id="r", attempt=0, event=event)
    assert "1a2b3c4d" not in str(envelope(0, [record]))


def test_repeated_records_are_skipped_and_missing_ones_noticed() -> None:
    reader = RecordReader()
    first, second, third = records(*MESSAGE)
    assert reader.read(envelope(0, [first])) == [MESSAGE[0]]
    assert reader.read(envelope(2, [third])) == []
    assert reader.behind
    assert reader.read(envelope(0, [first, second, third])) == list(MESSAGE[1:])
    assert not reader.behind


def test_numbers_may_be_floats() -> None:
    value = envelope(0, records(*MESSAGE))
    value["after"] = 0.0
    for each in value["events"]:
        each["seq"] = float(each["seq"])
    assert RecordReader().read(value) == list(MESSAGE)


def test_records_of_another_run_of_the_task_are_skipped() -> None:
    reader = RecordReader("r2")
    events = [*MESSAGE, TaskChanged(state=TaskState.INPUT_REQUIRED)]
    later = records(*MESSAGE, *DONE, first=5, run_id="r2")
    assert reader.read(envelope(0, [*records(*events), *later])) == [*MESSAGE, RunEnded(output={"words": 1})]


def test_past_runs_are_skipped_while_there_is_no_run_id() -> None:
    first = records(*MESSAGE, RunEnded(), TaskChanged(state=TaskState.INPUT_REQUIRED))
    second = records(*MESSAGE, *DONE, first=6, run_id="r2")
    reader = RecordReader(past_runs={"r1"})
    assert reader.read(envelope(0, first)) == []
    assert (reader.run_id, reader.state, reader.stopped) == (None, TaskState.INPUT_REQUIRED, False)
    assert reader.read(envelope(5, second)) == [*MESSAGE, RunEnded(output={"words": 1})]
    assert (reader.run_id, reader.stopped) == ("r2", True)


def test_a_waiting_task_that_is_cancelled_ends_the_run() -> None:
    reader = RecordReader(past_runs={"r1"})
    cancelled = Record(seq=9, at=1, task_id="t1", run_id=None, attempt=0, event=TaskChanged(state=TaskState.CANCELLED))
    assert reader.read(envelope(0, [cancelled])) == [RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)]


def test_an_unknown_event_is_native_and_an_invalid_one_lost() -> None:
    value: dict[str, Any] = {"after": 0, "events": []}
    for seq, event in enumerate(({"kind": "sang", "tune": "x"}, {"kind": "part_added", "part": 1}, 3, None), 1):
        value["events"].append({"seq": seq, "run_id": "r1", "event": event})
    reader = RecordReader()
    events = reader.read(value)
    assert events[0] == Native(protocol="babelgate", event="sang", data={"kind": "sang", "tune": "x"})
    assert [type(each) for each in events[1:]] == [LossNoted] * 3


INVALID = ("null", "3", '"x"', "[]", "{}", '{"events": 1}', '{"after": "x", "events": [1, {}]}')


@pytest.mark.parametrize("value", INVALID)
def test_an_invalid_envelope_is_not_fatal(value: str) -> None:
    assert all(isinstance(each, LossNoted) for each in RecordReader().read(msgspec.json.decode(value)))


def test_a_restarted_run_is_a_loss() -> None:
    reader = RecordReader()
    events = reader.read(envelope(0, records(*MESSAGE, RunStarted(attempt=2))))
    assert [type(each) for each in events] == [MessageStarted, PartAdded, MessageEnded, LossNoted]


def test_a_task_that_ends_without_its_run_ends_the_run() -> None:
    events = RecordReader().read(envelope(0, records(TaskChanged(state=TaskState.CANCELLED))))
    assert events == [RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)]


def test_a_slice_is_limited_and_names_the_next_record() -> None:
    slice_ = Slice()
    for record in records(*(Custom(value="x" * (MAX_SLICE // 2)) for _ in range(3))):
        slice_.add(record)
    value = slice_.envelope()
    assert ([each["seq"] for each in value["events"]], value["next"]) == ([1], 2)
    reader = RecordReader()
    assert len(reader.read(value)) == 1
    assert reader.behind


def test_an_encoded_slice_is_within_the_announced_size() -> None:
    slice_ = Slice()
    for record in records(*(Custom(value="x") for _ in range(MAX_SLICE // 40))):
        slice_.add(record)
    value = slice_.envelope()
    assert "next" in value
    size = len(msgspec.json.encode(value))
    (longest,) = {len(msgspec.json.encode(each)) for each in value["events"][-1:]}
    assert params()["max_bytes"] - 2 * longest < size <= params()["max_bytes"]


def test_a_slice_has_at_least_one_record() -> None:
    slice_ = Slice()
    slice_.add(*records(Custom(value="x" * MAX_SLICE * 2)))
    assert len(slice_.envelope()["events"]) == 1


def test_files_are_sent_by_hash_and_completed_with_bytes() -> None:
    file = FilePart(name="a.bin", blob="0" * 64, size=1)
    (record,) = envelope(0, records(ArtifactAdded(artifact_id="a", part=file.replace(inline=b"x"))))["events"]
    assert "inline" not in record["event"]["part"]
    event = ArtifactAdded(artifact_id="a", part=file)
    assert list(blobs_of(event)) == [file]
    filled = with_bytes(event, {"0" * 64: b"x"})
    assert filled == ArtifactAdded(artifact_id="a", part=file.replace(inline=b"x", blob=None))


def test_a_request_is_decoded() -> None:
    tools = [{"name": "weather"}]
    parts = [{"kind": "refusal", "text": "No."}]
    answers = [{"interrupt_id": "i1", "action": "decline"}, {"interrupt_id": 3, "action": "decline"}, 4]
    request = decode_request({"tools": tools, "message": {"parts": parts}, "answers": answers})
    assert request.tools == tools
    assert request.message is not None
    assert [part.kind for part in request.message.parts] == ["refusal"]
    assert request.declined == {"i1"}


ODD: Final[Any] = {"extra": {"a2a": "x"}}


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        {"tools": 1, "message": 1, "answers": 1},
        {"message": {"parts": [1]}},
        {"message": {"parts": [], **ODD}},
        {"messages": [{"parts": [{"kind": "text", "text": "hi", **ODD}]}]},
    ],
)
def test_an_invalid_request_is_an_empty_one(value: Any) -> None:
    assert decode_request(value) == decode_request({})


def test_the_schema_has_every_kind_of_event_and_no_bytes() -> None:
    published = msgspec.json.encode(schema())
    assert b'"tool_started"' in published
    assert b'"inline"' not in published


IDS: Any = {"agent": "a", "thread_id": "t1", "task_id": "t1", "run_id": "r1"}
QUESTION = InterruptRaised(interrupt_id="there", message=Message.of("Name?"))


def test_an_encoded_invocation_is_decoded_unchanged() -> None:
    message = Message(role="user", message_id="m1", parts=(RefusalPart(text="No."),), metadata={"a": 1})
    tools = [{"name": "weather"}]
    call = make(Invocation, **IDS, messages=(message,), config={"tools": tools}, metadata={"b": 2})
    request = decode_request(encode_request(call, messages=call.messages))
    assert (request.tools, request.metadata) == (tools, {"b": 2})
    assert messages_of(request) == (message.replace(message_id=None),)


def test_answers_have_the_question_ids_of_the_upstream() -> None:
    question = named_question(QUESTION).replace(interrupt_id="here")
    answers = (InterruptAnswered(interrupt_id="here", value=1), InterruptAnswered(interrupt_id="i2", action="decline"))
    request = decode_request(encode_request(make(Invocation, **IDS, answers=answers), records(question)))
    assert (request.answered, request.declined) == ({"there": 1}, {"i2"})


def test_answers_replace_the_native_message_unless_it_has_files() -> None:
    native = Message.of("See the answers.", "user")
    request = decode_request(
        {"answers": [{"interrupt_id": "i1", "value": "Ada"}, {"interrupt_id": "i2", "value": [1]}]}
    )
    messages = answer_messages(request, native)
    assert [message.parts for message in messages] == [(TextPart(text="Ada"),), (DataPart(data=[1]),)]
    with_file = native.replace(parts=(FilePart(inline=b"x"),))
    assert answer_messages(request, with_file) == (with_file,)
    assert answer_messages(decode_request({}), native) == (native,)


def test_messages_with_files_are_not_in_the_extension() -> None:
    message = Message(role="user", parts=(FilePart(inline=b"x"),))
    assert encode_request(make(Invocation, **IDS, messages=(message,)), messages=(message,)) == {}


FILE = FilePart(name="a.bin", media_type="application/x-a", inline=b"\0\xff")
WORDS = Message(role="user", parts=(TextPart(text="Look."), FILE))


def test_uploads_are_split_off_and_restored_as_last_files() -> None:
    call, files = split_uploads(invocation_with_upload(WORDS))
    assert call.messages == (WORDS.replace(parts=WORDS.parts[:1]),)
    request = decode_request(msgspec.json.decode(msgspec.json.encode(encode_uploads(files))))
    assert with_uploads(request, call.messages) == (WORDS,)


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", parts=(FILE,)),
        WORDS.replace(parts=(*WORDS.parts[:1], FILE.replace(name=None))),
        WORDS.replace(parts=(*WORDS.parts[:1], FILE.replace(inline=None, blob="0" * 64))),
    ],
)
def test_an_upload_without_name_or_bytes_stays_in_the_message(message: Message) -> None:
    assert split_uploads(invocation_with_upload(message)) == (invocation_with_upload(message), ())


@pytest.mark.parametrize(
    "uploads",
    [3, {}, [3], [{"name": "a"}], [{"name": 1, "bytes": ""}], [{"name": "a", "bytes": "?"}],
     [{"name": "a", "bytes": "", "media_type": 1}], [{"name": "a", "bytes": "ü"}]],
)  # fmt: skip
def test_an_invalid_upload_is_rejected(uploads: Any) -> None:
    with pytest.raises(FaultError, match="upload"):
        decode_request({"uploads": uploads})


def invocation_with_upload(message: Message) -> Invocation:
    return Invocation(**IDS, input=RunInput(messages=(message,), uploaded=1))


@pytest.mark.parametrize(("header", "expected"), [(None, False), ("urn:x", False), (f"urn:x, {URI}", True)])
def test_a_header_may_name_several_extensions(header: str | None, expected: bool) -> None:
    assert is_named(header) is expected


def test_a_stream_of_a_run_ends_with_the_run() -> None:
    reader = RecordReader(of_run=True)
    ended = RunEnded(output={"words": 1})
    assert reader.read(envelope(0, records(RunStarted(), *MESSAGE, ended))) == [*MESSAGE, ended]
    assert reader.stopped
    paused = RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT)
    assert RecordReader(of_run=True).read(envelope(0, records(*MESSAGE, paused))) == list(MESSAGE)
