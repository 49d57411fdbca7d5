"""Encoding in the dialect of the Agent Protocol."""

import json
from typing import Any

import pytest
from hypothesis import given

from babelgate.adapters.langchain.codec.agent_protocol import (
    encode_agent,
    encode_message,
    encode_run,
    encode_schemas,
    encode_state,
    encode_thread,
    encode_values,
    encode_wait,
    run_status,
)
from babelgate.adapters.langchain.codec.state import decode_messages
from babelgate.canonical import AgentInfo, FaultError, Message, Record, RunStatus, StateHistory, TextPart, ThreadView
from babelgate.canonical.event import StateSaved
from tests.adapters.langchain.log import THREAD, Log
from tests.strategies import records

HELLO = Message(message_id="u1", role="user", parts=(TextPart(text="Hello"),))


def echo_log() -> Log:
    return Log().begin(HELLO, data={"mood": "good"}).start().say("Hel", "lo").end()


def test_messages_are_separate_from_the_values() -> None:
    log = echo_log()
    thread = log.history.fold.thread
    assert thread is not None
    encoded = encode_thread(ThreadView(thread=thread, status="idle", updated_at=log.records[-1].at), log.history)
    assert list(encoded) == ["thread_id", "created_at", "updated_at", "metadata", "status", "values", "messages"]
    assert encoded["values"] == {"mood": "good"}
    assert encoded["messages"] == [
        {"role": "user", "content": "Hello", "id": "u1", "metadata": {}},
        {"role": "assistant", "content": "Hello", "id": "m1", "metadata": {}},
    ]


def test_messages_of_a_stateful_agent_are_removed_from_its_values() -> None:
    log = Log(stateful=True).begin(HELLO).start()
    messages: list[Any] = [
        {"type": "human", "content": "Hello", "id": "u1"},
        {"type": "ai", "content": "Hi", "id": "m1"},
    ]
    log.add(StateSaved(checkpoint_id="c1", values={"messages": messages, "a": 1})).end()
    state = encode_state(THREAD, log.history.head)
    assert state["checkpoint"] == {"checkpoint_id": "c1"}
    assert state["values"] == {"a": 1}
    assert [(message["role"], message["content"]) for message in state["messages"]] == [
        ("user", "Hello"),
        ("assistant", "Hi"),
    ]


def test_other_messages_of_a_stateful_agent_stay_in_values() -> None:
    log = Log(stateful=True).begin(HELLO).start()
    log.add(StateSaved(checkpoint_id="c1", values={"messages": "none of yours"})).end()
    assert encode_values(log.history.head) == {"messages": "none of yours"}
    assert encode_state(THREAD, log.history.head)["messages"] == [
        {"role": "user", "content": "none of yours", "id": "", "metadata": {}}
    ]


def test_an_empty_thread_has_no_checkpoint() -> None:
    assert encode_state(THREAD, None) == {"checkpoint": None, "values": {}, "messages": [], "metadata": {}}
    assert encode_values(None) == {}


def test_a_run_satisfies_both_layouts() -> None:
    kwargs = {"input": {"mood": "good"}, "webhook": "https://x.example", "stream_mode": "values"}
    log = Log().begin(HELLO, data={"mood": "good"}, extra={"langgraph": {"kwargs": kwargs}}, config={"tags": ["a"]})
    run = encode_run(log.run(), log.created())
    for member in ("run_id", "created_at", "updated_at", "status", "metadata", "thread_id"):
        assert member in run
    assert (run["kwargs"], run["multitask_strategy"]) == (kwargs, "enqueue")
    assert (run["agent_id"], run["input"], run["webhook"]) == ("echo", {"mood": "good"}, "https://x.example")
    assert run["messages"] == [encode_message(HELLO)]
    assert run["config"] == {"tags": ["a"]}


def test_an_active_run_is_pending_and_a_paused_one_interrupted() -> None:
    """Show an active run as pending, because neither layout lists `running`."""
    log = Log().begin(HELLO)
    assert run_status(log.run()) == "pending"
    assert run_status(log.start().run()) == "pending"
    assert run_status(log.end(status=RunStatus.PAUSED).run()) == "interrupted"
    assert run_status(echo_log().run()) == "success"


def test_an_agent_shows_its_capabilities() -> None:
    info = AgentInfo(name="echo", description="Says it again.", version="1.2.3", metadata={"team": "a"})
    assert encode_agent(info) == {
        "agent_id": "echo",
        "name": "echo",
        "description": "Says it again.",
        "metadata": {"team": "a", "version": "1.2.3"},
        "capabilities": {"ap.io.messages": True, "ap.io.streaming": True},
    }


def test_an_agent_without_schemas_takes_messages() -> None:
    output = {"type": "object", "properties": {"text": {"type": "string"}}}
    schemas = encode_schemas(AgentInfo(name="echo", schemas={"output": output}))
    assert schemas["agent_id"] == "echo"
    assert schemas["output_schema"] == output
    for schema in ("input_schema", "state_schema"):
        assert "messages" in schemas[schema]["properties"]
    assert schemas["config_schema"] == {"type": "object"}


def test_messages_of_the_agent_protocol_are_decoded() -> None:
    wire: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "metadata": {"a": 1}}], "metadata": {"b": 2}}
    ]
    [message] = decode_messages(wire)
    assert (message.text, message.metadata, message.parts[0].metadata) == ("Hi", {"b": 2}, {"a": 1})
    assert encode_message(message)["content"] == wire[0]["content"]
    with pytest.raises(FaultError):
        decode_messages([{"content": "no role"}])


@given(records())
def test_every_log_can_be_encoded(log: list[Record]) -> None:
    history = StateHistory(THREAD, "alice", log)
    for revision in history.all():
        state = encode_state(THREAD, revision)
        assert "messages" not in state["values"] or not isinstance(state["values"]["messages"], list)
        json.dumps(state, allow_nan=False)
    for run in history.fold.runs.values():
        created = next(r.event for r in log if r.event.kind == "run_created" and r.event.run_id == run.run_id)
        answer = encode_wait(history, run, created)
        assert answer["status"] in {"pending", "error", "success", "timeout", "interrupted"}
        json.dumps(answer, allow_nan=False)
