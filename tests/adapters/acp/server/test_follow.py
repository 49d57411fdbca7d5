"""Events of a run: written from records, and read as events."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import EncodingContext
from babelgate.adapters.acp.read.run_events import EventReader, decode_event
from babelgate.adapters.acp.wire import TERMINAL
from babelgate.adapters.acp.write.run_events import EventWriter
from babelgate.adapters.acp.write.session import SessionTranscript, SessionUrls
from babelgate.adapters.kit.json import parse_json
from babelgate.canonical import (
    DataPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    Fold,
    Message,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
    ToolCallPart,
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
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.thread import Loss
from tests.examples import examples
from tests.strategies import EVERYTHING, T0, records, resumed_logs, started_over

VIEW = EncodingContext(run_id="r", session_id="s", agent="echo", base_url="http://gateway")
CARRIED = frozenset(
    {
        Feature.TEXT,
        Feature.DATA,
        Feature.FILE_URL,
        Feature.CITATION,
        Feature.CUSTOM,
        Feature.QUESTION,
        Feature.CANCEL,
        Feature.FAULT,
        Feature.STREAM,
    }
)


few = examples(40)
"""Fewer examples than by default, because random logs are slow to generate."""


def written(log: Iterable[Record]) -> list[w.Event]:
    writer = EventWriter(VIEW)
    return [event for record in log for event in writer.write(record)]


def sent(events: Iterable[w.Event]) -> list[bytes]:
    return [w.dump(event) for event in events]


def received(events: Iterable[w.Event]) -> list[w.Event]:
    return [decode_event(parse_json(raw)) for raw in sent(events)]


def log_with(*events: Event, at: int = T0) -> list[Record]:
    """Return the log of a task with these events."""
    whole = [TaskCreated(task_id="r", agent="echo"), RunCreated(run_id="x"), TaskChanged(state=TaskState.WORKING)]
    return [Record(seq, at + seq, "r", "x", 1, event) for seq, event in enumerate([*whole, *events], start=1)]


def kinds(events: Iterable[w.Event]) -> list[str]:
    return [event.type for event in events]


def parts_of(events: Iterable[w.Event]) -> list[w.MessagePart]:
    return [event.part for event in events if isinstance(event, w.PartEvent)]


def completed(events: Iterable[w.Event]) -> list[w.Message]:
    return [
        event.message for event in events if isinstance(event, w.MessageEvent) and event.type == "message.completed"
    ]


def wire_of(*events: Event) -> list[w.Event]:
    return written(log_with(*events))


DONE = (RunEnded(), TaskChanged(state=TaskState.COMPLETED))


def message(*parts: Part, message_id: str = "m", **started: Any) -> list[Event]:
    """Return the events of a message whose parts are complete."""
    added = [PartAdded(message_id=message_id, index=index, part=part) for index, part in enumerate(parts)]
    return [MessageStarted(message_id=message_id, **started), *added, MessageEnded(message_id=message_id)]


def streamed(first: TextPart | ReasoningPart, *more: str, **started: Any) -> list[Event]:
    """Return the events of a message with one part in pieces."""
    return [
        MessageStarted(message_id="m", **started),
        PartAdded(message_id="m", index=0, part=first, open=True),
        *(PartDelta(message_id="m", index=0, text=text) for text in more),
        PartEnded(message_id="m", index=0),
        MessageEnded(message_id="m"),
    ]


# Every stream


@few
@given(resumed_logs())
def test_a_reattached_run_streams_the_same_bytes(logs: tuple[list[Record], list[Record]]) -> None:
    cut, whole = logs
    assert sent(written(cut)) == sent(written(whole))


def test_a_restarted_run_keeps_only_output_that_is_not_voided() -> None:
    first_attempt = [*message(TextPart(text="one")), *message(TextPart(text="two"), message_id="n")]
    last = message(TextPart(text="three"), message_id="o")
    for void, remaining in ((None, []), (("n",), ["one"]), (("m",), ["two"]), ((), ["one", "two"])):
        events = wire_of(*first_attempt, RunStarted(attempt=2, void=void), *last, *DONE)
        runs = [event for event in events if isinstance(event, w.RunEvent)]
        outputs = [[part.content for message in event.run.output for part in message.parts] for event in runs]
        restarts = [remaining] if void != () else []
        assert outputs == [[], [], *restarts, [*remaining, "three"]]
        assert [event.type for event in runs[1:-1]] == ["run.in-progress"] * (1 + len(restarts))


def test_output_voided_by_another_gateway_is_a_loss() -> None:
    log = log_with(
        *message(TextPart(text="one")), RunStarted(attempt=2), *message(TextPart(text="two"), message_id="n"), *DONE
    )
    reader = EventReader("echo")
    events = [event for wire in received(written(log)) for event in reader.read(wire)]
    assert [event.feature for event in events if isinstance(event, LossNoted)] == ["text"]
    assert [event.kind for event in events].count("message_started") == 2


@few
@given(started_over())
def test_output_of_a_restarted_run_omits_voided_attempts(logs: tuple[list[Record], list[Record]]) -> None:
    writer, expected = EventWriter(VIEW), EventWriter(VIEW)
    for restarted, uninterrupted in zip(*logs, strict=True):
        snapshots = [event for event in writer.write(restarted) if isinstance(event, w.RunEvent)]
        expected.write(uninterrupted)
        assert all(event.run.output == writer.output for event in snapshots), "a snapshot has the output of its time"
    assert writer.run() == expected.run()


@few
@given(records(EVERYTHING))
def test_every_stream_follows_the_grammar(log: list[Record]) -> None:
    """Check the grammar of a stream.

    - At most one message is open, and none at a `run.*` event.
    - Parts come only within a message.
    - No event follows the end of the run.
    """
    events = written(log)
    assert events[0].type == "run.created"
    open_parts: list[w.MessagePart] | None = None
    output: list[w.Message] = []
    stopped = ended = False
    for event in events:
        assert not ended
        if stopped:  # by an await, which is then answered or cancelled
            assert event.type in ("run.in-progress", "run.cancelled")
            stopped = False
        match event:
            case w.MessageEvent(type="message.created"):
                assert open_parts is None
                assert event.message.parts == []
                assert event.message.completed_at is None
                open_parts = []
            case w.PartEvent():
                assert open_parts is not None
                open_parts.append(event.part)
            case w.MessageEvent():
                assert event.message.parts == open_parts
                assert event.message.completed_at is not None
                output.append(event.message)
                open_parts = None
            case w.RunEvent():
                assert open_parts is None
                assert event.run.output == output
                assert (event.run.await_request is not None) == (event.run.status == "awaiting")
                assert (event.run.finished_at is not None) == (event.run.status in TERMINAL)
                assert (event.run.error is not None) == (event.run.status == "failed")
                assert event.type == f"run.{event.run.status}"
                stopped = event.run.status == "awaiting"
                ended = event.run.status in TERMINAL
            case _:
                assert isinstance(event, w.GenericEvent)


@few
@given(records(EVERYTHING))
def test_the_same_records_give_the_same_bytes(log: list[Record]) -> None:
    assert sent(written(log)) == sent(written(log))


@few
@given(records(EVERYTHING), st.data())
def test_a_longer_log_only_appends_to_the_stream(log: list[Record], data: st.DataObject) -> None:
    """Check that the bytes up to any record are a prefix of the whole stream."""
    cut = data.draw(st.integers(0, len(log)))
    before, whole = sent(written(log[:cut])), sent(written(log))
    assert whole[: len(before)] == before


@few
@given(records(EVERYTHING))
def test_every_event_survives_a_round_trip(log: list[Record]) -> None:
    events = written(log)
    assert received(events) == events


def carried(messages: Iterable[Message]) -> list[list[Part]]:
    """Return the parts of each message that has any. Adjacent texts are joined."""
    parts_by_message: list[list[Part]] = []
    for message in messages:
        joined: list[Part] = []
        for part in message.parts:
            last = joined[-1] if joined else None
            if isinstance(part, TextPart) and isinstance(last, TextPart):
                joined[-1] = last.replace(text=last.text + part.text)
            else:
                joined.append(part)
        if joined:
            parts_by_message.append(joined)
    return parts_by_message


def read_back(events: Sequence[w.Event]) -> tuple[list[Event], Fault | None]:
    """Read a run as the client does, with one reader for each activation."""
    found: list[Event] = []
    reader = EventReader("echo")
    for event in received(events):
        if reader.stopped:
            reader = EventReader("echo")
            reader.resume("r", "s")
        try:
            found += reader.read(event)
        except FaultError as error:
            return found, error.fault
    return found, None


def with_ids(events: Iterable[Event]) -> list[Record]:
    """Return the events with ids, as the hub logs them."""
    logged: list[Record] = []
    message, index = 0, -1
    for seq, event in enumerate(events, start=1):
        if isinstance(event, MessageStarted):
            message, index = seq, -1
        index += isinstance(event, PartAdded)
        update: dict[str, Any] = {}
        if isinstance(event, MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded):
            update["message_id"] = str(message)
        if isinstance(event, PartAdded | PartDelta | PartEnded):
            update["index"] = index
        logged.append(Record(seq, T0, "r", "x", 1, event.replace(**update)))
    return logged


@few
@given(records(CARRIED))
def test_carried_events_are_read_as_they_were_written(log: list[Record]) -> None:
    expected = [record for record in log if not isinstance(record.event, RunCreated)]
    found, fault = read_back(written(log))
    assert carried(Fold("t", records=with_ids(found)).messages()) == carried(Fold("t", records=expected).messages())
    assert not [event for event in found if isinstance(event, ArtifactAdded)]
    assert [e.value for e in found if isinstance(e, Custom)] == [
        record.event.value for record in log if isinstance(record.event, Custom)
    ]
    questions = [record.event.message.text for record in log if isinstance(record.event, InterruptRaised)]
    assert [event.message.text for event in found if isinstance(event, InterruptRaised)] == questions
    ends = [record.event.fault for record in log if isinstance(record.event, TaskChanged) and record.event.fault]
    assert (fault.message if fault else None) == (ends[0].message if ends else None)


@few
@given(records(CARRIED))
def test_read_events_are_written_as_the_same_parts(log: list[Record]) -> None:
    """Check that a caller receives the parts of an upstream ACP server. Named parts may move to separate messages."""
    events = written(log)
    found, _ = read_back(events)
    rewritten = wire_of(*(record.event for record in with_ids(found)), *DONE)

    def content(events: list[w.Event]) -> tuple[str, list[str]]:
        parts = [part for message in completed(events) for part in message.parts]
        text = "".join(part.content or "" for part in parts if part.content_type == "text/plain" and not part.name)
        return text, [part.model_dump_json() for part in parts if part.content_type != "text/plain" or part.name]

    assert content(rewritten) == content(events)


@given(st.lists(st.sampled_from(sorted(w.EVENTS)), max_size=12), st.data())
def test_events_in_any_order_are_read_or_are_a_fault(order: list[str], data: st.DataObject) -> None:
    run = w.Run(run_id="r", agent_name="echo", status="in-progress")
    message = w.Message(role="agent", parts=[w.MessagePart(content="x"), w.MessagePart(name="a", content="y")])
    reader = EventReader("echo")
    opened = 0
    for kind in order:
        status: Any = kind.removeprefix("run.")
        value: dict[str, Any] = {
            "type": kind,
            "run": run.model_copy(update={"status": status if kind.startswith("run.") else "created"}).model_dump(),
            "message": message.model_dump(),
            "part": data.draw(st.sampled_from(message.parts)).model_dump(),
            "generic": data.draw(st.sampled_from([{"x": 1}, {"thought": "x"}, {"tool_name": "x"}])),
            "error": {"code": "server_error", "message": "Boom"},
        }
        try:
            events = reader.read(decode_event(value))
        except FaultError as error:
            assert error.fault.code is FaultCode.AGENT_FAILED
            return
        for event in events:
            opened += isinstance(event, MessageStarted) - isinstance(event, MessageEnded)
            assert opened in (0, 1)


# Writer


def test_events_of_a_plain_run_have_the_sdks_order() -> None:
    events = wire_of(Custom(value={"progress": 0.5}), *streamed(TextPart(text="Hel"), "lo"), *DONE)
    assert kinds(events) == [
        "run.created",
        "run.in-progress",
        "generic",
        "message.created",
        "message.part",
        "message.part",
        "message.completed",
        "run.completed",
    ]
    assert [part.content for part in parts_of(events)] == ["Hel", "lo"]


def test_a_queued_run_stays_created_until_the_agent_starts() -> None:
    writer = EventWriter(VIEW)
    for record in log_with()[:2]:
        writer.write(record)
    assert (writer.status, writer.run().status, writer.has_stopped) == ("created", "created", False)


def test_an_empty_text_is_one_empty_part() -> None:
    events = wire_of(*streamed(TextPart(text="")))
    assert [part.content for part in parts_of(events)] == [""]


def test_tools_and_artifacts_join_the_message_of_their_author() -> None:
    events = wire_of(
        ToolStarted(call_id="c", name="f", input={"a": 1}),
        ToolEnded(call_id="c", name="f", output=2),
        *message(TextPart(text="x")),
        ArtifactAdded(artifact_id="a", name="a.txt", part=TextPart(text="y")),
        *DONE,
    )
    first, second = completed(events)
    assert [part.content for part in first.parts] == [None, "x"]
    assert first.parts[0].metadata == w.Trajectory(tool_name="f", tool_input={"a": 1}, tool_output={"value": 2})
    assert [(part.name, part.content) for part in second.parts] == [("a.txt", "y")]


def test_another_author_gets_a_separate_message() -> None:
    events = wire_of(
        ToolStarted(call_id="c", name="f"),
        ToolEnded(call_id="c", name="f"),
        *message(TextPart(text="x"), name="critic"),
    )
    assert [message.role for message in completed(events)] == ["agent/echo", "agent/critic"]


def test_concurrent_messages_are_not_mixed() -> None:
    events = wire_of(
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="a"), open=True),
        MessageStarted(message_id="n", name="critic"),
        PartAdded(message_id="n", index=0, part=TextPart(text="b"), open=True),
        PartDelta(message_id="m", index=0, text="c"),
        PartDelta(message_id="n", index=0, text="d"),
        *DONE,
    )
    texts = [(each.role, "".join(part.content or "" for part in each.parts)) for each in completed(events)]
    assert texts == [("agent/echo", "a"), ("agent/critic", "b"), ("agent/echo", "c"), ("agent/critic", "d")]


def test_a_thought_is_sent_when_it_is_complete() -> None:
    events = wire_of(*streamed(ReasoningPart(text="H"), "m."))
    assert [part.metadata for part in parts_of(events)] == [w.Trajectory(message="Hm.")]


def test_progress_is_a_trajectory_and_not_part_of_the_answer() -> None:
    events = wire_of(*streamed(TextPart(text="On"), " it", phase="progress"))
    assert [(part.content, part.metadata) for part in parts_of(events)] == [(None, w.Trajectory(message="On it"))]


def test_artifact_pieces_are_sent_as_one_part_after_the_last() -> None:
    pieces = [
        ArtifactAdded(artifact_id="a", name="a.txt", part=TextPart(text=text), append=index > 0, last=index == 2)
        for index, text in enumerate(("one ", "two ", "three"))
    ]
    events = wire_of(*pieces)
    assert [(part.name, part.content) for part in parts_of(events)] == [("a.txt", "one two three")]
    unfinished = wire_of(pieces[0], *DONE)
    assert [part.content for part in parts_of(unfinished)] == ["one "]


def test_an_upload_of_the_caller_is_not_output() -> None:
    assert parts_of(wire_of(ArtifactAdded(artifact_id="a", part=TextPart(text="x"), origin="caller"))) == []


def test_structured_output_is_a_part_unless_a_message_has_it() -> None:
    output: Any = {"words": 2}
    events = wire_of(RunEnded(output=output), TaskChanged(state=TaskState.COMPLETED))
    assert [(part.content_type, part.content) for part in parts_of(events)] == [("application/json", '{"words":2}')]
    assert kinds(events)[-1] == "run.completed"
    once = wire_of(*message(DataPart(data=output)), RunEnded(output=output))
    assert len(parts_of(once)) == 1


def test_output_after_a_cancel_request_stays_in_its_message() -> None:
    events = wire_of(
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="a"), open=True),
        TaskChanged(state=TaskState.CANCELLING),
        PartDelta(message_id="m", index=0, text="b"),
        PartEnded(message_id="m", index=0),
        MessageEnded(message_id="m"),
        RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER),
        TaskChanged(state=TaskState.CANCELLED),
    )
    assert [[part.content for part in message.parts] for message in completed(events)] == [["a", "b"]]
    assert kinds(events)[-1] == "run.cancelled"


def test_a_rejected_task_is_a_failed_run() -> None:
    fault = Fault(code=FaultCode.UNSUPPORTED, message="Not that")
    run = wire_of(TaskChanged(state=TaskState.REJECTED, fault=fault))[-1]
    assert isinstance(run, w.RunEvent)
    assert (run.type, run.run.error) == ("run.failed", w.Error(code="invalid_input", message="Not that"))


def test_a_continued_task_is_in_progress_at_once() -> None:
    events = written(
        [
            *log_with(*DONE),
            Record(9, T0 + 9, "t2", None, 0, TaskCreated(task_id="t2", agent="echo", continues="r")),
            Record(10, T0 + 10, "t2", "y", 0, RunCreated(run_id="y")),
            Record(11, T0 + 11, "t2", None, 0, TaskChanged(state=TaskState.WORKING)),
        ]
    )
    assert kinds(events) == ["run.created", "run.in-progress", "run.completed", "run.in-progress"]


def test_two_open_questions_await_one_after_the_other() -> None:
    first = InterruptRaised(interrupt_id="1", message=Message.of("First?"))
    second = InterruptRaised(interrupt_id="2", message=Message.of("Second?"))
    events = wire_of(
        first,
        second,
        RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT),
        TaskChanged(state=TaskState.INPUT_REQUIRED),
        InterruptAnswered(interrupt_id="1"),
        TaskChanged(state=TaskState.WORKING),
        TaskChanged(state=TaskState.INPUT_REQUIRED),
    )
    questions = [
        event.run.await_request["message"]["parts"][0]["content"]
        for event in events
        if isinstance(event, w.RunEvent) and event.run.await_request
    ]
    assert questions == ["First?", "Second?"]


def test_losses_include_those_of_the_agents_protocol() -> None:
    writer = EventWriter(VIEW)
    call = ToolCallPart(call_id="c", name="weather", arguments="{}", side="caller")
    for record in log_with(LossNoted(feature="usage", how="never told"), *message(call), *DONE):
        writer.write(record)
    assert list(writer.losses) == [
        Loss(feature="usage", how="never told"),
        Loss(feature="caller-tools", how="a caller cannot offer tools; a call of one is a text question"),
    ]


def test_parts_restored_by_marks_are_not_lost() -> None:
    writer = EventWriter(VIEW)
    events = (*message(RefusalPart(text="No."), ReasoningPart(text="Hm.")), StepStarted(step_id="s", name="plan"))
    for record in log_with(*events, *DONE):
        writer.write(record)
    assert list(writer.run_losses) == []


def test_custom_events_are_lost_in_a_run_object() -> None:
    writer = EventWriter(VIEW)
    for record in log_with(Custom(name="x", value=1), *DONE):
        writer.write(record)
    assert list(writer.losses) == []
    assert [loss.feature for loss in writer.run_losses] == ["custom"]


@few
@given(records(EVERYTHING))
def test_a_run_does_not_depend_on_writing_its_events(log: list[Record]) -> None:
    writer, silent = EventWriter(VIEW), EventWriter(VIEW)
    for record in log:
        writer.write(record)
        silent.apply(record)
        assert (silent.status, w.dump(silent.answer())) == (writer.status, w.dump(writer.answer()))
    assert list(silent.run_losses) == list(writer.run_losses)


def test_unknown_events_pass_only_from_acp_to_acp() -> None:
    data = {"type": "run.paused", "run": {"x": 1}}
    [*_, last] = wire_of(Native(protocol="acp", event="run.paused", data=data))
    assert last.model_dump() == data
    assert len(wire_of(Native(protocol="a2a", event="x", data=data))) == 2
    assert len(wire_of(Native(protocol="acp", event="run.completed", data=data))) == 2


# Reader of other servers' events


def read(*events: dict[str, Any], agent: str = "echo") -> list[Event]:
    reader = EventReader(agent)
    return [found for event in events for found in reader.read(decode_event(event))]


def part(content: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "message.part", "part": {"content": content, **more}}


def of_run(kind: str, status: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "run": {"run_id": "r", "agent_name": "echo", "session_id": "s", "status": status, **more}}


def of_message(kind: str, *contents: str, role: str = "agent/echo") -> dict[str, Any]:
    return {"type": kind, "message": {"role": role, "parts": [{"content": content} for content in contents]}}


def test_the_first_event_binds_the_upstreams_ids() -> None:
    assert read(of_run("run.created", "created")) == [UpstreamBound(protocol="acp", ids={"run": "r", "session": "s"})]


def test_text_is_read_from_parts_and_not_from_whole_messages() -> None:
    found = read(
        of_message("message.created", "Hel", "lo", role="user"),
        part("Hel"),
        part("lo"),
        of_message("message.completed", "Hel", "lo", role="user"),
    )
    assert found == [
        MessageStarted(),
        PartAdded(part=TextPart(text="Hel"), open=True),
        PartDelta(text="lo"),
        PartEnded(),
        MessageEnded(),
    ]


def test_a_message_without_part_events_is_read_when_complete() -> None:
    found = read(of_message("message.created"), of_message("message.completed", "Hello"))
    assert [event.part for event in found if isinstance(event, PartAdded)] == [TextPart(text="Hello")]


def test_a_message_open_across_an_await_is_not_repeated() -> None:
    before = EventReader("echo")
    for event in (of_message("message.created"), part("Before."), of_run("run.awaiting", "awaiting")):
        before.read(decode_event(event))
    after = EventReader("echo")
    after.resume("r", "s")
    events = (
        of_run("run.in-progress", "in-progress"),
        part("After."),
        of_message("message.completed", "Before.", "After."),
        of_run("run.completed", "completed"),
    )
    found = [each for event in events for each in after.read(decode_event(event))]
    assert [event.part for event in found if isinstance(event, PartAdded)] == [TextPart(text="After.")]


def test_a_stale_await_request_is_not_a_question() -> None:
    stale = {"type": "message", "message": {"role": "agent", "parts": [{"content": "Name?"}]}}
    assert read(of_run("run.completed", "completed", await_request=stale)) == []
    [question] = read(of_run("run.awaiting", "awaiting", await_request=stale))
    assert isinstance(question, InterruptRaised)
    assert question.message.text == "Name?"


def test_named_parts_are_artifacts_and_leave_no_empty_message() -> None:
    found = read(
        of_message("message.created"),
        part("A note", name="a.txt"),
        {"type": "message.completed", "message": {"role": "agent", "parts": [{"content": "A note", "name": "a.txt"}]}},
    )
    begun, artifact, ended = found
    # Only callers of ACP see that there was a message. All others see only the artifact.
    assert (begun, ended) == (
        Native(protocol="acp", event="message.created", data={"name": None}),
        Native(protocol="acp", event="message.completed"),
    )
    assert isinstance(artifact, ArtifactAdded)
    assert isinstance(artifact.part, FilePart)
    assert (artifact.name, artifact.part.inline) == ("a.txt", b"A note")


def test_a_base64_part_is_decoded_to_bytes() -> None:
    [_, added] = read(part("AAEC", content_encoding="base64", content_type="image/png"))
    assert isinstance(added, PartAdded)
    assert isinstance(added.part, FilePart)
    assert added.part.inline == b"\x00\x01\x02"
    with pytest.raises(FaultError):
        read(part("!", content_encoding="base64"))


def test_a_trajectory_is_a_thought_or_a_tool_call() -> None:
    found = read(
        part(metadata={"kind": "trajectory", "message": "Hm."}),
        part(metadata={"kind": "trajectory", "tool_name": "f", "tool_input": {"a": 1}}),
        part(metadata={"kind": "trajectory", "tool_name": "f", "tool_output": {"b": 2}}),
        part(metadata={"kind": "trajectory", "tool_name": "g", "tool_input": {"a": 1}, "tool_output": {"value": 3}}),
    )
    assert [event.replace(extra={}) for event in found[1:]] == [
        PartAdded(part=ReasoningPart(text="Hm.")),
        ToolStarted(name="f", input={"a": 1}),
        ToolEnded(name="f", output={"b": 2}),
        ToolStarted(name="g", input={"a": 1}),
        ToolEnded(name="g", output=3),
    ]


def test_generic_events_are_custom_events() -> None:
    assert read({"type": "generic", "generic": {"progress": 0.5}}) == [Custom(value={"progress": 0.5})]
    assert read({"type": "generic", "generic": {"name": "n", "value": 1}}) == [Custom(name="n", value=1)]


def generic(**members: Any) -> dict[str, Any]:
    return {"type": "generic", "generic": members}


def without_acp(events: Sequence[Event]) -> list[Event]:
    """Return the events without what only callers of ACP see."""
    plain = [event.replace(extra={}) for event in events if not isinstance(event, Native)]
    return [
        event.replace(part=event.part.replace(extra={})) if isinstance(event, PartAdded) else event for event in plain
    ]


def test_thoughts_and_calls_of_beeais_react_agent_are_recognized() -> None:
    pieces = [{"thought": "I sh"}, {"thought": "ould."}, {"tool_name": "wea"}, {"tool_name": "ther"}]
    pieces += [{"tool_input": '{"city":'}, {"tool_input": ' "Rome"}'}, {"tool_output": "su"}, {"tool_output": "nny"}]
    pieces += [{"thought": "So.", "agent_idx": 1}]
    found = read(*(generic(**each) for each in pieces), of_message("message.created"), part("Sunny."))
    assert without_acp(found)[:-2] == [
        MessageStarted(),
        PartAdded(part=ReasoningPart(text="I sh"), open=True),
        PartDelta(text="ould."),
        PartEnded(),
        MessageEnded(),
        ToolStarted(name="weather", input={"city": "Rome"}),
        ToolEnded(name="weather", output="sunny"),
        MessageStarted(),
        PartAdded(part=ReasoningPart(text="So."), open=True),
        PartEnded(),
        MessageEnded(),
    ]


def test_thoughts_and_calls_within_a_message_are_recognized() -> None:
    found = read(
        of_message("message.created"),
        part("Look: "),
        generic(thought="Hm.", tool_name="f", tool_input={"a": 1}, message=None),
        generic(tool_name="g", tool_output={"b": 2}),
        part("Done."),
        of_message("message.completed", "Look: ", "Done."),
    )
    assert without_acp(found) == [
        MessageStarted(),
        PartAdded(part=TextPart(text="Look: "), open=True),
        PartEnded(),
        PartAdded(part=ReasoningPart(text="Hm."), open=True),
        PartEnded(),
        ToolStarted(name="f", input={"a": 1}),
        ToolEnded(name="f"),
        ToolStarted(name="g"),
        ToolEnded(name="g", output={"b": 2}),
        PartAdded(part=TextPart(text="Done."), open=True),
        PartEnded(),
        MessageEnded(),
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"message": {"role": "assistant", "content": "Hi"}},
        {"thought": "Hm.", "plan": 1},
        {"thought": {"text": "Hm."}},
        {"tool_name": 1, "tool_input": "x"},
        {"agent_idx": 1},
    ],
)
def test_other_generic_events_stay_custom_events(members: dict[str, Any]) -> None:
    assert read(generic(**members)) == [Custom(value=members)]


def test_failed_runs_and_error_events_are_faults() -> None:
    error = {"code": "server_error", "message": "Boom", "data": {"x": 1}}
    for event in (of_run("run.failed", "failed", error=error), {"type": "error", "error": error}):
        with pytest.raises(FaultError) as caught:
            read(event)
        fault = caught.value.fault
        assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "Boom")


def test_a_run_cancelled_by_its_server_is_cancelled() -> None:
    assert read(of_run("run.cancelled", "cancelled")) == [RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)]


def test_unknown_events_are_stored_and_noted_as_a_loss() -> None:
    noted, native = read({"type": "run.paused", "x": 1})
    assert isinstance(noted, LossNoted)
    assert native == Native(protocol="acp", event="run.paused", data={"type": "run.paused", "x": 1})


def test_a_loss_is_noted_once() -> None:
    found = read({"type": "run.paused", "x": 1}, {"type": "run.gone"})
    assert [type(event) for event in found] == [LossNoted, Native, Native]


UNKNOWN = "metadata of a kind that ACP 1.0.3 does not have"


@pytest.mark.parametrize(
    ("event", "loss"),
    [
        (part("a", metadata={"kind": "form", "fields": []}), ("custom", UNKNOWN)),
        (part(metadata={"kind": "form", "fields": []}), ("custom", UNKNOWN)),
        (part("a", name="a.txt", metadata={"kind": "form"}), ("custom", UNKNOWN)),
        (
            part(metadata={"kind": "trajectory", "message": "Hm.", "title": "Plan"}),
            ("custom", "fields of a trajectory that ACP 1.0.3 does not have"),
        ),
        (
            part("a", metadata={"kind": "citation", "url": "http://a", "score": 1}),
            ("custom", "fields of a citation that ACP 1.0.3 does not have"),
        ),
        (
            part(metadata={"kind": "trajectory", "tool_input": {"a": 1}}),
            ("tool-activity", "the input of a tool without a name"),
        ),
        (part(name="a.txt"), ("artifact", "an artifact without content")),
    ],
)
def test_unknown_part_members_are_noted_as_a_loss(event: dict[str, Any], loss: tuple[str, str]) -> None:
    assert [(each.feature, each.how) for each in read(event) if isinstance(each, LossNoted)] == [loss]


def test_other_members_of_a_question_are_noted_as_a_loss() -> None:
    message = {"role": "agent", "parts": [{"content": "Name?", "metadata": {"kind": "form"}}]}
    request = {"type": "message", "message": message, "expires": 60}
    *noted, question = read(of_run("run.awaiting", "awaiting", await_request=request))
    assert [event.feature for event in noted if isinstance(event, LossNoted)] == ["question", "custom"]
    assert isinstance(question, InterruptRaised)
    assert question.message.text == "Name?"


def test_parts_without_unknown_members_are_not_losses() -> None:
    whole = part(metadata={"kind": "trajectory", "tool_name": "f", "tool_input": {"a": 1}})
    found = read(part(), part("a", metadata={}), part("b", metadata={"kind": "citation", "url": "http://a"}), whole)
    assert not [event for event in found if isinstance(event, LossNoted)]


@pytest.mark.parametrize(
    "event", [None, [], {}, {"type": 7}, {"type": "message.part"}, {"type": "run.created", "run": 1}]
)
def test_malformed_events_are_faults(event: Any) -> None:
    with pytest.raises(FaultError) as caught:
        decode_event(event)
    assert caught.value.fault.code is FaultCode.INVALID


# Sessions


@given(records())
def test_session_urls_do_not_need_the_messages(log: list[Record]) -> None:
    urls = SessionUrls("thread", str)
    whole = SessionTranscript("thread", base_url="http://a", advertised=str)
    for record in log:
        urls.apply(record)
        whole.apply(record)
        assert urls.urls("http://a") == [entry.url for entry in whole.entries()]
