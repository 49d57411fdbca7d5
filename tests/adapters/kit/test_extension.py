"""The Babelgate extension: envelopes, as they are written and read."""

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
    given_messages,
    is_named,
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
    RunEnded,
    RunStarted,
    TaskChanged,
)
from tests.submissions import make

SAID: Sequence[Event] = (
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


def test_what_a_run_said_is_read_and_what_its_gateway_did_is_not() -> None:
    reader = RecordReader()
    assert reader.read(envelope(0, records(RunStarted(), *SAID, *DONE))) == [*SAID, RunEnded(output={"words": 1})]
    assert reader.stopped
    assert (reader.run_id, reader.state) == ("r1", TaskState.COMPLETED)


def test_a_record_that_was_had_is_skipped_and_one_that_is_missing_is_noticed() -> None:
    reader = RecordReader()
    first, second, third = records(*SAID)
    assert reader.read(envelope(0, [first])) == [SAID[0]]
    assert reader.read(envelope(2, [third])) == []
    assert reader.behind
    assert reader.read(envelope(0, [first, second, third])) == list(SAID[1:])
    assert not reader.behind


def test_numbers_of_a_relay_that_knows_no_integers_are_read() -> None:
    told = envelope(0, records(*SAID))
    told["after"] = 0.0
    for each in told["events"]:
        each["seq"] = float(each["seq"])
    assert RecordReader().read(told) == list(SAID)


def test_records_of_another_run_of_the_task_are_not_this_ones() -> None:
    reader = RecordReader("r2")
    asked = [*SAID, TaskChanged(state=TaskState.INPUT_REQUIRED)]
    answered = records(*SAID, *DONE, first=5, run_id="r2")
    assert reader.read(envelope(0, [*records(*asked), *answered])) == [*SAID, RunEnded(output={"words": 1})]


def test_runs_that_were_read_before_are_not_read_again_where_the_own_is_not_known_yet() -> None:
    asked = records(*SAID, RunEnded(), TaskChanged(state=TaskState.INPUT_REQUIRED))
    answered = records(*SAID, *DONE, first=6, run_id="r2")
    reader = RecordReader(past_runs={"r1"})
    assert reader.read(envelope(0, asked)) == []
    assert (reader.run_id, reader.state, reader.stopped) == (None, TaskState.INPUT_REQUIRED, False)
    assert reader.read(envelope(5, answered)) == [*SAID, RunEnded(output={"words": 1})]
    assert (reader.run_id, reader.stopped) == ("r2", True)


def test_a_task_that_is_cancelled_while_it_waits_has_ended_without_a_run() -> None:
    reader = RecordReader(past_runs={"r1"})
    cancelled = Record(seq=9, at=1, task_id="t1", run_id=None, attempt=0, event=TaskChanged(state=TaskState.CANCELLED))
    assert reader.read(envelope(0, [cancelled])) == [RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)]


def test_an_event_of_an_unknown_kind_is_kept_and_one_that_is_none_is_a_loss() -> None:
    told: dict[str, Any] = {"after": 0, "events": []}
    for seq, event in enumerate(({"kind": "sang", "tune": "x"}, {"kind": "part_added", "part": 1}, 3, None), 1):
        told["events"].append({"seq": seq, "run_id": "r1", "event": event})
    reader = RecordReader()
    found = reader.read(told)
    assert found[0] == Native(protocol="babelgate", event="sang", data={"kind": "sang", "tune": "x"})
    assert [type(each) for each in found[1:]] == [LossNoted] * 3


NONE = ("null", "3", '"x"', "[]", "{}", '{"events": 1}', '{"after": "x", "events": [1, {}]}')


@pytest.mark.parametrize("value", NONE)
def test_nothing_that_is_no_envelope_is_fatal(value: str) -> None:
    assert all(isinstance(each, LossNoted) for each in RecordReader().read(msgspec.json.decode(value)))


def test_a_run_that_starts_over_is_told_as_a_loss() -> None:
    reader = RecordReader()
    found = reader.read(envelope(0, records(*SAID, RunStarted(attempt=2))))
    assert [type(each) for each in found] == [MessageStarted, PartAdded, MessageEnded, LossNoted]


def test_a_task_that_ends_without_its_run_ends_the_run() -> None:
    found = RecordReader().read(envelope(0, records(TaskChanged(state=TaskState.CANCELLED))))
    assert found == [RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)]


def test_a_slice_is_bounded_and_says_where_the_rest_begins() -> None:
    told = Slice()
    for record in records(*(Custom(value="x" * (MAX_SLICE // 2)) for _ in range(3))):
        told.add(record)
    shown = told.envelope()
    assert ([each["seq"] for each in shown["events"]], shown["next"]) == ([1], 2)
    reader = RecordReader()
    assert len(reader.read(shown)) == 1
    assert reader.behind


def test_a_slice_is_no_larger_as_written_than_what_is_announced() -> None:
    told = Slice()
    for record in records(*(Custom(value="x") for _ in range(MAX_SLICE // 40))):
        told.add(record)
    shown = told.envelope()
    assert "next" in shown
    written = len(msgspec.json.encode(shown))
    (longest,) = {len(msgspec.json.encode(each)) for each in shown["events"][-1:]}
    assert params()["max_bytes"] - 2 * longest < written <= params()["max_bytes"]


def test_a_slice_has_one_record_however_large() -> None:
    told = Slice()
    told.add(*records(Custom(value="x" * MAX_SLICE * 2)))
    assert len(told.envelope()["events"]) == 1


def test_files_are_named_by_their_hash_and_filled_in() -> None:
    file = FilePart(name="a.bin", blob="0" * 64, size=1)
    (told,) = envelope(0, records(ArtifactAdded(artifact_id="a", part=file.replace(inline=b"x"))))["events"]
    assert "inline" not in told["event"]["part"]
    event = ArtifactAdded(artifact_id="a", part=file)
    assert list(blobs_of(event)) == [file]
    filled = with_bytes(event, {"0" * 64: b"x"})
    assert filled == ArtifactAdded(artifact_id="a", part=file.replace(inline=b"x", blob=None))


def test_a_request_says_what_its_protocol_has_no_field_for() -> None:
    tools = [{"name": "weather"}]
    parts = [{"kind": "refusal", "text": "No."}]
    answers = [{"interrupt_id": "i1", "action": "decline"}, {"interrupt_id": 3, "action": "decline"}, 4]
    found = decode_request({"tools": tools, "message": {"parts": parts}, "answers": answers})
    assert found.tools == tools
    assert found.message is not None
    assert [part.kind for part in found.message.parts] == ["refusal"]
    assert found.declined == {"i1"}


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
def test_a_request_that_says_nothing_of_use_is_one_without(value: Any) -> None:
    assert decode_request(value) == decode_request({})


def test_the_schema_has_every_kind_of_event_and_no_bytes() -> None:
    published = msgspec.json.encode(schema())
    assert b'"tool_started"' in published
    assert b'"inline"' not in published


CALLED: Any = {"agent": "a", "thread_id": "t1", "task_id": "t1", "run_id": "r1"}
ASKED = InterruptRaised(interrupt_id="there", message=Message.of("Name?"))


def test_what_a_call_says_beyond_its_protocol_is_read_as_it_was_said() -> None:
    said = Message(role="user", message_id="m1", parts=(RefusalPart(text="No."),), metadata={"a": 1})
    tools = [{"name": "weather"}]
    call = make(Invocation, **CALLED, messages=(said,), config={"tools": tools}, metadata={"b": 2})
    told = decode_request(encode_request(call, messages=call.messages))
    assert (told.tools, told.metadata) == (tools, {"b": 2})
    assert given_messages(told) == (said.replace(message_id=None),)


def test_answers_name_their_questions_as_these_are_called_there() -> None:
    asked = named_question(ASKED).replace(interrupt_id="here")
    answers = (InterruptAnswered(interrupt_id="here", value=1), InterruptAnswered(interrupt_id="i2", action="decline"))
    told = decode_request(encode_request(make(Invocation, **CALLED, answers=answers), records(asked)))
    assert (told.answered, told.declined) == ({"there": 1}, {"i2"})


def test_answers_by_the_ids_of_questions_are_the_messages_of_a_request_that_says_no_others() -> None:
    native = Message.of("See beside.", "user")
    told = decode_request({"answers": [{"interrupt_id": "i1", "value": "Ada"}, {"interrupt_id": "i2", "value": [1]}]})
    said = answer_messages(told, native)
    assert [message.parts for message in said] == [(TextPart(text="Ada"),), (DataPart(data=[1]),)]
    with_file = native.replace(parts=(FilePart(inline=b"x"),))
    assert answer_messages(told, with_file) == (with_file,)
    assert answer_messages(decode_request({}), native) == (native,)


def test_messages_with_files_are_told_natively() -> None:
    message = Message(role="user", parts=(FilePart(inline=b"x"),))
    assert encode_request(make(Invocation, **CALLED, messages=(message,)), messages=(message,)) == {}


FILE = FilePart(name="a.bin", media_type="application/x-a", inline=b"\0\xff")
WORDS = Message(role="user", parts=(TextPart(text="Look."), FILE))


def test_uploads_leave_the_message_and_come_back_as_its_last_files() -> None:
    call, files = split_uploads(uploading(WORDS))
    assert call.messages == (WORDS.replace(parts=WORDS.parts[:1]),)
    told = decode_request(msgspec.json.decode(msgspec.json.encode(encode_uploads(files))))
    assert with_uploads(told, call.messages) == (WORDS,)


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", parts=(FILE,)),
        WORDS.replace(parts=(*WORDS.parts[:1], FILE.replace(name=None))),
        WORDS.replace(parts=(*WORDS.parts[:1], FILE.replace(inline=None, blob="0" * 64))),
    ],
)
def test_an_upload_that_cannot_be_told_stays_a_file_of_the_message(message: Message) -> None:
    assert split_uploads(uploading(message)) == (uploading(message), ())


@pytest.mark.parametrize(
    "uploads",
    [3, {}, [3], [{"name": "a"}], [{"name": 1, "bytes": ""}], [{"name": "a", "bytes": "?"}],
     [{"name": "a", "bytes": "", "media_type": 1}], [{"name": "a", "bytes": "ü"}]],
)  # fmt: skip
def test_an_upload_that_is_no_file_is_refused(uploads: Any) -> None:
    with pytest.raises(FaultError, match="upload"):
        decode_request({"uploads": uploads})


def uploading(message: Message) -> Invocation:
    return Invocation(**CALLED, input=RunInput(messages=(message,), uploaded=1))


@pytest.mark.parametrize(("header", "named"), [(None, False), ("urn:x", False), (f"urn:x, {URI}", True)])
def test_a_header_names_it_among_others(header: str | None, named: bool) -> None:
    assert is_named(header) is named


def test_a_stream_of_a_run_ends_with_the_run() -> None:
    reader = RecordReader(of_run=True)
    ended = RunEnded(output={"words": 1})
    assert reader.read(envelope(0, records(RunStarted(), *SAID, ended))) == [*SAID, ended]
    assert reader.stopped
    paused = RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT)
    assert RecordReader(of_run=True).read(envelope(0, records(*SAID, paused))) == list(SAID)
