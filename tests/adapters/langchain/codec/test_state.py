"""Inputs, updates, states, threads and runs in LangGraph's dialect."""

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


def echoed() -> Log:
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
    found = decode_input(wire)
    assert [message.text for message in found.messages] == texts
    assert found.data == data


@given(json_values(8) | st.fixed_dictionaries({"messages": json_values(8)}))
def test_whatever_comes_in_is_an_input_and_an_update_or_a_fault_of_the_caller(value: Any) -> None:
    for decode in (decode_input, decode_update):
        try:
            decode(value)
        except FaultError as error:
            assert error.fault.code is FaultCode.INVALID


@pytest.mark.parametrize("wire", [{"messages": [1]}, {"messages": [{"type": "remove", "id": "1"}]}])
def test_an_input_whose_messages_are_none_is_refused(wire: Any) -> None:
    with pytest.raises(FaultError):
        decode_input(wire)


def test_an_update_merges_its_values_in_order() -> None:
    assert decode_update(None).values == {}
    found = decode_update([{"a": 1, "b": 1}, {"b": 2, "messages": "Hi"}])
    assert found.values == {"a": 1, "b": 2}
    assert [message.text for message in found.messages] == ["Hi"]
    refused: list[Any] = ["text", [1], 7]
    for wrong in refused:
        with pytest.raises(FaultError):
            decode_update(wrong)


def test_remove_all_takes_away_what_is_there_and_what_was_said_before_it() -> None:
    wire: list[Any] = [
        {"type": "ai", "content": "gone", "id": "x"},
        {"type": "remove", "id": "__remove_all__"},
        {"type": "ai", "content": "kept", "id": "m1"},
    ]
    found = decode_update({"messages": wire}, message_ids=("m1", "m2"))
    assert found.removed_ids == ("m2",), "m1 is said again"
    assert [message.text for message in found.messages] == ["kept"]


def test_messages_without_an_id_are_each_their_own() -> None:
    wire: Any = ["a", {"type": "ai", "content": "x", "id": "x"}, "b", {"type": "remove", "id": "x"}, "c"]
    assert [message.text for message in decode_update({"messages": wire}).messages] == ["a", "b", "c"]


def test_a_message_that_an_update_says_twice_is_said_as_last() -> None:
    wire: list[Any] = [{"type": "ai", "content": text, "id": "x"} for text in ("one", "two")]
    assert [message.text for message in decode_update({"messages": wire}).messages] == ["two"]


# States


def test_the_state_of_an_empty_thread_is_exactly_empty() -> None:
    assert json.dumps(encode_state(THREAD, None), separators=(",", ":")) == (
        '{"values":{},"next":[],"tasks":[],"metadata":null,"created_at":null,"checkpoint":null,'
        '"parent_checkpoint":null,"interrupts":[],"checkpoint_id":null,"parent_checkpoint_id":null}'
    )


def test_values_are_the_members_of_the_input_the_output_and_the_messages() -> None:
    log = Log().begin(HELLO, data={"mood": "good"}).start().say("Hel", "lo").end(output={"words": 1})
    values = encode_values(log.history.head)
    assert list(values) == ["mood", "words", "messages"]
    assert [(m["type"], m["content"], m["id"]) for m in values["messages"]] == [
        ("human", "Hello", "u1"),
        ("ai", "Hello", "m1"),
    ]


def test_a_thread_where_nothing_was_said_has_no_messages() -> None:
    log = Log().begin(data={"a": 1}).start().end()
    assert encode_values(log.history.head) == {"a": 1}
    assert encode_values(None) == {}


def test_messages_take_the_place_of_those_that_an_agent_keeps_itself() -> None:
    log = Log(stateful=True).begin(HELLO).start()
    hello = {"type": "human", "content": "Hello", "id": "u1"}
    own: list[Any] = [hello, {"type": "ai", "content": "Hi", "id": "m1"}, {"id": []}]
    log.add(StateSaved(checkpoint_id="c1", values={"messages": own, "a": 1})).end()
    log.run_id = None
    log.add(MessageStarted(message_id="m1"), MessageStarted(message_id="m2"), task=False)
    log.add(StateSaved(checkpoint_id="c2", source="update"), task=False)
    values = encode_values(log.history.head)
    assert [message["id"] for message in values["messages"]] == ["u1", "m1", [], "m2"]
    assert values["messages"][1]["content"] == ""


def test_a_history_is_linked_and_tells_what_each_task_wrote() -> None:
    log = echoed()
    history = log.history
    revisions = history.all()
    newest, oldest = [encode_state(THREAD, revision, history.then(revision)) for revision in revisions]
    named = {"thread_id": THREAD, "checkpoint_ns": "", "checkpoint_id": newest["checkpoint_id"]}
    assert newest["checkpoint"] == named
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


def test_a_thread_has_all_that_both_dialects_show() -> None:
    log = echoed()
    thread = encode_thread(view(log), log.history)
    about = ["thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "status", "config"]
    assert list(thread) == [*about, "values", "interrupts", "error", "messages"]
    assert thread["metadata"] == {"purpose": "test"}
    assert [message["role"] for message in thread["messages"]] == ["user", "assistant"]
    assert [message["type"] for message in thread["values"]["messages"]] == ["human", "ai"]


def test_a_thread_without_its_history_shows_neither_values_nor_questions() -> None:
    thread = encode_thread(view(echoed()), None)
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
    found = encode_thread(view(log), log.history)["error"]
    assert (None if found is None else found["error"]) == error
    if found is not None:
        assert found["message"].endswith("requested via POST /threads/{thread_id}/runs/{run_id}/cancel")


def test_a_run_that_was_cancelled_while_it_waited_is_no_error() -> None:
    log = Log().begin(HELLO).end(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
    assert encode_thread(view(log), log.history)["error"] is None


# Runs


def test_a_run_of_another_protocol_shows_its_input_all_the_same() -> None:
    log = Log().begin(HELLO, data={"mood": "good"})
    given = encode_run(log.run(), log.created())["kwargs"]["input"]
    assert given["mood"] == "good"
    assert given["messages"][0]["content"] == "Hello"
    assert encode_run(Log().begin(data=[1]).run(), Log().begin(data=[1]).created())["kwargs"]["input"] == [1]


def test_an_input_that_brought_files_is_told_again() -> None:
    log = Log().begin(HELLO, extra={"langgraph": {"kwargs": {"stream_mode": "values"}}})
    kwargs = encode_run(log.run(), log.created())["kwargs"]
    assert kwargs["stream_mode"] == "values"
    assert kwargs["input"]["messages"][0]["content"] == "Hello"


def test_a_run_for_later_is_created_then() -> None:
    log = Log().begin(HELLO, start_after=T0 + 3_600_000_000)
    assert encode_run(log.run(), log.created())["created_at"] == "2025-10-09T09:53:20.000000+00:00"
    assert format_time(2**70) == "9999-12-31T23:59:59.999999+00:00"


def test_a_run_tells_what_its_upstream_could_not_carry_and_its_usage() -> None:
    log = Log().begin(HELLO).start().add(LossNoted(feature="reasoning", how="no form")).end(usage={"input_tokens": 3})
    about = encode_run(log.run(), log.created())["metadata"]["babelgate"]
    assert about["loss"] == {"reasoning": "no form"}
    assert about["usage"] == {"input_tokens": 3}


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (RunStatus.SUCCESS, "success"),
        (RunStatus.PAUSED, "success"),
        (RunStatus.ERROR, "error"),
        (RunStatus.TIMEOUT, "timeout"),
        (RunStatus.CANCELLED, "interrupted"),
    ],
)
def test_the_status_of_a_run(status: RunStatus, shown: str) -> None:
    assert run_status(Log().begin(HELLO).start().end(status=status).run()) == shown


# Waiting


def test_a_wait_for_a_run_that_fails_ends_with_the_error_alone() -> None:
    fault = Fault(code=FaultCode.AGENT_TIMEOUT, message="too slow")
    log = Log().begin(HELLO).start().end(status=RunStatus.TIMEOUT, reason=RunReason.FAULT, fault=fault)
    assert wait_result(log.history, log.run()) == {"__error__": {"error": "TimeoutError", "message": "too slow"}}


def test_a_wait_for_a_cancelled_run_ends_with_the_values() -> None:
    log = Log().begin(HELLO).start().end(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
    assert "__error__" not in wait_result(log.history, log.run())
    unstarted = Log().begin(HELLO).end(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
    assert wait_result(unstarted.history, unstarted.run()) == {}


@given(records())
def test_every_log_can_be_shown_as_states_a_thread_and_runs(made: list[Record]) -> None:
    history = StateHistory(THREAD, "alice", made)
    thread = history.fold.thread
    assert isinstance(thread, Thread)
    shown = encode_thread(ThreadView(thread=thread, status="interrupted", updated_at=made[-1].at), history)
    assert shown["values"] == encode_values(history.head)
    for revision in history.all():
        state = encode_state(THREAD, revision, history.then(revision))
        assert [task["name"] for task in state["tasks"]] == state["next"]
        json.dumps(state, allow_nan=False)
    for run in history.fold.runs.values():
        created = next(r.event for r in made if r.event.kind == "run_created" and r.event.run_id == run.run_id)
        assert encode_run(run, created)["status"] == run_status(run)
        json.dumps(wait_result(history, run), allow_nan=False)


# Faults


def test_every_fault_has_a_status_and_a_body_in_both_dialects() -> None:
    for code in FaultCode:
        fault = Fault(code=code, message="why", details={"field": "x"})
        status, body = encode_fault(fault)
        assert 400 <= status < 600
        assert body == {"detail": "why"}
        again, body = encode_fault(fault, "agent-protocol")
        assert again == status
        assert body == {"code": code.value, "message": "why", "metadata": {"field": "x"}}


def test_a_malformed_resume_is_400() -> None:
    fault = FaultError(FaultCode.INVALID, "You must provide a thread_id when resuming.", reason=BAD_REQUEST).fault
    assert encode_fault(fault) == (400, {"detail": "You must provide a thread_id when resuming."})


def test_what_a_langgraph_agent_said_of_its_failure_is_repeated() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="limit", details={"langchain": {"error": "GraphRecursionError"}})
    assert encode_error(fault) == {"error": "GraphRecursionError", "message": "limit"}
    assert encode_error(None)["error"] == "AgentFailedError"


def test_the_name_of_an_exception_stands_beside_its_words_and_not_before_them_too() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="ValueError: no", details={"langchain": {"error": "ValueError"}})
    assert encode_error(fault) == {"error": "ValueError", "message": "no"}


def test_data_that_goes_with_a_question_stands_for_it_also_where_it_is_text() -> None:
    question = InterruptRaised(interrupt_id="q", message=Message(parts=(DataPart(data=1),)), value="ok?")
    assert encode_interrupts([interrupt(question)]) == [{"value": "ok?", "id": "q"}]
