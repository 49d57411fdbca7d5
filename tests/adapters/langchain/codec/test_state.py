"""Encoding and decoding of inputs, updates, states, threads and runs in LangGraph's dialect."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.langchain.codec.interrupts import encode_interrupts
from babelgate.adapters.langchain.codec.state import (
    decode_input,
    decode_update,
    encode_run,
    encode_state,
    encode_thread,
    encode_values,
    format_time,
    run_status,
    wait_result,
)
from babelgate.adapters.langchain.errors.encode import BAD_REQUEST, encode_error, encode_fault
from babelgate.canonical import (
    DataPart,
    Fault,
    FaultCode,
    FaultError,
    Message,
    Record,
    RunReason,
    RunStatus,
    StateHistory,
    TextPart,
    Thread,
    ThreadView,
)
from babelgate.canonical.event import InterruptRaised, LossNoted, MessageStarted, RunRemoved, StateSaved
from babelgate.canonical.thread import ThreadStatus
from tests.adapters.langchain.log import RUN, THREAD, Log, interrupt
from tests.strategies import T0, json_values, records

HELLO = Message(message_id="u1", role="user", parts=(TextPart(text="Hello"),))
QUESTION = InterruptRaised(interrupt_id="q1", message=Message.of("What is your name?"))


def view(log: Log, status: ThreadStatus = "idle") -> ThreadView:
    thread = log.history.fold.thread
    assert thread is not None
    return ThreadView(thread=thread, status=status, updated_at=log.records[-1].at)


def echo_log() -> Log:
    return Log().begin(HELLO, data={"mood": "good"}).start().say("Hel", "lo").end()


# Inputs


@pytest.mark.parametrize(
    ("wire", "texts", "data"),
    [
        (None, [], None),
        ("Hi", ["Hi"], None),
        ({"messages": [{"role": "user", "content": "Hi"}]}, ["Hi"], None),
        ({"messages": {"role": "user", "content": "Hi"}, "mood": "good"}, ["Hi"], {"mood": "good"}),
        ({"messages": "Hi"}, ["Hi"], None),
        ({"messages": None, "a": 1}, [], {"a": 1}),
        ({"messages": []}, [], {}),
        ([{"role": "user", "content": "Hi"}, ["ai", "Ho"]], ["Hi", "Ho"], None),
        ({"message": "Hi"}, [], {"message": "Hi"}),
        ({"prompt": "Hi"}, [], {"prompt": "Hi"}),
        (["a", "b"], ["a", "b"], None),
        (["a", 1], [], ["a", 1]),
        ([{"content": "Hi"}], [], [{"content": "Hi"}]),
        ([], [], []),
        (7, [], 7),
    ],
)
def test_an_input_is_messages_and_data(wire: Any, texts: list[str], data: Any) -> None:
    input = decode_input(wire)
    assert [message.text for message in input.messages] == texts
    assert input.data == data


@given(json_values(8) | st.fixed_dictionaries({"messages": json_values(8)}))
def test_any_json_is_an_input_or_an_invalid_request(value: Any) -> None:
    for decode in (decode_input, decode_update):
        try:
            decode(value)
        except FaultError as error:
            assert error.fault.code is FaultCode.INVALID


@pytest.mark.parametrize("wire", [{"messages": [1]}, {"messages": [{"type": "remove", "id": "1"}]}])
def test_an_input_with_invalid_messages_is_rejected(wire: Any) -> None:
    with pytest.raises(FaultError):
        decode_input(wire)


def test_an_update_merges_its_values_in_order() -> None:
    assert decode_update(None).values == {}
    update = decode_update([{"a": 1, "b": 1}, {"b": 2, "messages": "Hi"}])
    assert update.values == {"a": 1, "b": 2}
    assert [message.text for message in update.messages] == ["Hi"]
    invalid: list[Any] = ["text", [1], 7]
    for value in invalid:
        with pytest.raises(FaultError):
            decode_update(value)


def test_remove_all_removes_existing_and_earlier_messages() -> None:
    wire: list[Any] = [
        {"type": "ai", "content": "gone", "id": "x"},
        {"type": "remove", "id": "__remove_all__"},
        {"type": "ai", "content": "kept", "id": "m1"},
    ]
    update = decode_update({"messages": wire}, message_ids=("m1", "m2"))
    assert update.removed_ids == ("m2",), "m1 is added again"
    assert [message.text for message in update.messages] == ["kept"]


def test_messages_without_an_id_are_not_merged() -> None:
    wire: Any = ["a", {"type": "ai", "content": "x", "id": "x"}, "b", {"type": "remove", "id": "x"}, "c"]
    assert [message.text for message in decode_update({"messages": wire}).messages] == ["a", "b", "c"]


def test_a_repeated_message_in_an_update_replaces_the_first() -> None:
    wire: list[Any] = [{"type": "ai", "content": text, "id": "x"} for text in ("one", "two")]
    assert [message.text for message in decode_update({"messages": wire}).messages] == ["two"]


# States


def test_the_state_of_an_empty_thread_is_empty() -> None:
    assert json.dumps(encode_state(THREAD, None), separators=(",", ":")) == (
        '{"values":{},"next":[],"tasks":[],"metadata":null,"created_at":null,"checkpoint":null,'
        '"parent_checkpoint":null,"interrupts":[],"checkpoint_id":null,"parent_checkpoint_id":null}'
    )


def test_values_combine_input_output_and_messages() -> None:
    log = Log().begin(HELLO, data={"mood": "good"}).start().say("Hel", "lo").end(output={"words": 1})
    values = encode_values(log.history.head)
    assert list(values) == ["mood", "words", "messages"]
    assert [(m["type"], m["content"], m["id"]) for m in values["messages"]] == [
        ("human", "Hello", "u1"),
        ("ai", "Hello", "m1"),
    ]


def test_values_of_a_thread_without_messages_have_no_messages() -> None:
    log = Log().begin(data={"a": 1}).start().end()
    assert encode_values(log.history.head) == {"a": 1}
    assert encode_values(None) == {}


def test_logged_messages_replace_those_of_a_stateful_agent() -> None:
    log = Log(stateful=True).begin(HELLO).start()
    hello = {"type": "human", "content": "Hello", "id": "u1"}
    messages: list[Any] = [hello, {"type": "ai", "content": "Hi", "id": "m1"}, {"id": []}]
    log.add(StateSaved(checkpoint_id="c1", values={"messages": messages, "a": 1})).end()
    log.run_id = None
    log.add(MessageStarted(message_id="m1"), MessageStarted(message_id="m2"), task=False)
    log.add(StateSaved(checkpoint_id="c2", source="update"), task=False)
    values = encode_values(log.history.head)
    assert [message["id"] for message in values["messages"]] == ["u1", "m1", [], "m2"]
    assert values["messages"][1]["content"] == ""


def test_a_history_has_links_and_results_of_tasks() -> None:
    log = echo_log()
    history = log.history
    revisions = history.all()
    newest, oldest = [encode_state(THREAD, revision, history.then(revision)) for revision in revisions]
    expected = {"thread_id": THREAD, "checkpoint_ns": "", "checkpoint_id": newest["checkpoint_id"]}
    assert newest["checkpoint"] == expected
    assert newest["parent_checkpoint"] == oldest["checkpoint"]
    assert oldest["parent_checkpoint"] is None
    assert (newest["next"], oldest["next"]) == ([], ["echo"])
    assert (newest["metadata"]["source"], oldest["metadata"]["source"]) == ("loop", "input")
    assert (newest["metadata"]["step"], oldest["metadata"]["step"]) == (0, -1)
    assert newest["metadata"]["run_id"] == RUN
    assert newest["created_at"] == "2025-10-09T08:53:20.011000+00:00"
    [task] = oldest["tasks"]
    assert (task["name"], task["error"], task["interrupts"]) == ("echo", None, [])
    assert [message["content"] for message in task["result"]["messages"]] == ["Hello"]


# Threads


def test_a_thread_has_the_members_of_both_dialects() -> None:
    log = echo_log()
    thread = encode_thread(view(log), log.history)
    about = ["thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "status", "config"]
    assert list(thread) == [*about, "values", "interrupts", "error", "messages"]
    assert thread["metadata"] == {"purpose": "test"}
    assert [message["role"] for message in thread["messages"]] == ["user", "assistant"]
    assert [message["type"] for message in thread["values"]["messages"]] == ["human", "ai"]


def test_a_thread_without_history_has_no_values_or_questions() -> None:
    thread = encode_thread(view(echo_log()), None)
    assert (thread["values"], thread["interrupts"], thread["error"]) == ({}, {}, None)
    assert "messages" not in thread


@pytest.mark.parametrize(
    ("reason", "error"),
    [(RunReason.CALLER, "UserInterrupt"), (RunReason.ROLLED_BACK, "UserRollback"), (RunReason.SUPERSEDED, None)],
)
def test_a_cancelled_run_is_the_error_of_its_thread(reason: RunReason, error: str | None) -> None:
    log = Log().begin(HELLO).start().end(status=RunStatus.CANCELLED, reason=reason)
    if reason is RunReason.ROLLED_BACK:
        log.add(RunRemoved(run_id=RUN, why="rollback"))
    encoded = encode_thread(view(log), log.history)["error"]
    assert (None if encoded is None else encoded["error"]) == error
    if encoded is not None:
        assert encoded["message"].endswith("requested via POST /threads/{thread_id}/runs/{run_id}/cancel")


def test_a_run_cancelled_before_its_start_is_no_error() -> None:
    log = Log().begin(HELLO).end(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
    assert encode_thread(view(log), log.history)["error"] is None


# Runs


def test_a_run_of_another_protocol_shows_its_input() -> None:
    log = Log().begin(HELLO, data={"mood": "good"})
    input = encode_run(log.run(), log.created())["kwargs"]["input"]
    assert input["mood"] == "good"
    assert input["messages"][0]["content"] == "Hello"
    assert encode_run(Log().begin(data=[1]).run(), Log().begin(data=[1]).created())["kwargs"]["input"] == [1]


def test_an_input_without_stored_kwargs_is_encoded_from_the_log() -> None:
    log = Log().begin(HELLO, extra={"langgraph": {"kwargs": {"stream_mode": "values"}}})
    kwargs = encode_run(log.run(), log.created())["kwargs"]
    assert kwargs["stream_mode"] == "values"
    assert kwargs["input"]["messages"][0]["content"] == "Hello"


def test_a_delayed_run_has_its_start_as_creation_time() -> None:
    log = Log().begin(HELLO, start_after=T0 + 3_600_000_000)
    assert encode_run(log.run(), log.created())["created_at"] == "2025-10-09T09:53:20.000000+00:00"
    assert format_time(2**70) == "9999-12-31T23:59:59.999999+00:00"


def test_metadata_of_a_run_has_losses_and_usage() -> None:
    log = Log().begin(HELLO).start().add(LossNoted(feature="reasoning", how="no form")).end(usage={"input_tokens": 3})
    about = encode_run(log.run(), log.created())["metadata"]["babelgate"]
    assert about["loss"] == {"reasoning": "no form"}
    assert about["usage"] == {"input_tokens": 3}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (RunStatus.SUCCESS, "success"),
        (RunStatus.PAUSED, "success"),
        (RunStatus.ERROR, "error"),
        (RunStatus.TIMEOUT, "timeout"),
        (RunStatus.CANCELLED, "interrupted"),
    ],
)
def test_each_run_status_is_encoded(status: RunStatus, expected: str) -> None:
    assert run_status(Log().begin(HELLO).start().end(status=status).run()) == expected


# Waiting


def test_waiting_for_a_failed_run_returns_only_the_error() -> None:
    fault = Fault(code=FaultCode.AGENT_TIMEOUT, message="too slow")
    log = Log().begin(HELLO).start().end(status=RunStatus.TIMEOUT, reason=RunReason.FAULT, fault=fault)
    assert wait_result(log.history, log.run()) == {"__error__": {"error": "TimeoutError", "message": "too slow"}}


def test_waiting_for_a_cancelled_run_returns_the_values() -> None:
    log = Log().begin(HELLO).start().end(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
    assert "__error__" not in wait_result(log.history, log.run())
    unstarted = Log().begin(HELLO).end(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
    assert wait_result(unstarted.history, unstarted.run()) == {}


@given(records())
def test_every_log_can_be_encoded(log: list[Record]) -> None:
    history = StateHistory(THREAD, "alice", log)
    thread = history.fold.thread
    assert isinstance(thread, Thread)
    encoded = encode_thread(ThreadView(thread=thread, status="interrupted", updated_at=log[-1].at), history)
    assert encoded["values"] == encode_values(history.head)
    for revision in history.all():
        state = encode_state(THREAD, revision, history.then(revision))
        assert [task["name"] for task in state["tasks"]] == state["next"]
        json.dumps(state, allow_nan=False)
    for run in history.fold.runs.values():
        created = next(r.event for r in log if r.event.kind == "run_created" and r.event.run_id == run.run_id)
        assert encode_run(run, created)["status"] == run_status(run)
        json.dumps(wait_result(history, run), allow_nan=False)


# Faults


def test_every_fault_has_a_response_in_both_dialects() -> None:
    for code in FaultCode:
        fault = Fault(code=code, message="why", details={"field": "x"})
        status, body = encode_fault(fault)
        assert 400 <= status < 600
        assert body == {"detail": "why"}
        other_status, body = encode_fault(fault, "agent-protocol")
        assert other_status == status
        assert body == {"code": code.value, "message": "why", "metadata": {"field": "x"}}


def test_a_malformed_resume_is_400() -> None:
    fault = FaultError(FaultCode.INVALID, "You must provide a thread_id when resuming.", reason=BAD_REQUEST).fault
    assert encode_fault(fault) == (400, {"detail": "You must provide a thread_id when resuming."})


def test_the_error_name_of_a_langgraph_agent_is_preserved() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="limit", details={"langchain": {"error": "GraphRecursionError"}})
    assert encode_error(fault) == {"error": "GraphRecursionError", "message": "limit"}
    assert encode_error(None)["error"] == "AgentFailedError"


def test_the_name_of_an_exception_is_not_repeated() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="ValueError: no", details={"langchain": {"error": "ValueError"}})
    assert encode_error(fault) == {"error": "ValueError", "message": "no"}


def test_the_value_of_a_question_replaces_its_message() -> None:
    question = InterruptRaised(interrupt_id="q", message=Message(parts=(DataPart(data=1),)), value="ok?")
    assert encode_interrupts([interrupt(question)]) == [{"value": "ok?", "id": "q"}]
