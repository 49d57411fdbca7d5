"""Decoding of an upstream's run stream into events. `test_messages.py` tests how chunks become messages."""

from collections.abc import Sequence
from typing import Any

import pytest

from babelgate.adapters.langchain.read.run_frames import EventReader
from babelgate.canonical import Event, FaultCode, FaultError, FilePart, Message, Record, RunReason, RunStatus, TextPart
from babelgate.canonical.difference import StateChange
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
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.conformance.contract.referee import Referee
from tests.adapters.langchain.far import (
    CHECKPOINT,
    RUN,
    STREAM,
    ai,
    checkpoint,
    chunk,
    human,
    interrupts,
    metadata,
    task,
    task_result,
)


def read(*frames: tuple[str, Any], reader: EventReader | None = None, **options: Any) -> list[Event]:
    reader = reader or EventReader(**options)
    return [event for name, data in frames for event in reader.read(name, data)]


def read_run(*frames: tuple[str, Any], **options: Any) -> list[Event]:
    """Return all events of a run that succeeded, which must form a valid log."""
    reader = EventReader(**options)
    events = [*read(*frames, reader=reader), *reader.finish()]
    messages_of(events)
    return events


def messages_of(events: Sequence[Event]) -> list[Message]:
    referee = Referee()
    for event in events:
        referee.see(event)
    referee.close()
    return referee.transcript.messages


def of(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# Messages


def test_chunks_become_one_message_with_its_id_and_node() -> None:
    events = read_run(*STREAM)
    [message] = messages_of(events)
    assert (message.text, message.message_id) == ("one two three", "m1")
    [started] = of(MessageStarted, events)
    assert (started.node, started.role, started.phase) == ("model", "agent", "answer")
    assert [event.text for event in of(PartDelta, events)] == ["two ", "three"]


def test_text_before_a_retry_of_the_server_is_a_loss() -> None:
    retry = ("metadata", {"run_id": RUN, "attempt": 2})
    events = read(metadata(), chunk("one"), retry, chunk("two", "m2"))
    assert [event.feature for event in of(LossNoted, events)] == ["text"]
    assert len(of(MessageEnded, events)) == 1
    assert not of(LossNoted, read(metadata(), retry, chunk("one")))


def test_a_message_without_last_chunk_ends_with_its_node() -> None:
    events = read(metadata(), task(), chunk("a"), task_result())
    assert [event.kind for event in events][-3:] == ["part_ended", "message_ended", "step_ended"]


def test_usage_is_summed_over_all_messages() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "input_token_details": {"cached": 1}}
    first = chunk("a", "m1", usage_metadata=usage, chunk_position="last")
    second = chunk("b", "m2", usage_metadata=usage, chunk_position="last")
    events = read_run(metadata(), first, second)
    assert [event.usage["input_tokens"] for event in of(MessageEnded, events)] == [3, 3]
    [ended] = of(RunEnded, events)
    assert ended.usage == {"input_tokens": 6, "output_tokens": 4, "input_token_details": {"cached": 2}}


METADATA: dict[str, Any] = {"langgraph_node": "model"}
ONE: dict[str, Any] = {"role": "assistant", "content": "one ", "id": "m", "metadata": {}}
CONVERSATION: list[Any] = [human("a"), ai("old", "m0"), human("b"), ai("new", "m1")]


@pytest.mark.parametrize(
    ("frames", "dialect", "text"),
    [
        ([*[("messages", [ai("Hi"), METADATA])] * 2, STREAM[-1]], "langgraph", "Hi"),
        (
            [("messages/partial", [ai("a")]), ("messages/partial", [ai("a b")]), ("messages/complete", [ai("a b c")])],
            "langgraph",
            "a b c",
        ),
        ([("messages", [ONE, {}]), ("messages", [{**ONE, "content": "two"}, {}])], "agent-protocol", "one two"),
        ([("values", {"messages": CONVERSATION})], "agent-protocol", "new"),
    ],
    ids=["whole and repeated", "whole and growing", "chunks by role", "only in the state"],
)
def test_a_message_is_read_once_in_every_form(frames: Any, dialect: Any, text: str) -> None:
    assert [message.text for message in messages_of(read_run(metadata(), *frames, dialect=dialect))] == [text]


def test_a_message_of_unknown_type_is_data() -> None:
    [message] = messages_of(read_run(metadata(), ("messages", [{"type": "strange", "content": 1}, {}])))
    assert message.parts[0].kind == "data"


# States


def test_checkpoints_are_states_with_the_upstreams_ids() -> None:
    question = {"id": "1", "type": "human", "content": "Write a long letter to everybody."}
    first = checkpoint({"a": 1, "messages": [question]}, "c1", next=["model"], source="input", step=-1)
    second = checkpoint({"a": 2, "messages": [question]}, "c2", parent="c1", step=0)
    one, two = of(StateSaved, read_run(metadata(), first, task(), task_result(), second))
    assert (one.checkpoint_id, one.source, one.step, one.next) == ("c1", "input", -1, ("model",))
    assert (one.values, one.change) == ({"a": 1, "messages": [question]}, None)
    change = StateChange(since="c1", new={"set": {"a": 2}})
    assert (two.parent_id, two.values, two.change, two.as_node) == ("c1", None, change, "model")


def test_a_removed_member_is_not_in_the_state() -> None:
    frames = (checkpoint({"a": 1, "b": 1}, "c1"), checkpoint({"a": 1}, "c2", parent="c1"))
    assert of(StateSaved, read_run(metadata(), *frames))[1].values == {"a": 1}


def test_a_recorded_checkpoint_is_not_saved_again() -> None:
    frames = (
        metadata(),
        ("values", {"a": 1}),
        checkpoint({"a": 1}, "c1", next=["ask"]),
        task("ask"),
        checkpoint({"a": 2}, "c2", parent="c1"),
    )
    events = read_run(*frames, known_checkpoints={((), "c1")})
    assert [event.checkpoint_id for event in of(StateSaved, events)] == ["c2"]
    assert [event.event for event in of(Native, events)] == ["values", "checkpoints"]


def test_states_record_if_the_server_streamed_their_values() -> None:
    """Compare the orders of both servers.

    LangGraph sends values before their checkpoint, and none for the empty state at the start of an input. A gateway
    sends them after the checkpoint.
    """
    first, values = checkpoint({}, "c1", source="input"), ("values", {"a": 1})
    events = read_run(metadata(), first, values, checkpoint({"a": 1}, "c2", parent="c1"))
    assert [event.extra["langgraph"]["shown"] for event in of(StateSaved, events)] == [False, True]
    events = read_run(metadata(), checkpoint({"a": 1}, "c1"), values)
    natives = [(event.event, event.data, event.change) for event in of(Native, events)]
    assert natives == [("values", None, StateChange(since="c1", new={}))]


def test_states_of_subgraphs_are_separate() -> None:
    name, data = checkpoint({"b": 1}, "s1")
    events = read_run(metadata(), (f"{name}|outer:t1|inner:t2", data), checkpoint({"a": 1}, "c1"))
    states = [(event.ns, event.values) for event in of(StateSaved, events)]
    assert states == [(("outer:t1", "inner:t2"), {"b": 1}), ((), {"a": 1})]


def test_a_server_without_checkpoints_has_a_state() -> None:
    [saved] = of(StateSaved, read_run(*STREAM))
    assert saved.values["messages"][-1]["content"] == "one two three"


def test_streams_of_the_agent_protocol_save_no_state() -> None:
    assert of(StateSaved, read_run(*STREAM, checkpoint({"a": 1}), dialect="agent-protocol")) == []


def test_with_keeps_last_only_the_last_state_is_saved() -> None:
    frames = [("values", {"a": 1}), checkpoint({"a": 1}, "c1"), ("values", {"a": 1, "b": 2})]
    events = read_run(metadata(), *frames, checkpoint({"a": 1, "b": 2}, "c2", parent="c1"), keeps_last=True)
    assert [each.data for each in of(Native, events)] == [{"a": 1}, {"a": 1, "b": 2}]
    [saved] = of(StateSaved, events)
    assert (saved.checkpoint_id, saved.values) == ("c2", {"a": 1, "b": 2})
    assert events.index(saved) > max(events.index(each) for each in of(Native, events))


def test_a_state_is_a_change_of_the_recorded_one() -> None:
    reader = EventReader()
    reader.know((), "c1", is_recorded=True)
    text = "sent before the interruption"
    assert read(checkpoint({"a": text}, "c1"), reader=reader) == []
    [saved] = of(StateSaved, read(checkpoint({"a": text, "b": 2}, "c2", parent="c1"), reader=reader))
    assert saved.change == StateChange(since="c1", new={"set": {"b": 2}})


def test_the_first_state_of_a_branch_has_a_parent() -> None:
    [saved] = of(StateSaved, read_run(metadata(), checkpoint({"a": 1}, "c1"), base="old"))
    assert saved.parent_id == "old"


# Nodes


def test_nodes_are_steps_with_their_updates() -> None:
    frames = (task("plan", "t1"), ("updates", {"plan": {"a": 1}}), task_result("plan", "t1", result={"a": 2}))
    started, ended = read_run(metadata(), *frames)[:2]
    assert isinstance(started, StepStarted) and isinstance(ended, StepEnded)
    assert (started.step_id, ended.step_id, ended.name, ended.update) == ("t1", "t1", "plan", {"a": 1})


def test_without_tasks_updates_are_the_steps() -> None:
    frames = (("updates", {"plan": {"a": 1}}), ("updates", {"model": {"messages": [ai("x")]}}))
    events = read_run(metadata(), *frames, dialect="agent-protocol")
    assert [(event.name, event.update) for event in of(StepEnded, events)] == [("plan", {"a": 1})]


def test_a_failed_node_has_a_fault_in_either_form() -> None:
    for error in ("ValueError('no')", {"error": "ValueError", "message": "ValueError('no')"}):
        [ended] = of(StepEnded, read(metadata(), task(), task_result(error=error)))
        assert ended.fault.message == "ValueError('no')"


def test_results_as_pairs_of_older_servers_are_read() -> None:
    [ended] = of(StepEnded, read(metadata(), task(), task_result(result=[["a", 1], ["b", 2]])))
    assert ended.update == {"a": 1, "b": 2}


def test_tool_calls_of_another_gateway_are_read() -> None:
    call: Any = {"id": "c", "name": "add", "input": [1], "triggers": ["tool"], "metadata": {}}
    result: Any = {"id": "c", "name": "add", "error": None, "result": 2, "interrupts": []}
    started, ended = read(metadata(), ("tasks", call), ("tasks", result))
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.call_id, started.input, ended.output) == ("c", [1], 2)


def test_mode_debug_of_the_agent_protocol_gives_only_tools() -> None:
    def debug(kind: str, payload: Any) -> tuple[str, Any]:
        return "debug", {"step": 0, "timestamp": "", "type": kind, "payload": payload}

    node: Any = {"id": "n", "name": "plan", "input": {}, "triggers": ["branch:to:plan"], "metadata": {}}
    call: Any = {"id": "c", "name": "add", "input": [1], "triggers": ["tool"], "metadata": {}}
    result: Any = {"id": "c", "name": "add", "error": "No.", "result": None, "interrupts": []}
    frames = [
        debug("checkpoint", checkpoint({"a": 1})[1]),
        debug("task", node),
        debug("task", call),
        debug("task_result", result),
        debug("task_result", {"id": "n", "name": "plan", "error": None, "result": {"a": 1}, "interrupts": []}),
        ("updates", {"plan": {"a": 1}}),
        ("debug", None),
        ("debug", {"type": "task", "payload": {"id": ["c"]}}),
    ]
    started, ended, *steps = read(metadata(), *frames, dialect="agent-protocol")
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.call_id, started.name, started.input, ended.call_id) == ("c", "add", [1], "c")
    assert ended.fault is not None and ended.fault.message == "No."
    assert [type(event) for event in steps] == [StepStarted, StepEnded]
    assert of(StepEnded, steps)[0].name == "plan"


# Questions


def test_a_question_that_is_sent_three_times_is_raised_once() -> None:
    update = interrupts("Name?")
    frames = (
        task("ask"),
        ("updates", update),
        ("values", update),
        task_result("ask", interrupts=update["__interrupt__"]),
    )
    events = read_run(metadata(), checkpoint({}, next=["ask"]), *frames)
    [question] = of(InterruptRaised, events)
    assert (question.interrupt_id, question.message.text) == ("0" * 32, "Name?")
    assert (question.value, question.node) == (None, "ask")
    ended = events[-1]
    assert isinstance(ended, RunEnded) and (ended.status, ended.reason) == (RunStatus.PAUSED, RunReason.INPUT)
    assert of(StepEnded, events)[0].update is None


def test_questions_with_data_have_a_text_and_a_schema() -> None:
    schema = {"type": "object"}
    raised = [{"value": {"question": "Sure?", "n": 1}, "id": "a", "response_schema": schema}, {"value": [1], "id": "b"}]
    first, second = of(InterruptRaised, read_run(metadata(), ("updates", {"__interrupt__": raised})))
    assert (first.message.text, first.value, first.answer_schema) == ("Sure?", {"question": "Sure?", "n": 1}, schema)
    assert (second.message.text, second.value) == ("[1]", [1])


@pytest.mark.parametrize(
    ("kind", "expected"), [("auth", "auth"), ("approval", "approval"), ("dance", "input"), (None, "input")]
)
def test_the_kind_of_a_question_of_another_gateway_is_read(kind: str | None, expected: str) -> None:
    raised = [{"value": "Who are you?", "id": "a", "kind": kind}]
    [question] = of(InterruptRaised, read_run(metadata(), ("updates", {"__interrupt__": raised})))
    assert (question.ask, question.message.text) == (expected, "Who are you?")


def test_simultaneous_questions_have_the_order_of_the_graph() -> None:
    first, second = interrupts("First?", "Second?")["__interrupt__"]
    frames = [task("one", "t1"), task("two", "t2")]
    frames += [task_result("two", "t2", interrupts=[second]), ("updates", {"__interrupt__": [second]})]
    frames += [("updates", {"__interrupt__": [first]}), task_result("one", "t1", interrupts=[first])]
    questions = of(InterruptRaised, read_run(metadata(), *frames))
    assert [question.message.text for question in questions] == ["First?", "Second?"]


def test_an_interrupt_without_id_in_updates_is_a_question() -> None:
    """Read an interrupt of the JavaScript server 0.0.40."""
    raised = [{"value": "Name?", "when": "during", "resumable": True, "ns": ["ask:1"]}]
    [question] = of(InterruptRaised, read_run(metadata(), ("values", {}), ("updates", {"__interrupt__": raised})))
    assert (question.interrupt_id, question.message.text) == (None, "Name?")


def test_a_static_breakpoint_is_a_question() -> None:
    update: dict[str, Any] = {"__interrupt__": []}
    frames = (checkpoint({"a": 1}, "c1", next=["send"]), ("updates", update))
    [question] = of(InterruptRaised, read_run(metadata(), *frames))
    assert (question.interrupt_id, question.value) == ("breakpoint-c1", {"next": ["send"]})


def test_a_question_of_a_subgraph_belongs_to_the_inner_node() -> None:
    raised = interrupts("Name?")["__interrupt__"]
    name, data = task_result("inner", "t2", interrupts=raised)
    frames = ((f"{name}|outer:t1", data), task_result("outer", "t1", interrupts=raised))
    [question] = of(InterruptRaised, read_run(metadata(), *frames))
    assert (question.node, question.ns) == ("inner", ("outer:t1",))


# The rest


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        ("GraphRecursionError", "Too deep", FaultCode.AGENT_FAILED),
        ("ValueError", "An internal error occurred", FaultCode.AGENT_FAILED),
        ("AgentUnreachableError", "It cannot be reached", FaultCode.AGENT_UNREACHABLE),
    ],
)
def test_the_name_of_an_error_is_preserved(name: str, message: str, code: FaultCode) -> None:
    reader = EventReader()
    read(metadata(), ("error", {"error": name, "message": message}), reader=reader)
    assert reader.fault is not None and reader.has_ended and reader.run_id == RUN
    assert (reader.fault.code, reader.fault.message) == (code, message)
    assert reader.fault.details["langchain"] == {"error": name}


@pytest.mark.parametrize("data", [None, "", {}, [], {"error": 1}, {"message": None}])
def test_an_error_without_message_is_a_fault(data: Any) -> None:
    reader = EventReader()
    read(("error", data), reader=reader)
    assert reader.fault is not None and reader.fault.message


def test_custom_events_keep_their_name_and_namespace() -> None:
    frames = (("custom", {"name": "n", "value": 1}), ("custom|sub:1", "word"))
    one, two = of(Custom, read_run(metadata(), *frames))
    assert (one.name, one.value, two.value, two.ns) == ("n", 1, "word", ("sub:1",))


def test_artifacts_and_progress_of_another_gateway_are_read() -> None:
    content = [{"type": "file", "base64": "SGk=", "mime_type": "text/plain", "extras": {"filename": "a.txt"}}]
    artifact: dict[str, Any] = {"id": "a", "name": "a.txt", "description": None, "content": content}
    artifact |= {"append": False, "last": True, "metadata": {"label": 1}}
    events = read_run(metadata(), ("custom", {"artifact": artifact}), ("custom", {"progress": "Working"}))
    [added] = of(ArtifactAdded, events)
    assert isinstance(added.part, FilePart) and (added.name, added.part.inline) == ("a.txt", b"Hi")
    assert added.metadata == {"label": 1}
    [message] = messages_of(events)
    assert (message.text, message.phase) == ("Working", "progress")


def test_unknown_events_are_native_events() -> None:
    [native] = of(Native, read_run(metadata(), ("lifecycle|sub:1", {"event": "started"})))
    assert (native.protocol, native.event, native.ns) == ("langgraph", "lifecycle", ("sub:1",))
    assert native.data == {"event": "started"}


def test_an_agent_without_messages_answers_with_its_output() -> None:
    values = {"topic": "cats", "joke": "Why?"}
    events = read_run(metadata(), ("values", values), outputs=frozenset({"joke"}))
    [message] = messages_of(events)
    assert message.parts[0] == TextPart(text="Why?")
    [ended] = of(RunEnded, events)
    assert ended.output == {"joke": "Why?"}


def test_the_structured_response_of_an_agent_is_the_output() -> None:
    values = {"messages": [human("a"), ai("b")], "structured_response": {"n": 1}}
    [ended] = of(RunEnded, read_run(metadata(), ("values", values)))
    assert ended.output == {"n": 1}


@pytest.mark.parametrize(
    "frame",
    [
        ("checkpoints", {"config": {}}),
        ("checkpoints", 1),
        ("checkpoints", {"config": {"configurable": {"checkpoint_id": 5}}}),
        ("tasks", {}),
        ("tasks", {"id": 1, "name": []}),
        ("tasks", {"id": "a", "name": "b", "result": {}, "interrupts": {}}),
        ("updates", {"__interrupt__": ["text"]}),
    ],
)
def test_invalid_frames_are_rejected(frame: tuple[str, Any]) -> None:
    with pytest.raises(FaultError) as caught:
        read(frame)
    assert caught.value.fault.code is FaultCode.INVALID


PIECES: list[Any] = [
    {"type": "AIMessageChunk", "content": [5, {"type": []}], "tool_call_chunks": [None, {"index": {}}]},
    {"type": "AIMessageChunk", "content": [{"type": "file", "base64": "!"}], "usage_metadata": [1]},
]
STRANGE: list[tuple[str, Any]] = [
    *(("metadata", None), ("metadata", {"run_id": 5})),
    *(("values", None), ("values", 5), ("values", {"messages": "none"})),
    *(("updates", []), ("updates", {"node": None})),
    *(("messages", None), ("messages", [1, 2]), ("messages", [{}, None])),
    *(("messages", [PIECES[0], 1]), ("messages", [PIECES[1], {}]), ("messages/partial", [{"type": "ai"}])),
    ("custom", None),
    ("custom", {"artifact": {"id": 1, "name": 2, "description": 3, "content": 4, "append": 5, "last": 6}}),
    *(("end", None), ("end", {"status": None}), ("", {})),
]


@pytest.mark.parametrize("frame", STRANGE)
def test_unusual_frames_are_accepted(frame: tuple[str, Any]) -> None:
    read_run(metadata(), frame)


def test_a_run_is_complete_if_no_node_is_next() -> None:
    reader = EventReader()
    read(metadata(), checkpoint({}, next=["model"]), reader=reader)
    assert not reader.is_complete
    read(checkpoint({}, "c2", parent=CHECKPOINT), reader=reader)
    assert reader.is_complete


def test_missed_messages_are_read_once_from_the_state() -> None:
    reader = EventReader(dialect="agent-protocol")
    events = read(*STREAM[:4], reader=reader)
    values: Any = {"messages": [human("Hello"), ai("one two three"), ai("And more.", "m2")], **interrupts("Name?")}
    events += [*reader.settle(values), *reader.finish()]
    assert [message.text for message in messages_of(events)] == ["one two three", "And more."]
    assert [event.message.text for event in of(InterruptRaised, events)] == ["Name?"]


@pytest.mark.parametrize("is_changed", [True, False], ids=["with a new message", "unchanged"])
def test_a_reattached_run_saves_its_last_state_if_it_changed(is_changed: bool) -> None:
    """Join a run after a restart, which gives no checkpoints after those that were recorded."""
    question = {"id": "1", "type": "human", "content": "hi"}
    answer = {"id": "2", "type": "ai", "content": "one two"}
    events: list[Event] = [
        StateSaved(checkpoint_id="c1", values={"messages": [question]}, source="input", step=-1),
        MessageStarted(message_id="2"),
        PartAdded(message_id="2", index=0, part=TextPart(text="one "), open=True),
    ]
    reader = EventReader()
    reader.recall(Record(seq, 0, "t", "r", 1, event) for seq, event in enumerate(events, 1))
    values: dict[str, Any] = {"messages": [question, answer] if is_changed else [question]}
    rest = [*reader.settle(values), *reader.finish()]
    saved = [event.values for event in rest if isinstance(event, StateSaved)]
    assert saved == ([values] if is_changed else [])
