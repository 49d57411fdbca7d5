"""The Agent Protocol's own dialect."""

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


def echoed() -> Log:
    return Log().begin(HELLO, data={"mood": "good"}).start().say("Hel", "lo").end()


def test_messages_stand_beside_the_values() -> None:
    log = echoed()
    thread = log.history.fold.thread
    assert thread is not None
    shown = encode_thread(ThreadView(thread=thread, status="idle", updated_at=log.records[-1].at), log.history)
    assert list(shown) == ["thread_id", "created_at", "updated_at", "metadata", "status", "values", "messages"]
    assert shown["values"] == {"mood": "good"}
    assert shown["messages"] == [
        {"role": "user", "content": "Hello", "id": "u1", "metadata": {}},
        {"role": "assistant", "content": "Hello", "id": "m1", "metadata": {}},
    ]


def test_messages_that_an_agent_keeps_itself_are_taken_out_of_its_values() -> None:
    log = Log(stateful=True).begin(HELLO).start()
    own: list[Any] = [{"type": "human", "content": "Hello", "id": "u1"}, {"type": "ai", "content": "Hi", "id": "m1"}]
    log.add(StateSaved(checkpoint_id="c1", values={"messages": own, "a": 1})).end()
    state = encode_state(THREAD, log.history.head)
    assert state["checkpoint"] == {"checkpoint_id": "c1"}
    assert state["values"] == {"a": 1}
    assert [(message["role"], message["content"]) for message in state["messages"]] == [
        ("user", "Hello"),
        ("assistant", "Hi"),
    ]


def test_an_agents_own_messages_of_another_kind_stay_where_they_are() -> None:
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
    asked = {"input": {"mood": "good"}, "webhook": "https://x.example", "stream_mode": "values"}
    log = Log().begin(HELLO, data={"mood": "good"}, extra={"langgraph": {"kwargs": asked}}, config={"tags": ["a"]})
    run = encode_run(log.run(), log.created())
    for member in ("run_id", "created_at", "updated_at", "status", "metadata", "thread_id"):
        assert member in run
    assert (run["kwargs"], run["multitask_strategy"]) == (asked, "enqueue")
    assert (run["agent_id"], run["input"], run["webhook"]) == ("echo", {"mood": "good"}, "https://x.example")
    assert run["messages"] == [encode_message(HELLO)]
    assert run["config"] == {"tags": ["a"]}


def test_a_running_run_is_pending_and_one_that_asks_is_interrupted() -> None:
    """Neither layout lists `running`."""
    log = Log().begin(HELLO)
    assert run_status(log.run()) == "pending"
    assert run_status(log.start().run()) == "pending"
    assert run_status(log.end(status=RunStatus.PAUSED).run()) == "interrupted"
    assert run_status(echoed().run()) == "success"


def test_an_agent_tells_what_it_can() -> None:
    info = AgentInfo(name="echo", description="Says it again.", version="1.2.3", metadata={"team": "a"})
    assert encode_agent(info) == {
        "agent_id": "echo",
        "name": "echo",
        "description": "Says it again.",
        "metadata": {"team": "a", "version": "1.2.3"},
        "capabilities": {"ap.io.messages": True, "ap.io.streaming": True},
    }


def test_an_agent_without_schemas_takes_messages() -> None:
    given = {"type": "object", "properties": {"text": {"type": "string"}}}
    schemas = encode_schemas(AgentInfo(name="echo", schemas={"output": given}))
    assert schemas["agent_id"] == "echo"
    assert schemas["output_schema"] == given
    for schema in ("input_schema", "state_schema"):
        assert "messages" in schemas[schema]["properties"]
    assert schemas["config_schema"] == {"type": "object"}


def test_messages_of_the_agent_protocol_are_read() -> None:
    wire: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "metadata": {"a": 1}}], "metadata": {"b": 2}}
    ]
    [message] = decode_messages(wire)
    assert (message.text, message.metadata, message.parts[0].metadata) == ("Hi", {"b": 2}, {"a": 1})
    assert encode_message(message)["content"] == wire[0]["content"]
    with pytest.raises(FaultError):
        decode_messages([{"content": "no role"}])


@given(records())
def test_every_log_can_be_shown(made: list[Record]) -> None:
    history = StateHistory(THREAD, "alice", made)
    for revision in history.all():
        state = encode_state(THREAD, revision)
        assert "messages" not in state["values"] or not isinstance(state["values"]["messages"], list)
        json.dumps(state, allow_nan=False)
    for run in history.fold.runs.values():
        created = next(r.event for r in made if r.event.kind == "run_created" and r.event.run_id == run.run_id)
        answer = encode_wait(history, run, created)
        assert answer["status"] in {"pending", "error", "success", "timeout", "interrupted"}
        json.dumps(answer, allow_nan=False)
