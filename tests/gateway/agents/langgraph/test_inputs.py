"""Tests of the conversion of callers' input to the input of a graph."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.types import Command, Send

from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT
from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.canonical import DataPart, FaultError, FilePart, Invocation, Message, TextPart, ToolCallPart
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.message import ToolResultPart
from babelgate.gateway.agents.langgraph.inputs import (
    GraphInputSchema,
    command_of,
    configuration,
    options,
    resume_command,
    to_base_message,
)
from tests.submissions import make

TEXT = {"type": "string"}
A, B = "a" * 32, "b" * 32


def shape(required: tuple[str, ...] = (), **members: Any) -> GraphInputSchema:
    return GraphInputSchema({"type": "object", "properties": members, "required": list(required)})


def call(*messages: Message, **fields: Any) -> Invocation:
    return make(Invocation, agent="g", thread_id="t", task_id="k", run_id="", messages=messages, **fields)


def user(*parts: Any) -> Message:
    return Message(message_id="m", role="user", parts=parts)


HI = user(TextPart(text="Hi"))


def test_messages_go_into_the_schemas_field_next_to_the_data() -> None:
    graph_input: Any = shape(messages={"type": "array"}, count={"type": "integer"}).input(call(HI, data={"count": 2}))
    assert graph_input["count"] == 2
    (message,) = graph_input["messages"]
    assert message == HumanMessage("Hi", id="m")


def test_a_history_precedes_the_input() -> None:
    earlier = Message(message_id="e", role="agent", parts=(TextPart(text="Earlier"),))
    graph_input: Any = shape(messages={}).input(call(HI), (earlier,))
    assert [message.content for message in graph_input["messages"]] == ["Earlier", "Hi"]


def test_messages_that_are_strings_stay_strings() -> None:
    graph_input: Any = shape(messages={"type": "array", "items": TEXT}).input(call(HI))
    assert graph_input == {"messages": ["Hi"]}


@pytest.mark.parametrize(
    ("asks", "member"),
    [
        (shape(topic=TEXT), "topic"),
        (shape(topic=TEXT, count={"type": "integer"}), "topic"),
        (shape(("topic",), topic=TEXT, note=TEXT), "topic"),
        (shape(context=TEXT, question=TEXT), "question"),
        (shape(topic={"anyOf": [TEXT, {"type": "null"}]}), "topic"),
        (shape(colour={"type": "string", "enum": ["red"]}, topic=TEXT), "topic"),
    ],
)
def test_a_text_goes_into_the_only_possible_member(asks: GraphInputSchema, member: str) -> None:
    assert asks.input(call(HI)) == {member: "Hi"}


def test_a_text_does_not_replace_data() -> None:
    asks = shape(topic=TEXT, count={"type": "integer"})
    assert asks.input(call(HI, data={"count": 1})) == {"count": 1, "topic": "Hi"}
    assert asks.input(call(HI, data={"topic": "mine"})) == {"topic": "mine"}
    assert asks.input(call(user(DataPart(data={"count": 3}), TextPart(text="Hi")))) == {"count": 3, "topic": "Hi"}


def test_a_text_without_a_member_is_refused_with_the_schema() -> None:
    for asks in (shape(count={"type": "integer"}), shape(first=TEXT, second=TEXT)):
        with pytest.raises(FaultError, match="send data with the fields"):
            asks.input(call(HI))


def test_an_empty_input_continues_the_graph() -> None:
    assert shape(topic=TEXT).input(call()) is None
    assert shape(topic=TEXT).input(call(data={})) == {}


def test_a_graph_without_object_input_receives_text_or_data() -> None:
    assert GraphInputSchema({"type": "string"}).input(call(HI)) == "Hi"
    assert GraphInputSchema({"type": "integer"}).input(call(data=7)) == 7
    assert shape(topic=TEXT).input(call(data="Hi")) == {"topic": "Hi"}


def test_a_schema_by_reference_is_read() -> None:
    schema: Any = {"$ref": "#/$defs/In", "$defs": {"In": {"type": "object", "properties": {"topic": TEXT}}}}
    assert GraphInputSchema(schema).input(call(HI)) == {"topic": "Hi"}


def test_messages_of_every_role_become_langchain_messages() -> None:
    calls = (ToolCallPart(call_id="c", name="f", arguments='{"a": 1}'),)
    request = Message(message_id="1", role="agent", parts=calls)
    result = Message(message_id="2", role="tool", parts=(ToolResultPart(call_id="c", output="done"),))
    system = Message(role="system", parts=(TextPart(text="Be kind."),))
    messages = [to_base_message(message) for message in (request, result, system)]
    assert [type(message) for message in messages] == [AIMessage, ToolMessage, SystemMessage]
    assert isinstance(messages[0], AIMessage)
    assert messages[0].tool_calls == [{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}]
    assert isinstance(messages[1], ToolMessage)
    assert (messages[1].tool_call_id, messages[1].content) == ("c", "done")


def test_a_file_is_a_block_with_its_bytes() -> None:
    message: Any = to_base_message(user(FilePart(name="a.png", media_type="image/png", inline=b"x")))
    assert message.content[0] | {"extras": None} == {
        "type": "image",
        "base64": "eA==",
        "mime_type": "image/png",
        "extras": None,
    }


# Answers


def answer(interrupt_id: str, value: Any, action: Any = "answer") -> InterruptAnswered:
    return InterruptAnswered(interrupt_id=interrupt_id, value=value, action=action)


def test_one_answer_is_bare_and_several_have_ids() -> None:
    assert resume_command([answer(A, "x")], {}) == Command(resume="x")
    assert resume_command([answer(A, "x"), answer(B, 2)], {}) == Command(resume={A: "x", B: 2})


@pytest.mark.parametrize("value", [None, {}, {A: 1}])
def test_an_ambiguous_answer_is_sent_with_its_id(value: Any) -> None:
    assert resume_command([answer(A, value)], {}) == Command(resume={A: value})


def test_a_repeated_question_is_answered_under_the_graphs_id() -> None:
    assert resume_command([answer(f"{A}-2", "x"), answer(B, "y")], {}) == Command(resume={A: "x", B: "y"})


def test_a_declined_question_is_answered_with_nothing() -> None:
    assert resume_command([answer(A, "ignored", "decline")], {}) == Command(resume={A: None})


def test_any_answer_at_a_breakpoint_continues_the_graph() -> None:
    assert resume_command([answer(f"{BREAKPOINT}1f1e", "anything")], {}) is None


def test_a_command_is_sent_with_the_answer() -> None:
    call_config = {"command": {"goto": ["a", {"node": "b", "input": 1}], "update": {"n": 1}, "resume": "no"}}
    command = command_of(call(cause="answer", config=call_config))
    assert command == {"goto": ["a", Send("b", 1)], "update": {"n": 1}}
    assert resume_command([answer(A, "x")], command) == Command(resume="x", goto=["a", Send("b", 1)], update={"n": 1})
    assert command_of(call(config={"command": {"goto": "a"}})) == {"goto": ["a"]}
    assert command_of(call(config={"command": {"resume": False}})) == {"resume": False}
    with pytest.raises(FaultError, match="goto"):
        command_of(call(config={"command": {"goto": [7]}}))


# Configuration


def test_a_caller_cannot_set_reserved_configurable_fields() -> None:
    configurable = {
        "thread_id": "other",
        "checkpoint_id": "x",
        "checkpoint_ns": "x",
        "checkpoint_map": {},
        "__pregel_checkpointer": "x",
        "langgraph_auth_user": {"identity": "root"},
        "langgraph_auth_user_id": "root",
        "model": "small",
    }
    result = configuration(call(owner="ann", config={"configurable": configurable}), None)
    assert result["configurable"] == {
        "model": "small",
        "thread_id": "t",
        "checkpoint_ns": "",
        "graph_id": "g",
        "langgraph_auth_user_id": "ann",
        "assistant_id": assistant_id("g"),
    }
    assert configuration(call(), "c")["configurable"]["checkpoint_id"] == "c"


def test_limits_and_tags_are_passed_if_set() -> None:
    result = configuration(call(config={"recursion_limit": 5, "tags": ["a"]}), None)
    assert (result["recursion_limit"], result["tags"]) == (5, ["a"])
    result = configuration(call(config={"recursion_limit": 0, "tags": [1]}), None)
    assert "recursion_limit" not in result and "tags" not in result


def test_langgraph_receives_the_id_of_the_run() -> None:
    run_id = "6b2c0d3e-8c7f-4a55-9d57-0a3f6f6f4e11"
    result = configuration(Invocation(agent="g", thread_id="t", task_id="k", run_id=run_id, attempt=2), None)
    assert result["metadata"] == {"run_id": run_id, "run_attempt": 2, "graph_id": "g"}


def test_context_and_configurable_are_equivalent() -> None:
    named = frozenset({"model"})
    assert options(call(config={"context": {"model": "a"}}), named) == {"context": {"model": "a"}}
    assert options(call(config={"configurable": {"model": "a", "x": 1}}), named) == {"context": {"model": "a"}}
    assert options(call(config={"configurable": {"model": "a"}}), frozenset()) == {}
    assert configuration(call(config={"context": {"model": "a"}}), None)["configurable"]["model"] == "a"


def test_durability_and_breakpoints_are_passed_if_set() -> None:
    config = {"durability": "exit", "interrupt_before": "*", "interrupt_after": ["a"]}
    assert options(call(config=config), frozenset()) == config
    assert options(call(config={"durability": "never", "interrupt_before": [1]}), frozenset()) == {}
