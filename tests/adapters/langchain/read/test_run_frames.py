"""What the stream of another server's run becomes. How the pieces of a message are put together is in
`test_messages.py`."""

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


def finished(*frames: tuple[str, Any], **options: Any) -> list[Event]:
    """All events of a run that succeeded, and the log takes them."""
    reader = EventReader(**options)
    events = [*read(*frames, reader=reader), *reader.finish()]
    heard(events)
    return events


def heard(events: Sequence[Event]) -> list[Message]:
    referee = Referee()
    for event in events:
        referee.see(event)
    referee.close()
    return referee.transcript.messages


def of(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# Messages


def test_chunks_become_one_message_with_the_ids_and_nodes_of_the_graph() -> None:
    events = finished(*STREAM)
    [message] = heard(events)
    assert (message.text, message.message_id) == ("one two three", "m1")
    [started] = of(MessageStarted, events)
    assert (started.node, started.role, started.phase) == ("model", "agent", "answer")
    assert [event.text for event in of(PartDelta, events)] == ["two ", "three"]


def test_what_was_said_before_a_server_tried_a_run_again_is_noted_as_staying_said() -> None:
    again = ("metadata", {"run_id": RUN, "attempt": 2})
    events = read(metadata(), chunk("one"), again, chunk("two", "m2"))
    assert [event.feature for event in of(LossNoted, events)] == ["text"]
    assert len(of(MessageEnded, events)) == 1
    assert not of(LossNoted, read(metadata(), again, chunk("one")))


def test_a_message_that_no_chunk_ended_is_over_when_its_node_is() -> None:
    events = read(metadata(), task(), chunk("a"), task_result())
    assert [event.kind for event in events][-3:] == ["part_ended", "message_ended", "step_ended"]


def test_tokens_are_counted_over_all_messages() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "input_token_details": {"cached": 1}}
    first = chunk("a", "m1", usage_metadata=usage, chunk_position="last")
    second = chunk("b", "m2", usage_metadata=usage, chunk_position="last")
    events = finished(metadata(), first, second)
    assert [event.usage["input_tokens"] for event in of(MessageEnded, events)] == [3, 3]
    [ended] = of(RunEnded, events)
    assert ended.usage == {"input_tokens": 6, "output_tokens": 4, "input_token_details": {"cached": 2}}


ABOUT: dict[str, Any] = {"langgraph_node": "model"}
ONE: dict[str, Any] = {"role": "assistant", "content": "one ", "id": "m", "metadata": {}}
SAID: list[Any] = [human("a"), ai("old", "m0"), human("b"), ai("new", "m1")]


@pytest.mark.parametrize(
    ("frames", "dialect", "text"),
    [
        ([*[("messages", [ai("Hi"), ABOUT])] * 2, STREAM[-1]], "langgraph", "Hi"),
        (
            [("messages/partial", [ai("a")]), ("messages/partial", [ai("a b")]), ("messages/complete", [ai("a b c")])],
            "langgraph",
            "a b c",
        ),
        ([("messages", [ONE, {}]), ("messages", [{**ONE, "content": "two"}, {}])], "agent-protocol", "one two"),
        ([("values", {"messages": SAID})], "agent-protocol", "new"),
    ],
    ids=["whole and often", "whole and growing", "in pieces by role", "in the state alone"],
)
def test_a_message_is_said_once_in_whatever_form_it_is_told(frames: Any, dialect: Any, text: str) -> None:
    assert [message.text for message in heard(finished(metadata(), *frames, dialect=dialect))] == [text]


def test_a_message_of_a_kind_that_nobody_has_is_data() -> None:
    [message] = heard(finished(metadata(), ("messages", [{"type": "strange", "content": 1}, {}])))
    assert message.parts[0].kind == "data"


# States


def test_checkpoints_are_revisions_under_the_upstreams_ids() -> None:
    asked = {"id": "1", "type": "human", "content": "Write a long letter to everybody."}
    first = checkpoint({"a": 1, "messages": [asked]}, "c1", next=["model"], source="input", step=-1)
    second = checkpoint({"a": 2, "messages": [asked]}, "c2", parent="c1", step=0)
    one, two = of(StateSaved, finished(metadata(), first, task(), task_result(), second))
    assert (one.checkpoint_id, one.source, one.step, one.next) == ("c1", "input", -1, ("model",))
    assert (one.values, one.change) == ({"a": 1, "messages": [asked]}, None)
    change = StateChange(since="c1", new={"set": {"a": 2}})
    assert (two.parent_id, two.values, two.change, two.as_node) == ("c1", None, change, "model")


def test_a_member_that_the_state_has_lost_is_not_in_it_any_more() -> None:
    frames = (checkpoint({"a": 1, "b": 1}, "c1"), checkpoint({"a": 1}, "c2", parent="c1"))
    assert of(StateSaved, finished(metadata(), *frames))[1].values == {"a": 1}


def test_the_checkpoint_that_an_answer_goes_on_from_is_not_a_new_one() -> None:
    frames = (
        metadata(),
        ("values", {"a": 1}),
        checkpoint({"a": 1}, "c1", next=["ask"]),
        task("ask"),
        checkpoint({"a": 2}, "c2", parent="c1"),
    )
    events = finished(*frames, known_checkpoints={((), "c1")})
    assert [event.checkpoint_id for event in of(StateSaved, events)] == ["c2"]
    assert [event.event for event in of(Native, events)] == ["values", "checkpoints"]


def test_of_which_checkpoints_the_values_are_shown_is_the_servers_to_say() -> None:
    """LangGraph tells values before their checkpoint, and none of the empty state that an input begins with; a gateway
    like this one tells them after it."""
    first, values = checkpoint({}, "c1", source="input"), ("values", {"a": 1})
    events = finished(metadata(), first, values, checkpoint({"a": 1}, "c2", parent="c1"))
    assert [event.extra["langgraph"]["shown"] for event in of(StateSaved, events)] == [False, True]
    events = finished(metadata(), checkpoint({"a": 1}, "c1"), values)
    told = [(event.event, event.data, event.change) for event in of(Native, events)]
    assert told == [("values", None, StateChange(since="c1", new={}))]


def test_the_states_of_subgraphs_are_their_own() -> None:
    name, data = checkpoint({"b": 1}, "s1")
    events = finished(metadata(), (f"{name}|outer:t1|inner:t2", data), checkpoint({"a": 1}, "c1"))
    states = [(event.ns, event.values) for event in of(StateSaved, events)]
    assert states == [(("outer:t1", "inner:t2"), {"b": 1}), ((), {"a": 1})]


def test_a_server_without_checkpoints_has_a_state_all_the_same() -> None:
    [saved] = of(StateSaved, finished(*STREAM))
    assert saved.values["messages"][-1]["content"] == "one two three"


def test_the_agent_protocol_shows_no_revisions() -> None:
    assert of(StateSaved, finished(*STREAM, checkpoint({"a": 1}), dialect="agent-protocol")) == []


def test_where_the_last_state_is_kept_it_is_told_whole_and_at_the_end() -> None:
    frames = [("values", {"a": 1}), checkpoint({"a": 1}, "c1"), ("values", {"a": 1, "b": 2})]
    events = finished(metadata(), *frames, checkpoint({"a": 1, "b": 2}, "c2", parent="c1"), keeps_last=True)
    assert [each.data for each in of(Native, events)] == [{"a": 1}, {"a": 1, "b": 2}]
    [saved] = of(StateSaved, events)
    assert (saved.checkpoint_id, saved.values) == ("c2", {"a": 1, "b": 2})
    assert events.index(saved) > max(events.index(each) for each in of(Native, events))


def test_a_state_that_the_run_told_of_before_it_was_cut_off_is_what_the_next_differs_from() -> None:
    reader = EventReader()
    reader.know((), "c1", is_recorded=True)
    said = "said before it was cut off"
    assert read(checkpoint({"a": said}, "c1"), reader=reader) == []
    [saved] = of(StateSaved, read(checkpoint({"a": said, "b": 2}, "c2", parent="c1"), reader=reader))
    assert saved.change == StateChange(since="c1", new={"set": {"b": 2}})


def test_the_first_revision_of_a_branch_has_the_one_that_it_starts_from_as_its_parent() -> None:
    [saved] = of(StateSaved, finished(metadata(), checkpoint({"a": 1}, "c1"), base="old"))
    assert saved.parent_id == "old"


# Nodes


def test_nodes_are_steps_with_what_they_wrote() -> None:
    frames = (task("plan", "t1"), ("updates", {"plan": {"a": 1}}), task_result("plan", "t1", result={"a": 2}))
    started, ended = finished(metadata(), *frames)[:2]
    assert isinstance(started, StepStarted) and isinstance(ended, StepEnded)
    assert (started.step_id, ended.step_id, ended.name, ended.update) == ("t1", "t1", "plan", {"a": 1})


def test_where_tasks_are_not_told_updates_are_the_steps() -> None:
    frames = (("updates", {"plan": {"a": 1}}), ("updates", {"model": {"messages": [ai("x")]}}))
    events = finished(metadata(), *frames, dialect="agent-protocol")
    assert [(event.name, event.update) for event in of(StepEnded, events)] == [("plan", {"a": 1})]


def test_a_node_that_failed_says_so_in_either_form() -> None:
    for error in ("ValueError('no')", {"error": "ValueError", "message": "ValueError('no')"}):
        [ended] = of(StepEnded, read(metadata(), task(), task_result(error=error)))
        assert ended.fault.message == "ValueError('no')"


def test_older_servers_tell_results_as_pairs() -> None:
    [ended] = of(StepEnded, read(metadata(), task(), task_result(result=[["a", 1], ["b", 2]])))
    assert ended.update == {"a": 1, "b": 2}


def test_tools_of_a_gateway_like_this_one_are_tools_again() -> None:
    begun: Any = {"id": "c", "name": "add", "input": [1], "triggers": ["tool"], "metadata": {}}
    done: Any = {"id": "c", "name": "add", "error": None, "result": 2, "interrupts": []}
    started, ended = read(metadata(), ("tasks", begun), ("tasks", done))
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.call_id, started.input, ended.output) == ("c", [1], 2)


def test_of_the_mode_debug_an_agent_protocol_servers_tools_are_read_and_nothing_else() -> None:
    def debug(kind: str, payload: Any) -> tuple[str, Any]:
        return "debug", {"step": 0, "timestamp": "", "type": kind, "payload": payload}

    node: Any = {"id": "n", "name": "plan", "input": {}, "triggers": ["branch:to:plan"], "metadata": {}}
    begun: Any = {"id": "c", "name": "add", "input": [1], "triggers": ["tool"], "metadata": {}}
    done: Any = {"id": "c", "name": "add", "error": "No.", "result": None, "interrupts": []}
    frames = [
        debug("checkpoint", checkpoint({"a": 1})[1]),
        debug("task", node),
        debug("task", begun),
        debug("task_result", done),
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


def test_a_question_is_raised_once_though_it_is_told_three_times() -> None:
    asked = interrupts("Name?")
    frames = (task("ask"), ("updates", asked), ("values", asked), task_result("ask", interrupts=asked["__interrupt__"]))
    events = finished(metadata(), checkpoint({}, next=["ask"]), *frames)
    [question] = of(InterruptRaised, events)
    assert (question.interrupt_id, question.message.text) == ("0" * 32, "Name?")
    assert (question.value, question.node) == (None, "ask")
    ended = events[-1]
    assert isinstance(ended, RunEnded) and (ended.status, ended.reason) == (RunStatus.PAUSED, RunReason.INPUT)
    assert of(StepEnded, events)[0].update is None


def test_questions_with_data_have_words_for_people_and_their_schema() -> None:
    schema = {"type": "object"}
    told = [{"value": {"question": "Sure?", "n": 1}, "id": "a", "response_schema": schema}, {"value": [1], "id": "b"}]
    first, second = of(InterruptRaised, finished(metadata(), ("updates", {"__interrupt__": told})))
    assert (first.message.text, first.value, first.answer_schema) == ("Sure?", {"question": "Sure?", "n": 1}, schema)
    assert (second.message.text, second.value) == ("[1]", [1])


@pytest.mark.parametrize(
    ("kind", "asks"), [("auth", "auth"), ("approval", "approval"), ("dance", "input"), (None, "input")]
)
def test_a_gateway_like_this_one_says_of_what_kind_a_question_is(kind: str | None, asks: str) -> None:
    told = [{"value": "Who are you?", "id": "a", "kind": kind}]
    [question] = of(InterruptRaised, finished(metadata(), ("updates", {"__interrupt__": told})))
    assert (question.ask, question.message.text) == (asks, "Who are you?")


def test_questions_that_are_asked_at_once_stand_in_the_order_of_the_graph() -> None:
    first, second = interrupts("First?", "Second?")["__interrupt__"]
    frames = [task("one", "t1"), task("two", "t2")]
    frames += [task_result("two", "t2", interrupts=[second]), ("updates", {"__interrupt__": [second]})]
    frames += [("updates", {"__interrupt__": [first]}), task_result("one", "t1", interrupts=[first])]
    asked = of(InterruptRaised, finished(metadata(), *frames))
    assert [question.message.text for question in asked] == ["First?", "Second?"]


def test_an_interrupt_that_comes_in_updates_alone_and_without_an_id_is_a_question() -> None:
    """The JavaScript server of 0.0.40 has it so."""
    told = [{"value": "Name?", "when": "during", "resumable": True, "ns": ["ask:1"]}]
    [question] = of(InterruptRaised, finished(metadata(), ("values", {}), ("updates", {"__interrupt__": told})))
    assert (question.interrupt_id, question.message.text) == (None, "Name?")


def test_a_static_breakpoint_is_a_question_that_nobody_asks() -> None:
    stopped: dict[str, Any] = {"__interrupt__": []}
    frames = (checkpoint({"a": 1}, "c1", next=["send"]), ("updates", stopped))
    [question] = of(InterruptRaised, finished(metadata(), *frames))
    assert (question.interrupt_id, question.value) == ("breakpoint-c1", {"next": ["send"]})


def test_a_question_of_a_subgraph_belongs_to_the_node_that_asks() -> None:
    asked = interrupts("Name?")["__interrupt__"]
    name, data = task_result("inner", "t2", interrupts=asked)
    frames = ((f"{name}|outer:t1", data), task_result("outer", "t1", interrupts=asked))
    [question] = of(InterruptRaised, finished(metadata(), *frames))
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
def test_the_upstreams_name_of_an_error_is_kept(name: str, message: str, code: FaultCode) -> None:
    reader = EventReader()
    read(metadata(), ("error", {"error": name, "message": message}), reader=reader)
    assert reader.fault is not None and reader.has_ended and reader.run_id == RUN
    assert (reader.fault.code, reader.fault.message) == (code, message)
    assert reader.fault.details["langchain"] == {"error": name}


@pytest.mark.parametrize("told", [None, "", {}, [], {"error": 1}, {"message": None}])
def test_an_error_without_words_is_one_all_the_same(told: Any) -> None:
    reader = EventReader()
    read(("error", told), reader=reader)
    assert reader.fault is not None and reader.fault.message


def test_custom_events_pass_with_their_name_and_place() -> None:
    frames = (("custom", {"name": "n", "value": 1}), ("custom|sub:1", "word"))
    one, two = of(Custom, finished(metadata(), *frames))
    assert (one.name, one.value, two.value, two.ns) == ("n", 1, "word", ("sub:1",))


def test_artifacts_and_progress_of_a_gateway_like_this_one_are_that_again() -> None:
    content = [{"type": "file", "base64": "SGk=", "mime_type": "text/plain", "extras": {"filename": "a.txt"}}]
    told: dict[str, Any] = {"id": "a", "name": "a.txt", "description": None, "content": content}
    told |= {"append": False, "last": True, "metadata": {"label": 1}}
    events = finished(metadata(), ("custom", {"artifact": told}), ("custom", {"progress": "Working"}))
    [added] = of(ArtifactAdded, events)
    assert isinstance(added.part, FilePart) and (added.name, added.part.inline) == ("a.txt", b"Hi")
    assert added.metadata == {"label": 1}
    [message] = heard(events)
    assert (message.text, message.phase) == ("Working", "progress")


def test_events_that_nobody_knows_pass_to_those_who_speak_the_same() -> None:
    [native] = of(Native, finished(metadata(), ("lifecycle|sub:1", {"event": "started"})))
    assert (native.protocol, native.event, native.ns) == ("langgraph", "lifecycle", ("sub:1",))
    assert native.data == {"event": "started"}


def test_an_agent_that_does_not_converse_gives_its_output() -> None:
    values = {"topic": "cats", "joke": "Why?"}
    events = finished(metadata(), ("values", values), outputs=frozenset({"joke"}))
    [message] = heard(events)
    assert message.parts[0] == TextPart(text="Why?")
    [ended] = of(RunEnded, events)
    assert ended.output == {"joke": "Why?"}


def test_the_structured_response_of_an_agent_is_the_output() -> None:
    values = {"messages": [human("a"), ai("b")], "structured_response": {"n": 1}}
    [ended] = of(RunEnded, finished(metadata(), ("values", values)))
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
def test_what_breaks_the_protocol_is_refused(frame: tuple[str, Any]) -> None:
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
def test_what_is_strange_and_harmless_is_taken(frame: tuple[str, Any]) -> None:
    finished(metadata(), frame)


def test_a_run_is_complete_when_its_newest_state_has_nothing_to_go_on_to() -> None:
    reader = EventReader()
    read(metadata(), checkpoint({}, next=["model"]), reader=reader)
    assert not reader.is_complete
    read(checkpoint({}, "c2", parent=CHECKPOINT), reader=reader)
    assert reader.is_complete


def test_what_was_missed_is_told_from_the_state_and_nothing_twice() -> None:
    reader = EventReader(dialect="agent-protocol")
    events = read(*STREAM[:4], reader=reader)
    values: Any = {"messages": [human("Hello"), ai("one two three"), ai("And more.", "m2")], **interrupts("Name?")}
    events += [*reader.settle(values), *reader.finish()]
    assert [message.text for message in heard(events)] == ["one two three", "And more."]
    assert [event.message.text for event in of(InterruptRaised, events)] == ["Name?"]


@pytest.mark.parametrize("ended", [True, False], ids=["after more was said", "as it was"])
def test_the_end_of_a_run_that_nobody_followed_is_its_state(ended: bool) -> None:
    """It is joined when the gateway is back: of its checkpoints only those before that are told."""
    asked = {"id": "1", "type": "human", "content": "hi"}
    said = {"id": "2", "type": "ai", "content": "one two"}
    events: list[Event] = [
        StateSaved(checkpoint_id="c1", values={"messages": [asked]}, source="input", step=-1),
        MessageStarted(message_id="2"),
        PartAdded(message_id="2", index=0, part=TextPart(text="one "), open=True),
    ]
    reader = EventReader()
    reader.recall(Record(seq, 0, "t", "r", 1, event) for seq, event in enumerate(events, 1))
    values: dict[str, Any] = {"messages": [asked, said] if ended else [asked]}
    told = [*reader.settle(values), *reader.finish()]
    saved = [event.values for event in told if isinstance(event, StateSaved)]
    assert saved == ([values] if ended else [])
