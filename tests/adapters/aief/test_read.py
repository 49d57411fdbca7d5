"""What another AIEF server answers to its steps, as events."""

from typing import Any

import pytest

from babelgate.adapters.aief.read import StepReader, decode_artifact
from babelgate.adapters.aief.wire import replies as w
from babelgate.canonical import Event, FaultCode, FaultError, FilePart, RunReason, RunStatus
from babelgate.canonical.event import InterruptRaised, LossNoted, PartAdded, RunEnded, StepEnded, ToolEnded, ToolStarted
from tests.adapters.aief.far import step

OURS: dict[str, Any] = {"babelgate": {"thread_id": "x", "task_id": "y", "run_id": "z"}}


def read(*steps: Any, **given: Any) -> list[Event]:
    """All that a run says, without its files."""
    reader = StepReader(**given)
    events: list[Event] = []
    for each in steps:
        assert not reader.stopped
        told = reader.read(each)
        events += [*told.content, *told.ended]
    assert reader.stopped
    last = reader.end()
    assert last is not None
    return [*events, last]


def one(output: str | None, last: bool = True, /, **more: Any) -> list[Event]:
    return read(step(output, last=last, additional_output=more))


def parts(events: list[Event]) -> list[Any]:
    return [event.part for event in events if isinstance(event, PartAdded)]


def ended(events: list[Event]) -> RunEnded:
    last = events[-1]
    assert isinstance(last, RunEnded)
    return last


def test_the_output_is_the_answer() -> None:
    events = one("Hello")
    assert [event.kind for event in events] == ["message_started", "part_added", "message_ended", "run_ended"]
    assert [part.text for part in parts(events)] == ["Hello"]
    assert ended(events).status is RunStatus.SUCCESS


@pytest.mark.parametrize("output", [None, ""])
def test_where_nothing_is_said_there_is_no_message(output: str | None) -> None:
    assert [event.kind for event in one(output)] == ["run_ended"]


def test_thoughts_the_last_command_and_costs_of_autogpt_are_read() -> None:
    looked = {"name": "look", "args": {"at": "x"}, "result": {"outputs": "sun", "status": "success"}}
    asked = {"name": "ask", "args": {}, "result": {"error": "E", "reason": "Nobody is there."}}
    told: dict[str, Any] = {
        "Wait": {"thoughts": {"text": "Hm.", "reasoning": "Rain?", "speak": "Wait"}},
        "Sun": {"thoughts": "Look.", "last_action": looked, "task_cumulative_cost": 0.12},
        "No": {"last_action": asked, "task_total_cost": 0.34},
    }
    events = read(*(step(output, last=output == "No", additional_output=more) for output, more in told.items()))
    said = [(part.kind, part.text) for part in parts(events)]
    assert said == [
        *(("reasoning", "Hm.\nRain?"), ("text", "Wait")),
        *(("reasoning", "Look."), ("text", "Sun"), ("text", "No")),
    ]
    started = [(event.name, event.input) for event in events if isinstance(event, ToolStarted)]
    assert started == [("look", {"at": "x"}), ("ask", {})]
    tools = [(e.output, e.fault.message if e.fault else None) for e in events if isinstance(e, ToolEnded)]
    assert tools == [({"outputs": "sun", "status": "success"}, None), (None, "Nobody is there.")]
    assert ended(events).usage == {"cost": 0.34}


def test_what_a_gateway_tells_beside_the_output_is_what_it_was_before() -> None:
    events = one(
        "Done.",
        **OURS,
        reasoning="Hm.",
        progress="Half way.",
        data=[{"a": 1}],
        citations=[{"url": "http://page", "start": 0, "end": 4}, {"start": "x"}, 7],
        tools=[
            {"name": "count", "input": {"text": "a b"}, "output": 2},
            {"name": "find", "arguments": '{"q": 1}', "error": {"code": "agent_failed", "message": "No."}},
            {"name": None},
            7,
        ],
        usage={"input_tokens": 3},
        output={"words": 2},
    )
    kinds = [part.kind for part in parts(events)]
    assert kinds == ["text", "reasoning", "text", "data", "annotation"]
    assert (parts(events)[0].text, parts(events)[2].text, parts(events)[3].data) == ("Half way.", "Done.", {"a": 1})
    started = [(event.name, event.input) for event in events if isinstance(event, ToolStarted)]
    assert started == [("count", {"text": "a b"}), ("find", {"q": 1})]
    tools = [(e.output, e.fault.message if e.fault else None) for e in events if isinstance(e, ToolEnded)]
    assert tools == [(2, None), (None, "No.")]
    assert (ended(events).output, ended(events).usage) == ({"words": 2}, {"input_tokens": 3})


@pytest.mark.parametrize(
    ("output", "more"),
    [
        ('{"a":1}', {"output": {"a": 1}}),
        ("words", {"output": "words"}),
        ('{"a":1}', {"data": [{"a": 1}]}),
        ('[{"a":1},2]', {"data": [{"a": 1}, 2]}),
    ],
)
def test_data_that_a_gateway_repeats_as_text_is_told_once(output: str, more: dict[str, Any]) -> None:
    events = one(output, **OURS, **more)
    assert [part.kind for part in parts(events)] == ["data"] * len(more.get("data", ()))
    assert ended(events).output == more.get("output")


def test_text_that_is_no_repetition_stays() -> None:
    assert [part.text for part in parts(one("null", **OURS))] == ["null"]
    assert [part.kind for part in parts(one("1", **OURS, data=[2]))] == ["text", "data"]


def test_what_any_other_server_tells_beside_the_output_is_the_structured_output() -> None:
    events = one("Done.", data=[1], tools="x", usage={"tokens": 2})
    assert [part.text for part in parts(events)] == ["Done."]
    assert (ended(events).output, ended(events).usage) == ({"data": [1], "tools": "x"}, {"tokens": 2})
    assert ended(one("Done.", usage=7)).output == {"usage": 7}


def test_what_a_step_on_the_way_tells_beside_its_output_is_kept_with_the_step() -> None:
    more = {"plan": [1, 2]}
    events = read(step("One", name="one", last=False, additional_output=more), step("Two", name="two"))
    assert [event.update for event in events if isinstance(event, StepEnded)] == [more, None]
    assert ended(events).output is None


def test_the_usage_of_all_steps_is_added_up() -> None:
    counted = [{"usage": {"in": 1, "out": 2.5, "model": "a"}}, {"usage": {"in": 3, "out": 1, "model": "b"}}]
    events = read(*(step("x", last=more is counted[-1], additional_output=more) for more in counted))
    assert ended(events).usage == {"in": 4, "out": 3.5, "model": "b"}


def test_losses_that_a_gateway_tells_are_told_on_and_only_those_that_have_a_name_here() -> None:
    more = {"babelgate": {"loss": {"custom": "no place", "nothing": "x", "step": 7}}}
    events = read(
        step("One", name="one", last=False, additional_output=more), step("Two", name="two", additional_output=more)
    )
    assert [(e.feature, e.how) for e in events if isinstance(e, LossNoted)] == [("custom", "no place")]


# Faults


def test_an_error_of_the_last_step_is_the_fault_of_the_run_in_its_own_words() -> None:
    events = one("Before.", **OURS, error={"code": "agent_timeout", "message": "Too slow."})
    assert [part.text for part in parts(events)] == ["Before."]
    assert (ended(events).status, ended(events).reason) == (RunStatus.ERROR, RunReason.FAULT)
    fault = ended(events).fault
    assert fault is not None
    assert (fault.code, fault.message) == (FaultCode.AGENT_TIMEOUT, "Too slow.")


def test_an_error_that_is_also_the_output_is_not_said() -> None:
    assert parts(one("Boom", **OURS, error={"code": "agent_failed", "message": "Boom"})) == []


@pytest.mark.parametrize("code", ["internal", "unauthenticated", "nonsense", None, 7])
def test_what_is_wrong_with_the_other_gateway_is_not_wrong_with_this_one(code: Any) -> None:
    fault = ended(one(None, error={"code": code, "message": "Boom"})).fault
    assert fault is not None
    assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "Boom")


def test_a_gateways_step_with_an_error_is_the_last_whatever_it_says_itself() -> None:
    assert ended(one(None, False, **OURS, error={"code": "agent_failed", "message": "Boom"})).fault is not None


def test_a_step_that_was_cancelled_there_is_a_cancelled_run() -> None:
    events = one("Half", **OURS, error={"code": "cancelled", "message": "The step was cancelled."})
    assert (ended(events).status, ended(events).reason) == (RunStatus.CANCELLED, RunReason.CALLER)


@pytest.mark.parametrize("error", ["Boom", {}, {"message": 7}, None])
def test_an_error_of_another_form_is_structured_output(error: Any) -> None:
    assert ended(one("x", error=error)).output == {"error": error}


# Questions


def test_a_question_is_not_also_said_and_what_was_said_before_it_is() -> None:
    more = {**OURS, "status": "input-required", "questions": [{"id": "q", "message": "Who?"}]}
    events = read(step("Hello.\nWho?", last=False, additional_output=more))
    assert [part.text for part in parts(events)] == ["Hello."]
    assert isinstance(events[-1], InterruptRaised)
    assert (events[-1].message.text, events[-1].extra) == ("Who?", {"aief": {"id": "q"}})


@pytest.mark.parametrize("questions", [None, "x", [], [7], [{"message": 7, "kind": 7, "schema": 7, "id": 7}]])
def test_questions_that_make_no_sense_are_one_question(questions: Any) -> None:
    events = read(step("Who?", last=False, additional_output={"status": "input-required", "questions": questions}))
    assert [event.kind for event in events] == ["interrupt_raised"]
    assert isinstance(events[0], InterruptRaised)
    assert (events[0].message.text, events[0].ask, events[0].answer_schema) == ("Who?", "input", None)


def test_a_last_step_asks_nothing() -> None:
    more = {**OURS, "status": "input-required", "questions": [{"id": "q", "message": "Who?"}]}
    assert ended(read(step("Who?", additional_output=more))).status is RunStatus.SUCCESS
    assert ended(read(step("Who?"), asks=True)).status is RunStatus.SUCCESS


def test_text_before_an_unsaid_question_keeps_its_end() -> None:
    more = {"status": "input-required", "questions": [{"message": ""}]}
    events = read(step("Choose:\n", last=False, additional_output=more))
    assert [part.text for part in parts(events)] == ["Choose:\n"]


# Steps and files


def test_a_name_has_an_end() -> None:
    events = read(step("x", name="n" * 1000))
    assert [len(event.name) for event in events if isinstance(event, StepEnded)] == [256]


@pytest.mark.parametrize("status", [None, "created", "completed", "done"])
def test_a_step_that_was_answered_is_over_whatever_its_status_says(status: Any) -> None:
    """Some servers answer with the step as they created it."""
    assert ended(read(step("x", status=status))).status is RunStatus.SUCCESS


def test_a_step_that_is_running_is_not_over() -> None:
    with pytest.raises(FaultError) as caught:
        StepReader().read(step(None, last=False, status="running"))
    assert caught.value.fault.code is FaultCode.AGENT_FAILED


@pytest.mark.parametrize(
    ("name", "clean", "media_type"),
    [
        ("a.txt", "a.txt", "text/plain"),
        ("C:\\x\\a.json", "a.json", "application/json"),
        ("a.tar.gz", "a.tar.gz", "application/octet-stream"),
        ("a?b=#c.png", "a?b=#c.png", "image/png"),
        ("data:text/html,x", "html,x", "application/octet-stream"),
        (None, "artifact", "application/octet-stream"),
        ("/", "artifact", "application/octet-stream"),
    ],
)
def test_a_file_has_a_name_that_is_one_and_the_type_of_its_name(name: Any, clean: str, media_type: str) -> None:
    made = decode_artifact(w.Artifact(artifact_id="x", file_name=name, relative_path="/../a/"), b"1")
    assert isinstance(made.part, FilePart)
    assert (made.name, made.part.media_type, made.part.size, made.folder) == (clean, media_type, 1, "a/")
