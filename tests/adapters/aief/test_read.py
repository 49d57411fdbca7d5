"""Conversion of another AIEF server's steps into events."""

from typing import Any

import pytest

from babelgate.adapters.aief.read import StepReader, decode_artifact
from babelgate.adapters.aief.wire import replies as w
from babelgate.canonical import Event, FaultCode, FaultError, FilePart, RunReason, RunStatus
from babelgate.canonical.event import InterruptRaised, LossNoted, PartAdded, RunEnded, StepEnded, ToolEnded, ToolStarted
from tests.adapters.aief.far import step

FROM_GATEWAY: dict[str, Any] = {"babelgate": {"thread_id": "x", "task_id": "y", "run_id": "z"}}


def read(*steps: Any, **options: Any) -> list[Event]:
    """Return all events of a run, without its files."""
    reader = StepReader(**options)
    events: list[Event] = []
    for each in steps:
        assert not reader.stopped
        step_events = reader.read(each)
        events += [*step_events.content, *step_events.ended]
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


def test_the_output_becomes_the_answer() -> None:
    events = one("Hello")
    assert [event.kind for event in events] == ["message_started", "part_added", "message_ended", "run_ended"]
    assert [part.text for part in parts(events)] == ["Hello"]
    assert ended(events).status is RunStatus.SUCCESS


@pytest.mark.parametrize("output", [None, ""])
def test_an_empty_output_is_no_message(output: str | None) -> None:
    assert [event.kind for event in one(output)] == ["run_ended"]


def test_thoughts_the_last_command_and_costs_of_autogpt_are_read() -> None:
    looked = {"name": "look", "args": {"at": "x"}, "result": {"outputs": "sun", "status": "success"}}
    failed = {"name": "ask", "args": {}, "result": {"error": "E", "reason": "Nobody is there."}}
    outputs: dict[str, Any] = {
        "Wait": {"thoughts": {"text": "Hm.", "reasoning": "Rain?", "speak": "Wait"}},
        "Sun": {"thoughts": "Look.", "last_action": looked, "task_cumulative_cost": 0.12},
        "No": {"last_action": failed, "task_total_cost": 0.34},
    }
    events = read(*(step(output, last=output == "No", additional_output=more) for output, more in outputs.items()))
    texts = [(part.kind, part.text) for part in parts(events)]
    assert texts == [
        *(("reasoning", "Hm.\nRain?"), ("text", "Wait")),
        *(("reasoning", "Look."), ("text", "Sun"), ("text", "No")),
    ]
    started = [(event.name, event.input) for event in events if isinstance(event, ToolStarted)]
    assert started == [("look", {"at": "x"}), ("ask", {})]
    tools = [(e.output, e.fault.message if e.fault else None) for e in events if isinstance(e, ToolEnded)]
    assert tools == [({"outputs": "sun", "status": "success"}, None), (None, "Nobody is there.")]
    assert ended(events).usage == {"cost": 0.34}


def test_additional_output_of_a_gateway_is_restored() -> None:
    events = one(
        "Done.",
        **FROM_GATEWAY,
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
def test_data_that_a_gateway_repeats_as_text_is_read_once(output: str, more: dict[str, Any]) -> None:
    events = one(output, **FROM_GATEWAY, **more)
    assert [part.kind for part in parts(events)] == ["data"] * len(more.get("data", ()))
    assert ended(events).output == more.get("output")


def test_text_that_repeats_no_data_is_read() -> None:
    assert [part.text for part in parts(one("null", **FROM_GATEWAY))] == ["null"]
    assert [part.kind for part in parts(one("1", **FROM_GATEWAY, data=[2]))] == ["text", "data"]


def test_additional_output_of_other_servers_is_structured_output() -> None:
    events = one("Done.", data=[1], tools="x", usage={"tokens": 2})
    assert [part.text for part in parts(events)] == ["Done."]
    assert (ended(events).output, ended(events).usage) == ({"data": [1], "tools": "x"}, {"tokens": 2})
    assert ended(one("Done.", usage=7)).output == {"usage": 7}


def test_additional_output_of_an_intermediate_step_stays_with_it() -> None:
    more = {"plan": [1, 2]}
    events = read(step("One", name="one", last=False, additional_output=more), step("Two", name="two"))
    assert [event.update for event in events if isinstance(event, StepEnded)] == [more, None]
    assert ended(events).output is None


def test_the_usage_of_all_steps_is_added_up() -> None:
    counted = [{"usage": {"in": 1, "out": 2.5, "model": "a"}}, {"usage": {"in": 3, "out": 1, "model": "b"}}]
    events = read(*(step("x", last=more is counted[-1], additional_output=more) for more in counted))
    assert ended(events).usage == {"in": 4, "out": 3.5, "model": "b"}


def test_only_specified_losses_of_another_gateway_are_forwarded() -> None:
    more = {"babelgate": {"loss": {"custom": "no place", "nothing": "x", "step": 7}}}
    events = read(
        step("One", name="one", last=False, additional_output=more), step("Two", name="two", additional_output=more)
    )
    assert [(e.feature, e.how) for e in events if isinstance(e, LossNoted)] == [("custom", "no place")]


# Faults


def test_an_error_of_the_last_step_is_the_runs_fault() -> None:
    events = one("Before.", **FROM_GATEWAY, error={"code": "agent_timeout", "message": "Too slow."})
    assert [part.text for part in parts(events)] == ["Before."]
    assert (ended(events).status, ended(events).reason) == (RunStatus.ERROR, RunReason.FAULT)
    fault = ended(events).fault
    assert fault is not None
    assert (fault.code, fault.message) == (FaultCode.AGENT_TIMEOUT, "Too slow.")


def test_an_error_repeated_in_the_output_is_read_once() -> None:
    assert parts(one("Boom", **FROM_GATEWAY, error={"code": "agent_failed", "message": "Boom"})) == []


@pytest.mark.parametrize("code", ["internal", "unauthenticated", "nonsense", None, 7])
def test_internal_errors_of_another_gateway_are_agent_failures(code: Any) -> None:
    fault = ended(one(None, error={"code": code, "message": "Boom"})).fault
    assert fault is not None
    assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "Boom")


def test_a_gateways_step_with_an_error_is_the_last() -> None:
    assert ended(one(None, False, **FROM_GATEWAY, error={"code": "agent_failed", "message": "Boom"})).fault is not None


def test_a_step_cancelled_upstream_is_a_cancelled_run() -> None:
    events = one("Half", **FROM_GATEWAY, error={"code": "cancelled", "message": "The step was cancelled."})
    assert (ended(events).status, ended(events).reason) == (RunStatus.CANCELLED, RunReason.CALLER)


@pytest.mark.parametrize("error", ["Boom", {}, {"message": 7}, None])
def test_an_error_of_another_form_is_structured_output(error: Any) -> None:
    assert ended(one("x", error=error)).output == {"error": error}


# Questions


def test_a_question_is_removed_from_the_output() -> None:
    more = {**FROM_GATEWAY, "status": "input-required", "questions": [{"id": "q", "message": "Who?"}]}
    events = read(step("Hello.\nWho?", last=False, additional_output=more))
    assert [part.text for part in parts(events)] == ["Hello."]
    assert isinstance(events[-1], InterruptRaised)
    assert (events[-1].message.text, events[-1].extra) == ("Who?", {"aief": {"id": "q"}})


@pytest.mark.parametrize("questions", [None, "x", [], [7], [{"message": 7, "kind": 7, "schema": 7, "id": 7}]])
def test_malformed_questions_become_one_question(questions: Any) -> None:
    events = read(step("Who?", last=False, additional_output={"status": "input-required", "questions": questions}))
    assert [event.kind for event in events] == ["interrupt_raised"]
    assert isinstance(events[0], InterruptRaised)
    assert (events[0].message.text, events[0].ask, events[0].answer_schema) == ("Who?", "input", None)


def test_a_last_step_is_no_question() -> None:
    more = {**FROM_GATEWAY, "status": "input-required", "questions": [{"id": "q", "message": "Who?"}]}
    assert ended(read(step("Who?", additional_output=more))).status is RunStatus.SUCCESS
    assert ended(read(step("Who?"), asks=True)).status is RunStatus.SUCCESS


def test_output_is_unchanged_if_it_omits_the_question() -> None:
    more = {"status": "input-required", "questions": [{"message": ""}]}
    events = read(step("Choose:\n", last=False, additional_output=more))
    assert [part.text for part in parts(events)] == ["Choose:\n"]


# Steps and files


def test_a_long_step_name_is_cut() -> None:
    events = read(step("x", name="n" * 1000))
    assert [len(event.name) for event in events if isinstance(event, StepEnded)] == [256]


@pytest.mark.parametrize("status", [None, "created", "completed", "done"])
def test_a_returned_step_is_complete_with_any_other_status(status: Any) -> None:
    """Check other statuses: some servers return the step as they created it."""
    assert ended(read(step("x", status=status))).status is RunStatus.SUCCESS


def test_a_running_step_is_a_fault() -> None:
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
def test_a_file_has_a_safe_name_and_its_media_type(name: Any, clean: str, media_type: str) -> None:
    decoded = decode_artifact(w.Artifact(artifact_id="x", file_name=name, relative_path="/../a/"), b"1")
    assert isinstance(decoded.part, FilePart)
    assert (decoded.name, decoded.part.media_type, decoded.part.size, decoded.folder) == (clean, media_type, 1, "a/")
