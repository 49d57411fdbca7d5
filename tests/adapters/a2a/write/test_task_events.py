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
from tests.adapters.a2a.schema import Form, check
from tests.adapters.log import CONTEXT, TASK, Log, message_events, streamed, task_of
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


def test_data_part_is_held_until_the_next_event() -> None:
    data, file = DataPart(data={"n": 1}), FilePart(name="a", inline=b"a")
    log = Log(HELLO).start().add(*message_events("m", PartAdded(part=data), PartAdded(part=file))).done()
    pieces = [update for update in written(log.records)[1] if isinstance(update, ArtifactUpdate)]
    assert [(piece.artifact.parts, piece.append, piece.last) for piece in pieces] == [
        ((data,), False, False),
        ((data, file), False, True),
    ]


def test_answer_without_parts_is_an_artifact_with_a_part() -> None:
    assert texts(written(Log(HELLO).start().add(*message_events("m")).done().records)[1]) == [("", False, True)]


def test_message_without_an_answer_leaves_no_gap_in_ids() -> None:
    call = ToolCallPart(call_id="c", name="n", side="caller")
    log = Log(HELLO).start().add(*message_events("m", PartAdded(part=call)), *streamed("n", "Yes")).done()
    writer, _ = written(log.records)
    assert [artifact.artifact_id for artifact in writer.snapshot().artifacts] == ["answer-1"]
    assert [message.text for message in writer.snapshot().history] == ["Hello", "Yes"]


def activities(updates: Sequence[Update]) -> list[Any]:
    """Return the messages about tool calls: their parts, and the title and content of their trajectory."""
    messages = [update.status.message for update in updates if isinstance(update, StatusUpdate)]
    return [
        (message.parts, message.metadata[TRAJECTORY]["title"], message.metadata[TRAJECTORY].get("content"))
        for message in messages
        if message is not None and TRAJECTORY in message.metadata
    ]


def test_call_in_a_message_and_an_event_has_one_update() -> None:
    call = ToolCallPart(call_id="c", name="find", arguments='{"q": 1}')
    log = Log(HELLO).start().add(*message_events("m", PartAdded(part=call)))
    log.add(ToolStarted(call_id="c", name="find", input={"q": 1}), ToolEnded(call_id="c", name="find", output="x"))
    log.add(*message_events("n", PartAdded(part=ToolResultPart(call_id="c", output="x"))))
    _, updates = written(log.done().records)
    assert [(title, content) for _, title, content in activities(updates)] == [
        ("find (request)", '{"q": 1}'),
        ("find (response)", "x"),
    ]


def test_call_is_repeated_after_a_restart() -> None:
    log = Log(HELLO).start().add(ToolStarted(call_id="c", name="find"))
    log.add(RunStarted(attempt=2), ToolStarted(call_id="c", name="find"))
    writer, updates = written(log.done().records)
    assert [title for _, title, _ in activities(updates)] == ["find (request)"] * 2
    assert len([each for each in writer.snapshot().history if TRAJECTORY in each.metadata]) == 1


def test_citation_without_text_is_a_loss() -> None:
    log = Log(HELLO).start().add(*message_events("m", PartAdded(part=AnnotationPart(url="u")))).done()
    assert set(written(log.records)[0].snapshot().metadata["babelgate"]["loss"]) == {"citation"}


def test_losses_are_on_the_last_event_and_the_task() -> None:
    call = ToolCallPart(call_id="c", name="n", side="caller")
    log = Log(HELLO).start().add(LossNoted(feature="step", how="upstream has none"))
    log.add(*message_events("m", PartAdded(part=call)), Custom(name="dance")).done()
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
def test_question_in_words_has_no_data_part(more: dict[str, Any], has_data: bool) -> None:
    writer, _ = written(Log(HELLO).start().add(question("q1", "May I?", **more)).paused().records)
    message = writer.snapshot().status.message
    assert message is not None
    assert [part.kind for part in message.parts] == ["text", *(["data"] if has_data else [])]
    schema = {"schema": more["answer_schema"]} if "answer_schema" in more else {}
    assert message.metadata == {"babelgate": {"question": "q1", **schema}}
    [read] = questions(message.parts, message.metadata)
    assert (read.schema, read.value) == (more.get("answer_schema"), more["value"] if has_data else None)


def test_structured_output_is_an_artifact_unless_already_answered() -> None:
    log = Log(HELLO).start().done(output={"n": 1})
    task = written(log.records)[0].snapshot()
    mark = {"babelgate": {"kind": "output"}}
    assert task.artifacts == (
        Artifact(artifact_id="output-1", name="output", parts=(DataPart(data={"n": 1}),), metadata=mark),
    )
    assert task.metadata["babelgate"]["output"] == {"n": 1}
    log = Log(HELLO).start().add(*message_events("m", PartAdded(part=DataPart(data={"n": 1})))).done(output={"n": 1})
    assert [artifact.artifact_id for artifact in written(log.records)[0].snapshot().artifacts] == ["answer-1"]


def test_upload_is_not_an_artifact_of_the_task() -> None:
    log = Log(HELLO).start().add(ArtifactAdded(artifact_id="u", part=TextPart(text="x"), origin="caller")).done()
    assert written(log.records)[0].snapshot().artifacts == ()


def test_first_message_references_the_continued_tasks() -> None:
    created = TaskCreated(task_id=TASK, agent="echo", continues="t0", references=("t0", "t9"))
    first = written(Log(HELLO, created=created).records)[0].snapshot().history[0]
    assert Codec("http://g", "echo").encode_message(first, CONTEXT, TASK)["referenceTaskIds"] == ["t0", "t9"]


# Properties


def folded(updates: Sequence[Update], first: TaskSnapshot) -> dict[str, str]:
    """Return the text and data of each artifact that a client has at the end."""
    artifacts: dict[str, list[Part]] = {
        artifact.artifact_id or "": list(artifact.parts) for artifact in first.artifacts
    }
    for update in updates:
        if isinstance(update, ArtifactUpdate):
            name = update.artifact.artifact_id or ""
            artifacts[name] = [*(artifacts[name] if update.append else []), *update.artifact.parts]
    return {name: content(parts) for name, parts in artifacts.items()}


def content(parts: Sequence[Part]) -> str:
    """Return the joined text and the other parts."""
    other = [part for part in parts if not isinstance(part, TextPart)]
    return text_of(list(parts)) + repr(other)


@examples(40)
@given(resumed_logs())
def test_resumed_run_is_streamed_like_an_uninterrupted_one(pair: tuple[list[Record], list[Record]]) -> None:
    (writer, updates), (uninterrupted, others) = map(written, pair)
    assert updates == others
    assert writer.snapshot() == uninterrupted.snapshot()


def test_restart_replaces_all_earlier_artifacts() -> None:
    log = Log(HELLO).start().add(*streamed("m", "one ", "two"), *streamed("n", "more"))
    log.add(ArtifactAdded(artifact_id="a", name="a.txt", part=TextPart(text="old")))
    log.add(RunStarted(attempt=2), *streamed("o", "one"))
    for again in (False, True):
        if again:
            log.add(RunStarted(attempt=3), *streamed("p", "three"))
        writer, updates = written(log.records)
        whole = [update for update in updates if isinstance(update, ArtifactUpdate) and not update.append]
        # Without the updates that only repeat a whole artifact at its end.
        replaced = [update for update in whole if not update.last or update.artifact.text in ("", "old")]
        names = [(update.artifact.artifact_id, update.artifact.text) for update in replaced]
        void = ["answer-1", "answer-2", "a"]
        expected = [
            ("answer-1", "one "),
            ("answer-2", "more"),
            ("a", "old"),
            *((name, "") for name in void),
            ("answer-1", "one"),
        ]
        assert names == expected + [("answer-1", ""), ("answer-1", "three")] * again
        statuses = [update.status for update in updates if isinstance(update, StatusUpdate)]
        assert [status.state for status in statuses] == [TaskState.WORKING] * (2 + again)
        task = writer.snapshot()
        assert [a.text for a in task.artifacts] == ["three" if again else "one", "", ""]
        assert [message.text for message in task.history] == ["Hello", "three" if again else "one"]


def test_restart_removes_voided_progress() -> None:
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


def test_restart_keeps_messages_that_are_not_void() -> None:
    log = Log(HELLO).start().add(*streamed("m", "one"), *streamed("n", "two"), RunStarted(attempt=2, void=("n",)))
    writer, _ = written(log.add(*streamed("o", "three")).done().records)
    assert [(a.artifact_id, a.text) for a in writer.snapshot().artifacts] == [
        ("answer-1", "one"),
        ("answer-2", "three"),
    ]
    assert [message.text for message in writer.snapshot().history] == ["Hello", "one", "three"]


@examples(40)
@given(started_over())
def test_last_attempt_replaces_the_earlier_ones(pair: tuple[list[Record], list[Record]]) -> None:
    (writer, updates), (last_only, _) = map(written, pair)
    task, whole = writer.snapshot(), last_only.snapshot()
    # A replacement is at the place of the voided artifact, so their order may differ. An artifact without a replacement
    # stays empty, because no update can remove it.
    artifacts = {each.artifact_id: each for each in whole.artifacts}
    emptied = {each.artifact_id for each in task.artifacts if each.parts == (TextPart(text=""),)} - set(artifacts)
    assert {each.artifact_id: each for each in task.artifacts if each.artifact_id not in emptied} == artifacts
    assert len(task.artifacts) == len(artifacts) + len(emptied)
    assert task.history == whole.history
    assert task.status.state == whole.status.state
    streamed: dict[str, str] = {}
    for update in updates:
        if isinstance(update, ArtifactUpdate):
            name = update.artifact.artifact_id
            streamed[name] = (streamed[name] if update.append else "") + update.artifact.text
    assert streamed == {name: artifact.text for name, artifact in artifacts.items()} | dict.fromkeys(emptied, "")


@examples(150)
@given(logs(), st.data())
def test_fetched_task_is_the_fold_of_its_stream(records: list[Record], data: st.DataObject) -> None:
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
    """Check that the first piece of an artifact replaces, the others append, and the last may repeat all of it."""
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
