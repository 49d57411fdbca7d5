"""Replies of A2A servers, in every spelling, are read as events."""

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.canonical import (
    DataPart,
    Event,
    FaultCode,
    FaultError,
    FilePart,
    Record,
    RefusalPart,
    RunStatus,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunEnded,
    RunStarted,
    UpstreamBound,
)
from babelgate.canonical.replay import without_voided
from tests.adapters.a2a.replies import DONE, RUN, artifact, status, task, text, transcript_of

T = TypeVar("T")


def read(*replies: Any, reader: EventReader | None = None) -> list[Event]:
    """Return the events of the replies, like a client: a message is the answer once the stream has ended."""
    reader = reader or EventReader(RUN)
    events = [event for reply in replies for event in reader.read(reply)]
    return [*events, *reader.close()] if reader.replied and not reader.is_stopped else events


def of_type(events: Sequence[Event], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def logged(events: Sequence[Event], run_id: str = RUN) -> list[Record]:
    """Return the log of a run with these events, whose ids are filled."""
    return [Record(i, i, "k", run_id, 1, event) for i, event in enumerate(transcript_of(events).events, start=1)]


# Text


def test_pieces_of_a_text_artifact_are_one_message() -> None:
    events = read(
        task(),
        artifact(text("one")),
        artifact(text(" two"), append=True),
        artifact(text(""), append=True, lastChunk=True),
        DONE,
    )
    assert events[0] == UpstreamBound(protocol="a2a", ids={"task": "t", "context": "c"})
    assert [event.text for event in of_type(events, PartDelta)] == [" two"]
    [message] = transcript_of(events).messages
    assert (message.text, message.phase) == ("one two", "answer")
    assert of_type(events, MessageStarted)[0].extra == {"a2a": {"artifactId": "a"}}
    assert not of_type(events, RunEnded)


def test_stream_of_0_3_gives_the_same_events() -> None:
    piece = {"kind": "artifact-update", **IDS}
    old = read(
        {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "submitted"}},
        {"kind": "status-update", **IDS, "status": {"state": "working"}, "final": False},
        {**piece, "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "one"}]}},
        {**piece, "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": " two"}]}, "append": True},
        {"kind": "status-update", **IDS, "status": {"state": "completed"}, "final": True},
    )
    assert old == read(task(), artifact(text("one")), artifact(text(" two"), append=True), DONE)


@pytest.mark.parametrize("state", ["completed", "COMPLETED", "TASK_STATE_COMPLETED", "task_state_completed"])
def test_every_spelling_of_a_state_is_recognized(state: str) -> None:
    reader = EventReader(RUN)
    read({"kind": "status-update", "taskId": "t", "status": {"state": state}}, reader=reader)
    assert reader.is_stopped


@pytest.mark.parametrize("state", ["canceled", "TASK_STATE_CANCELLED", "TASK_STATE_CANCELED"])
def test_cancelled_is_spelled_with_one_l_or_two(state: str) -> None:
    [_, ended] = read(status(state))
    assert isinstance(ended, RunEnded)
    assert ended.status is RunStatus.CANCELLED


@pytest.mark.parametrize("state", ["unknown", "TASK_STATE_UNSPECIFIED", "paused-for-lunch", None])
def test_unknown_state_does_not_end_the_task(state: str | None) -> None:
    reader = EventReader(RUN)
    read({"task": {"id": "t", "status": {"state": state}}}, reader=reader)
    assert not reader.is_stopped


IDS = {"taskId": "t", "contextId": "c"}
OLD_PART, ANSWER = {"kind": "text", "text": "Hi"}, [("Hi", "answer")]
CONTENT = {"messageId": "m", "role": "ROLE_AGENT", "content": [text("Hi")]}
SNAKE = {"artifact_update": {"task_id": "t", "artifact": {"artifact_id": "a", "parts": [text("Hi")]}}}
REMARK = {"messageId": "m", "role": "ROLE_AGENT", "parts": [text("Half way.")]}
HISTORY = [
    {"messageId": "1", "role": "ROLE_USER", "parts": [text("Hello")]},
    {"messageId": "2", "role": "ROLE_AGENT", "parts": [text("Hi")]},
]


def reply(message_id: str, *texts: str) -> dict[str, Any]:
    return {"message": {"messageId": message_id, "role": "ROLE_AGENT", "parts": [text(each) for each in texts]}}


MESSAGES: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "LangGraph's hybrid of both generations, by its shape": (
        [
            task("TASK_STATE_SUBMITTED"),
            {"kind": "artifact-update", **IDS, "artifact": {"artifactId": "a", "name": "Answer", "parts": [OLD_PART]}},
            {"kind": "status-update", **IDS, "status": {"state": "TASK_STATE_COMPLETED"}, "final": True},
        ],
        ANSWER,
    ),
    "content where others have parts, as in REST of 0.3": ([{"message": CONTENT}], ANSWER),
    "msg, as in REST of 0.3": ([{"msg": CONTENT}], ANSWER),
    "names in snake case": ([SNAKE], ANSWER),
    "two artifacts that grow at once": (
        [
            *(artifact(text(name), artifact_id=name) for name in "ab"),
            *(artifact(text(name), artifact_id=name, append=True) for name in "ab"),
            DONE,
        ],
        [("aa", "answer"), ("bb", "answer")],
    ),
    "a task that is behind takes nothing back": (
        [artifact(text("Hi")), task(artifacts=[{"artifactId": "a", "parts": [text("H")]}]), DONE],
        ANSWER,
    ),
    "text that is sent again, longer each time": (
        [artifact(text("one")), artifact(text("one two")), artifact(text("one two three")), DONE],
        [("one two three", "answer")],
    ),
    "a message while working is progress, once": (
        [status("TASK_STATE_WORKING", "Half way."), task(status={"message": REMARK}), artifact(text("Hi")), DONE],
        [("Half way.", "progress"), *ANSWER],
    ),
    "the message of completed, where there was no answer": ([task(), status("TASK_STATE_COMPLETED", "Hi")], ANSWER),
    "the message of completed, after an answer": (
        [artifact(text("Hi")), status("TASK_STATE_COMPLETED", "All went well.")],
        [*ANSWER, ("All went well.", "progress")],
    ),
    "the message of completed, which repeats it": (
        [artifact(text("Hi")), status("TASK_STATE_COMPLETED", "Hi")],
        ANSWER,
    ),
    "messages of one id, the first and the last of them empty": (
        [reply("r"), reply("r", "Do"), reply("r", "ne"), reply("r", "."), reply("r")],
        [("Done.", "answer")],
    ),
    "messages of an id each": ([reply("r1", "Do"), reply("r2", "ne.")], [("Done.", "answer")]),
    "a message before a task": (
        [reply("r1", "Wait."), task(), artifact(text("Hi")), DONE],
        [("Wait.", "progress"), *ANSWER],
    ),
    "an answer in the history only": ([task("TASK_STATE_COMPLETED", history=HISTORY)], ANSWER),
    "no answer in the history": ([task("TASK_STATE_COMPLETED", history=HISTORY[:1])], []),
}


@pytest.mark.parametrize(("replies", "messages"), MESSAGES.values(), ids=MESSAGES)
def test_replies_become_messages(replies: list[Any], messages: list[tuple[str, str]]) -> None:
    assert [(message.text, message.phase) for message in transcript_of(read(*replies)).messages] == messages


def test_messages_of_one_id_are_one_answer() -> None:
    data = {"data": {"n": 1}}
    replies = [
        {"message": {"messageId": "r", "parts": parts}} for parts in ([text("a")], [text("b"), data], [text("c")])
    ]
    [message] = transcript_of(read(*replies)).messages
    assert [part.kind for part in message.parts] == ["text", "data", "text"]
    assert message.parts[0] == TextPart(text="ab")


EMPTY = artifact(text(""), append=False, lastChunk=True)
ONE_TWO = [artifact(text("one ")), artifact(text("two"), append=True, lastChunk=True)]


@pytest.mark.parametrize(
    ("replies", "texts"),
    [
        ([artifact(text("one")), artifact(text("two")), DONE], ["one", "two"]),
        ([*ONE_TWO, EMPTY, artifact(text("one")), artifact(text(" more"), append=True), DONE], ["one two", "one more"]),
    ],
)
def test_replaced_answer_is_a_second_answer_and_a_loss(replies: list[Any], texts: list[str]) -> None:
    events = read(*replies)
    assert [message.text for message in transcript_of(events).messages] == texts
    assert [event.feature for event in of_type(events, LossNoted)] == ["artifact"]


def test_text_artifact_without_text_is_an_empty_answer() -> None:
    events = read(task(), artifact(text(""), lastChunk=True), DONE)
    [message] = transcript_of(events).messages
    assert message.parts == (TextPart(text=""),)


def test_data_and_files_after_text_join_its_message() -> None:
    events = read(
        artifact(text("see")),
        artifact({"data": {"n": 1}}, append=True),
        artifact({"raw": "AAE=", "mediaType": "image/png"}, append=True, lastChunk=True),
        DONE,
    )
    [message] = transcript_of(events).messages
    assert [part.kind for part in message.parts] == ["text", "data", "file"]


def test_marked_refusal_is_a_refusal() -> None:
    marked = {"text": "no", "metadata": {"babelgate": {"kind": "refusal"}, "x": 1}}
    [message] = transcript_of(read(artifact(marked), DONE)).messages
    assert message.parts == (RefusalPart(text="no", metadata={"x": 1}),)


def test_unknown_fields_of_artifacts_and_parts_are_in_extra() -> None:
    update = artifact({"text": "x", "tone": "calm"}, extensions=["urn:x"])
    update["artifactUpdate"]["artifact"]["mood"] = "good"
    events = read(update)
    members = {"mood": "good", "extensions": ["urn:x"], "artifactId": "a"}
    assert of_type(events, MessageStarted)[0].extra == {"a2a": members}
    assert of_type(events, PartAdded)[0].part.extra == {"a2a": {"tone": "calm"}}


# Whole tasks after their pieces


def test_whole_task_adds_only_text_missing_from_pieces() -> None:
    whole = task(
        "TASK_STATE_COMPLETED", artifacts=[{"artifactId": "a", "parts": [text("one"), text(" two"), text(" three")]}]
    )
    events = read(artifact(text("one")), artifact(text(" two"), append=True), whole)
    assert transcript_of(events).text == "one two three"
    assert [event.text for event in of_type(events, PartDelta)] == [" two", " three"]


def test_interrupted_run_is_resumed_from_the_log() -> None:
    pieces = [
        task(),
        artifact(text("one")),
        status("TASK_STATE_WORKING", "half way"),
        artifact(text(" two"), append=True),
        artifact({"data": [1]}, append=True, lastChunk=True),
        artifact({"raw": "AAE=", "filename": "x.bin"}, artifact_id="f"),
    ]
    end = task(
        "TASK_STATE_COMPLETED",
        artifacts=[
            {"artifactId": "a", "parts": [text("one two"), {"data": [1]}]},
            {"artifactId": "f", "parts": [{"raw": "AAE=", "filename": "x.bin"}]},
        ],
    )
    for count in range(1, len(pieces) + 1):
        first = read(*pieces[:count])
        again = EventReader(RUN)
        again.recall(logged(first))
        rest = read(end, reader=again)
        whole = transcript_of([*first, *rest])
        assert [message.text for message in whole.messages if message.phase == "answer"] == ["one two"], count
        assert len([event for event in whole.events if isinstance(event, ArtifactAdded)]) == 1
        assert len([event for event in whole.events if isinstance(event, UpstreamBound)]) == 1


def test_next_run_does_not_repeat_earlier_answers() -> None:
    first = read(artifact(text("Two questions. ")), status("TASK_STATE_INPUT_REQUIRED", "Name?"))
    second = EventReader("33333333-3333-4333-8333-333333333333")
    second.recall(logged(first))
    before: dict[str, Any] = {"artifactId": "a", "parts": [text("Two questions. ")]}
    events = read(
        task(artifacts=[before]),
        artifact(text("Hello, "), artifact_id="b"),
        task("TASK_STATE_COMPLETED", artifacts=[before, {"artifactId": "b", "parts": [text("Hello, Ada.")]}]),
        reader=second,
    )
    assert transcript_of(events).text == "Hello, Ada."


def test_emptied_file_is_not_joined_with_its_replacement() -> None:
    old, new = ({"raw": content, "filename": "a.bin"} for content in ("b2xk", "bmV3"))
    events = read(artifact(old), artifact(text(""), append=False, lastChunk=True), artifact(new), DONE)
    added = [event for event in events if isinstance(event, ArtifactAdded)]
    assert [(event.append, event.part.inline) for event in added] == [(False, b"old"), (False, b"new")]  # type: ignore[union-attr]


def test_output_before_a_restart_is_ignored() -> None:
    first = logged(read(artifact(text("one"), artifact_id="old")))
    restart = Record(99, 99, "k", RUN, 2, RunStarted(attempt=2))
    second = logged(read(artifact(text("one"))))
    third = EventReader("33333333-3333-4333-8333-333333333333")
    third.recall(without_voided([*first, restart, *second]))
    whole = task(artifacts=[{"artifactId": "a", "parts": [text("one")]}, {"artifactId": "old", "parts": [text("x")]}])
    assert transcript_of(read(whole, reader=third)).text == "x"


# Messages and status


def test_message_without_a_task_is_the_whole_answer() -> None:
    reader = EventReader(RUN)
    message = {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [text("Hi")]}
    events = read({"message": message}, reader=reader)
    assert (transcript_of(events).text, reader.task_id, reader.is_stopped) == ("Hi", None, True)
    assert events[0] == UpstreamBound(protocol="a2a", ids={"context": "c"})


def test_missed_progress_is_read_from_the_history() -> None:
    first = read(task(), status("TASK_STATE_INPUT_REQUIRED", "Name?", "q"))
    reader = EventReader("33333333-3333-4333-8333-333333333333")
    reader.recall(logged(first))
    history = [
        {"messageId": "1", "role": "ROLE_USER", "parts": [text("Hello")]},
        {"messageId": "0", "role": "ROLE_AGENT", "parts": [text("Long ago.")]},
        {"messageId": "2", "role": "user", "parts": [text("Ada")]},
        {"messageId": "q", "role": "ROLE_AGENT", "parts": [text("Name?")]},
        {"messageId": "3", "role": "agent", "parts": [text("Half way.")]},
        {"messageId": "4", "role": "agent", "parts": [text("Hello, Ada.")]},
    ]
    whole = task(
        "TASK_STATE_COMPLETED", history=history, artifacts=[{"artifactId": "a", "parts": [text("Hello, Ada.")]}]
    )
    messages = transcript_of(read(task(history=history[:5]), whole, reader=reader)).messages
    assert [(each.text, each.phase) for each in messages] == [("Half way.", "progress"), ("Hello, Ada.", "answer")]


@pytest.mark.parametrize("state", ["TASK_STATE_FAILED", "rejected"])
def test_failure_has_the_message_of_the_status(state: str) -> None:
    ended = read(artifact(text("Before. ")), status(state, "Boom"))[-1]
    assert isinstance(ended, RunEnded) and ended.fault is not None
    assert (ended.status, ended.fault.code, ended.fault.message) == (RunStatus.ERROR, FaultCode.AGENT_FAILED, "Boom")
    assert ended.fault.details == ({"rejected": True} if state == "rejected" else {})


@pytest.mark.parametrize(
    ("upstream_code", "code"),
    [("agent_timeout", FaultCode.AGENT_TIMEOUT), ("invalid", FaultCode.AGENT_FAILED), (7, FaultCode.AGENT_FAILED)],
)
def test_upstream_fault_codes_pass_between_gateways(upstream_code: Any, code: FaultCode) -> None:
    update = status("TASK_STATE_FAILED", "Boom")
    update["statusUpdate"]["status"]["message"]["metadata"] = {"babelgate": {"fault": upstream_code}}
    ended = read(update)[-1]
    assert isinstance(ended, RunEnded) and ended.fault is not None
    assert ended.fault.code is code


def test_usage_and_losses_of_a_gateway_are_events() -> None:
    about = {"babelgate": {"usage": {"input_tokens": 3}, "loss": {"reasoning": "A2A has no field for it"}}}
    events = read(artifact(text("Hi")), status("TASK_STATE_COMPLETED", metadata=about))
    assert events[-2:] == [
        LossNoted(feature="reasoning", how="A2A has no field for it"),
        RunEnded(usage={"input_tokens": 3}),
    ]


# Questions


def test_interrupted_states_are_questions() -> None:
    for state, ask in (("TASK_STATE_INPUT_REQUIRED", "input"), ("auth-required", "auth")):
        reader = EventReader(RUN)
        question = read(status(state, "Name?"), reader=reader)[-1]
        assert isinstance(question, InterruptRaised)
        assert (question.ask, question.message.text, question.value, reader.is_stopped) == (ask, "Name?", None, True)


def test_several_questions_are_separated_by_their_data_parts() -> None:
    schema = {"type": "object"}
    parts = [
        text("Name?"),
        {"data": {"id": "1", "value": None}},
        text("May I?"),
        {"data": {"id": "2", "value": {"x": 1}, "schema": schema}},
    ]
    update = status("TASK_STATE_INPUT_REQUIRED")
    update["statusUpdate"]["status"]["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
    first, second = of_type(read(update), InterruptRaised)
    assert (first.interrupt_id, first.message.text, first.answer_schema) == ("1", "Name?", None)
    assert (second.interrupt_id, second.message.text, second.value, second.answer_schema) == (
        "2",
        "May I?",
        {"x": 1},
        schema,
    )
    assert second.extra == {"a2a": {"messageId": "m", "id": "2"}}


def test_two_questions_with_one_id_are_distinct() -> None:
    named = {"data": {"id": "1", "value": None}}
    update = status("TASK_STATE_INPUT_REQUIRED")
    update["statusUpdate"]["status"]["message"] = {"messageId": "m", "parts": [named, named]}
    assert [each.interrupt_id for each in of_type(read(update), InterruptRaised)] == ["1", None]


def test_langgraph_interrupt_artifact_is_a_question() -> None:
    interrupt = artifact({"data": {"id": "1", "value": "Name?"}}, {"data": {"id": "2", "value": [1]}}, name="Interrupt")
    events = read(task(), interrupt, status("TASK_STATE_INPUT_REQUIRED"))
    first, second = of_type(events, InterruptRaised)
    assert (first.interrupt_id, first.message.text) == ("1", "Name?")
    assert (second.interrupt_id, second.message.parts) == ("2", (DataPart(data=[1]),))
    assert transcript_of(events).text == ""


def test_answered_question_in_the_status_is_not_repeated() -> None:
    first = read(task(), status("TASK_STATE_INPUT_REQUIRED", "Name?", status={"timestamp": "T1"}))
    question = {"messageId": "m", "role": "ROLE_AGENT", "parts": [text("Name?")]}
    for stale in ({"message": question}, {"timestamp": "T1"}, {}):
        reader = EventReader("33333333-3333-4333-8333-333333333333")
        reader.recall(logged(first))
        assert not of_type(read(task("TASK_STATE_INPUT_REQUIRED", status=stale), reader=reader), InterruptRaised)
        assert not reader.is_stopped
        read(status("TASK_STATE_INPUT_REQUIRED", "Last name?", "m2"), reader=reader)
        assert reader.is_stopped


# Artifacts


def test_file_without_last_chunk_is_a_complete_artifact() -> None:
    [_, added] = read(artifact({"raw": "AAE=", "filename": "x.bin", "mediaType": "image/png"}, name="A picture"))
    assert isinstance(added, ArtifactAdded) and isinstance(added.part, FilePart)
    assert (added.name, added.part.name, added.part.inline, added.last) == ("A picture", "x.bin", b"\x00\x01", True)
    assert added.extra == {"a2a": {"artifactId": "a"}, "a2a.chunk": {"append": False, "lastChunk": False}}


def test_file_in_pieces_grows_until_the_last() -> None:
    events = read(
        artifact({"raw": "AAE="}, lastChunk=False),
        artifact({"raw": "AgM="}, append=True),
        artifact({"raw": "BAU="}, append=True, lastChunk=True),
    )
    added = of_type(events, ArtifactAdded)
    assert [(each.append, each.last) for each in added] == [(False, False), (True, False), (True, True)]
    assert len({each.artifact_id for each in added}) == 1
    transcript_of(events)


def test_text_with_a_file_name_is_an_artifact() -> None:
    assert of_type(read(artifact(text("x"), name="report.md")), ArtifactAdded)
    assert of_type(read(artifact({"text": "x", "filename": "report.md"})), ArtifactAdded)
    assert transcript_of(read(artifact(text("x"), name="Assistant Response"))).text == "x"


def test_file_sent_again_replaces_the_first() -> None:
    events = read(artifact({"raw": "AAE="}), artifact({"raw": "AgM="}), artifact({"raw": "AgM="}))
    assert [each.append for each in of_type(events, ArtifactAdded)] == [False, False]


def test_artifact_of_an_earlier_run_is_not_continued() -> None:
    first = read(artifact({"raw": "AAE="}), status("TASK_STATE_INPUT_REQUIRED", "More?"))
    second = EventReader("33333333-3333-4333-8333-333333333333")
    second.recall(logged(first))
    [more] = read(task(), artifact({"raw": "AgM="}, append=True), reader=second)[1:]
    assert isinstance(more, ArtifactAdded) and not more.append
    transcript_of([more])


# Unknown and invalid replies


def test_unknown_event_is_native_and_a_loss() -> None:
    assert read({}, None) == []
    noted, native = read({"kind": "thought-update", "x": 1})
    assert isinstance(noted, LossNoted)
    assert native == Native(protocol="a2a", event="thought-update", data={"kind": "thought-update", "x": 1})


def test_unknown_part_is_a_loss() -> None:
    events = read(artifact({}, {"kind": "form", "form": {}}, text("x")), DONE)
    assert transcript_of(events).text == "x"
    assert len(of_type(events, LossNoted)) == 1
    assert not of_type(events, RunEnded)
    assert isinstance(events[-1], MessageEnded)


@pytest.mark.parametrize(
    "reply",
    [
        {"task": {"id": ""}},
        {"task": {"id": "t", "status": {"state": 5}}},
        {"statusUpdate": {"taskId": "t"}},
        artifact({"text": "x", "url": "y"}),
        artifact({"raw": "!"}),
        artifact({"kind": "data", "text": "x"}),
    ],
)
def test_invalid_reply_breaks_the_protocol(reply: Any) -> None:
    with pytest.raises(FaultError) as caught:
        read(reply)
    assert caught.value.fault.code is FaultCode.INVALID
