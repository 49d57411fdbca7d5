from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.codec.v0_3 import Codec as Codec_0_3
from babelgate.adapters.a2a.codec.v0_3_rest import Codec as RestCodec
from babelgate.adapters.a2a.codec.v1_0 import Codec
from babelgate.adapters.a2a.read.questions import questions
from babelgate.adapters.a2a.wire.task import Artifact, ArtifactUpdate, StatusUpdate, TaskSnapshot, Update
from babelgate.adapters.a2a.write.activity import TRAJECTORY
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.canonical import (
    DataPart,
    FilePart,
    Message,
    Part,
    Record,
    TaskState,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunStarted,
    TaskCreated,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.message import AnnotationPart, ToolResultPart, text_of
from tests.adapters.a2a.log import CONTEXT, TASK, Log, said, streamed, task_of
from tests.adapters.a2a.schema import Form, check
from tests.examples import examples
from tests.strategies import records as logs
from tests.strategies import resumed_logs, started_over

DIALECTS: tuple[type[Dialect], ...] = (Codec, Codec_0_3, RestCodec)
HELLO = Message(message_id="in", role="user", parts=(TextPart(text="Hello"),), extra={"a2a": {"messageId": "mine"}})


def written(records: Sequence[Record]) -> tuple[EventWriter, list[Update]]:
    writer = EventWriter(task_of(records), CONTEXT)
    return writer, [update for record in records for update in writer.write(record)]


def texts(updates: Sequence[Update]) -> list[tuple[str, bool, bool]]:
    return [
        (update.artifact.text, update.append, update.last) for update in updates if isinstance(update, ArtifactUpdate)
    ]


def test_a_whole_data_part_is_held_until_it_can_say_that_it_is_the_last() -> None:
    data, file = DataPart(data={"n": 1}), FilePart(name="a", inline=b"a")
    log = Log(HELLO).start().add(*said("m", PartAdded(part=data), PartAdded(part=file))).done()
    pieces = [update for update in written(log.records)[1] if isinstance(update, ArtifactUpdate)]
    assert [(piece.artifact.parts, piece.append, piece.last) for piece in pieces] == [
        ((data,), False, False),
        ((data, file), False, True),
    ]


def test_an_answer_without_parts_is_still_an_artifact_with_a_part() -> None:
    assert texts(written(Log(HELLO).start().add(*said("m")).done().records)[1]) == [("", False, True)]


def test_a_message_that_is_no_answer_leaves_no_artifact_and_no_hole_in_their_numbers() -> None:
    call = ToolCallPart(call_id="c", name="n", side="caller")
    log = Log(HELLO).start().add(*said("m", PartAdded(part=call)), *streamed("n", "Yes")).done()
    writer, _ = written(log.records)
    assert [artifact.artifact_id for artifact in writer.snapshot().artifacts] == ["answer-1"]
    assert [message.text for message in writer.snapshot().history] == ["Hello", "Yes"]


def doings(updates: Sequence[Update]) -> list[Any]:
    """What the agent is said to do: the parts, and the title and content of their trajectory."""
    messages = [update.status.message for update in updates if isinstance(update, StatusUpdate)]
    return [
        (said.parts, said.metadata[TRAJECTORY]["title"], said.metadata[TRAJECTORY].get("content"))
        for said in messages
        if said is not None and TRAJECTORY in said.metadata
    ]


def test_a_call_that_is_told_in_a_message_and_by_itself_is_shown_once() -> None:
    call = ToolCallPart(call_id="c", name="find", arguments='{"q": 1}')
    log = Log(HELLO).start().add(*said("m", PartAdded(part=call)))
    log.add(ToolStarted(call_id="c", name="find", input={"q": 1}), ToolEnded(call_id="c", name="find", output="x"))
    log.add(*said("n", PartAdded(part=ToolResultPart(call_id="c", output="x"))))
    _, updates = written(log.done().records)
    assert [(title, content) for _, title, content in doings(updates)] == [
        ("find (request)", '{"q": 1}'),
        ("find (response)", "x"),
    ]


def test_a_call_of_a_run_that_starts_over_is_shown_again() -> None:
    log = Log(HELLO).start().add(ToolStarted(call_id="c", name="find"))
    log.add(RunStarted(attempt=2), ToolStarted(call_id="c", name="find"))
    writer, updates = written(log.done().records)
    assert [title for _, title, _ in doings(updates)] == ["find (request)"] * 2
    assert len([said for said in writer.snapshot().history if TRAJECTORY in said.metadata]) == 1


def test_a_citation_of_nothing_is_a_loss() -> None:
    log = Log(HELLO).start().add(*said("m", PartAdded(part=AnnotationPart(url="u")))).done()
    assert set(written(log.records)[0].snapshot().metadata["babelgate"]["loss"]) == {"citation"}


def test_what_has_no_form_is_named_with_the_reason_on_the_last_event_and_on_the_task() -> None:
    call = ToolCallPart(call_id="c", name="n", side="caller")
    log = Log(HELLO).start().add(LossNoted(feature="step", how="upstream has none"))
    log.add(*said("m", PartAdded(part=call)), Custom(name="dance")).done()
    writer, updates = written(log.records)
    last = updates[-1]
    assert isinstance(last, StatusUpdate)
    assert last.metadata == {"babelgate": writer.snapshot().metadata["babelgate"]}
    assert set(last.metadata["babelgate"]["loss"]) == {"caller-tools", "custom", "step"}


def question(name: str, text: str, **more: Any) -> InterruptRaised:
    return InterruptRaised(
        interrupt_id=name, message=Message(message_id=f"m-{name}", parts=(TextPart(text=text),)), **more
    )


@pytest.mark.parametrize(
    ("more", "has_data"),
    [
        ({}, False),
        ({"value": "May I?"}, False),
        ({"value": 1}, True),
        ({"answer_schema": {"type": "string"}}, False),
        ({"answer_schema": {"type": "string"}, "value": 1}, True),
    ],
)
def test_a_question_that_says_all_in_words_has_no_data(more: dict[str, Any], has_data: bool) -> None:
    writer, _ = written(Log(HELLO).start().add(question("q1", "May I?", **more)).paused().records)
    message = writer.snapshot().status.message
    assert message is not None
    assert [part.kind for part in message.parts] == ["text", *(["data"] if has_data else [])]
    schema = {"schema": more["answer_schema"]} if "answer_schema" in more else {}
    assert message.metadata == {"babelgate": {"question": "q1", **schema}}
    [asked] = questions(message.parts, message.metadata)
    assert (asked.schema, asked.value) == (more.get("answer_schema"), more["value"] if has_data else None)


def test_structured_output_is_a_data_artifact_unless_it_was_said_already() -> None:
    log = Log(HELLO).start().done(output={"n": 1})
    shown = written(log.records)[0].snapshot()
    mark = {"babelgate": {"kind": "output"}}
    assert shown.artifacts == (
        Artifact(artifact_id="output-1", name="output", parts=(DataPart(data={"n": 1}),), metadata=mark),
    )
    assert shown.metadata["babelgate"]["output"] == {"n": 1}
    log = Log(HELLO).start().add(*said("m", PartAdded(part=DataPart(data={"n": 1})))).done(output={"n": 1})
    assert [artifact.artifact_id for artifact in written(log.records)[0].snapshot().artifacts] == ["answer-1"]


def test_an_upload_of_a_caller_is_no_output_of_the_task() -> None:
    log = Log(HELLO).start().add(ArtifactAdded(artifact_id="u", part=TextPart(text="x"), origin="caller")).done()
    assert written(log.records)[0].snapshot().artifacts == ()


def test_a_task_that_continues_another_refers_to_it_in_its_first_message() -> None:
    created = TaskCreated(task_id=TASK, agent="echo", continues="t0", references=("t0", "t9"))
    first = written(Log(HELLO, created=created).records)[0].snapshot().history[0]
    assert Codec("http://g", "echo").encode_message(first, CONTEXT, TASK)["referenceTaskIds"] == ["t0", "t9"]


# Properties


def folded(updates: Sequence[Update], first: TaskSnapshot) -> dict[str, str]:
    """What a client has in the end: the text and data of each artifact, pieced together."""
    artifacts: dict[str, list[Part]] = {
        artifact.artifact_id or "": list(artifact.parts) for artifact in first.artifacts
    }
    for update in updates:
        if isinstance(update, ArtifactUpdate):
            name = update.artifact.artifact_id or ""
            artifacts[name] = [*(artifacts[name] if update.append else []), *update.artifact.parts]
    return {name: content(parts) for name, parts in artifacts.items()}


def content(parts: Sequence[Part]) -> str:
    """Pieces of text run together, whatever their number."""
    other = [part for part in parts if not isinstance(part, TextPart)]
    return text_of(list(parts)) + repr(other)


@examples(40)
@given(resumed_logs())
def test_a_run_that_was_taken_up_is_streamed_as_if_nothing_had_cut_it(made: tuple[list[Record], list[Record]]) -> None:
    (writer, updates), (as_if, others) = map(written, made)
    assert updates == others
    assert writer.snapshot() == as_if.snapshot()


def test_what_a_run_said_before_it_started_over_is_replaced_also_where_the_last_attempt_says_less() -> None:
    log = Log(HELLO).start().add(*streamed("m", "one ", "two"), *streamed("n", "more"))
    log.add(ArtifactAdded(artifact_id="a", name="a.txt", part=TextPart(text="old")))
    log.add(RunStarted(attempt=2), *streamed("o", "one"))
    for again in (False, True):
        if again:  # and once more
            log.add(RunStarted(attempt=3), *streamed("p", "three"))
        writer, updates = written(log.records)
        whole = [update for update in updates if isinstance(update, ArtifactUpdate) and not update.append]
        # Without those that only say all of it again, at its end.
        replaced = [update for update in whole if not update.last or update.artifact.text in ("", "old")]
        names = [(update.artifact.artifact_id, update.artifact.text) for update in replaced]
        void = ["answer-1", "answer-2", "a"]
        shown = [
            ("answer-1", "one "),
            ("answer-2", "more"),
            ("a", "old"),
            *((name, "") for name in void),
            ("answer-1", "one"),
        ]
        assert names == shown + [("answer-1", ""), ("answer-1", "three")] * again
        works = [update.status for update in updates if isinstance(update, StatusUpdate)]
        assert [status.state for status in works] == [TaskState.WORKING] * (2 + again)
        task = writer.snapshot()
        assert [a.text for a in task.artifacts] == ["three" if again else "one", "", ""]
        assert [message.text for message in task.history] == ["Hello", "three" if again else "one"]


def test_a_remark_of_an_attempt_that_is_void_is_taken_back() -> None:
    remark = [MessageStarted(message_id="m", phase="progress"), PartAdded(message_id="m", part=TextPart(text="Hm."))]
    log = Log(HELLO).start().add(*remark, MessageEnded(message_id="m"), RunStarted(attempt=2)).done()
    writer, updates = written(log.records)
    assert [update.status.message is None for update in updates if isinstance(update, StatusUpdate)] == [
        True,
        False,
        True,
        True,
    ]
    assert [message.text for message in writer.snapshot().history] == ["Hello"]


def test_of_a_run_that_names_what_is_void_all_else_stands() -> None:
    log = Log(HELLO).start().add(*streamed("m", "one"), *streamed("n", "two"), RunStarted(attempt=2, void=("n",)))
    writer, _ = written(log.add(*streamed("o", "three")).done().records)
    assert [(a.artifact_id, a.text) for a in writer.snapshot().artifacts] == [
        ("answer-1", "one"),
        ("answer-2", "three"),
    ]
    assert [message.text for message in writer.snapshot().history] == ["Hello", "one", "three"]


@examples(40)
@given(started_over())
def test_of_a_run_that_was_started_over_the_last_attempt_holds(made: tuple[list[Record], list[Record]]) -> None:
    (writer, updates), (as_if, _) = map(written, made)
    shown, whole = writer.snapshot(), as_if.snapshot()
    # One that takes the place of a void one stands where that stood: their order is no matter of theirs. One that is
    # not said again stays, empty: there is no update that takes it away.
    said = {each.artifact_id: each for each in whole.artifacts}
    stays = {each.artifact_id for each in shown.artifacts if each.parts == (TextPart(text=""),)} - set(said)
    assert {each.artifact_id: each for each in shown.artifacts if each.artifact_id not in stays} == said
    assert len(shown.artifacts) == len(said) + len(stays)
    assert shown.history == whole.history
    assert shown.status.state == whole.status.state
    streamed: dict[str, str] = {}
    for update in updates:
        if isinstance(update, ArtifactUpdate):
            name = update.artifact.artifact_id
            streamed[name] = (streamed[name] if update.append else "") + update.artifact.text
    assert streamed == {name: artifact.text for name, artifact in said.items()} | dict.fromkeys(stays, "")


@examples(150)
@given(logs(), st.data())
def test_a_fetched_task_is_the_fold_of_any_stream_that_led_to_it(records: list[Record], data: st.DataObject) -> None:
    writer = EventWriter(task_of(records), CONTEXT)
    start = data.draw(st.integers(2, len(records)))
    before = [update for record in records[:start] for update in writer.write(record)]
    first = writer.snapshot()
    updates = [update for record in records[start:] for update in writer.write(record)]
    last = writer.snapshot()
    check_pieces([*before, *updates])
    assert folded(updates, first) == {artifact.artifact_id: content(artifact.parts) for artifact in last.artifacts}
    states = [first.status, *(update.status for update in updates if isinstance(update, StatusUpdate))]
    assert states[-1] == last.status


def check_pieces(updates: Sequence[Update]) -> None:
    """The first piece of an artifact replaces, the others append, and the last says all of it."""
    pieces: dict[str | None, list[Part]] = {}
    for update in updates:
        if isinstance(update, ArtifactUpdate):
            name, parts = update.artifact.artifact_id, list(update.artifact.parts)
            if name in pieces and not update.append:
                assert update.last
                assert text_of(parts).startswith(text_of(pieces[name]))
                before, after = (
                    [part for part in each if not isinstance(part, TextPart)] for each in (pieces[name], parts)
                )
                assert after[: len(before)] == before
            assert update.append <= (name in pieces)
            pieces[name] = [*pieces.get(name, ()), *parts] if update.append else parts


@examples(100)
@given(logs(), st.sampled_from(DIALECTS))
def test_every_stream_fits_the_published_types(records: list[Record], dialect: type[Dialect]) -> None:
    codec = dialect("http://gateway", "echo")
    form: Form = codec.name  # pyright: ignore[reportAssignmentType]
    writer, updates = written(records)
    events = [check("event", form, codec.encode_update(update)) for update in updates]
    check("task", form, codec.encode_task(writer.snapshot()))
    check("sent", form, codec.encode_sent(writer.snapshot(), 1))
    assert events == [codec.encode_update(update) for update in written(records)[1]]
    if dialect is not Codec:  # `final` marks each status at which a stream of 0.3 closes, questions included
        finals = [event.get("statusUpdate", event).get("final", False) for event in events]
        assert finals == [isinstance(update, StatusUpdate) and update.status.is_stop for update in updates]
