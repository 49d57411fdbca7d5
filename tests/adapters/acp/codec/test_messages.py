"""Conversion of messages, questions, answers, faults and agents between ACP and canonical types."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.agents import decode_agents, encode_agent, label, labels, preferred_name, upstream_name
from babelgate.adapters.acp.codec.messages import (
    decode_answer,
    decode_message,
    decode_question,
    encode_answer,
    encode_input,
    encode_message,
    encode_question,
    encode_role,
    encode_time,
)
from babelgate.adapters.acp.codec.parts import EncodingContext
from babelgate.adapters.acp.errors import decode_error, encode_error, encode_fault
from babelgate.adapters.acp.read.run_events import decode_event
from babelgate.adapters.kit.extension import MORE_REQUESTS, URI, params
from babelgate.adapters.kit.json import parse_json, validate
from babelgate.canonical import (
    AgentInfo,
    DataPart,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    Invocation,
    Message,
    Skill,
    TextPart,
)
from babelgate.canonical.agent import AGENT_NAME
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from tests.strategies import T0, json_values, messages
from tests.submissions import make

VIEW = EncodingContext(run_id="r", session_id="s", agent="echo", base_url="http://gateway")
FULL = frozenset({Feature.TEXT, Feature.DATA, Feature.FILE_URL, Feature.CITATION})


def again(model: BaseModel) -> Any:
    """Return the model as the receiver decodes it."""
    return type(model).model_validate(parse_json(w.dump(model)))


def test_message_times_are_those_of_the_sender() -> None:
    with_times = w.Message.model_validate(
        {"role": "agent", "parts": [], "created_at": "2025-01-01T00:00:00+00:00", "completed_at": None}
    )
    encoded = encode_message(decode_message(with_times), VIEW, T0)
    assert (encoded.role, encoded.created_at, encoded.completed_at) == ("agent", "2025-01-01T00:00:00Z", None)
    default = encode_message(decode_message(w.Message(role="agent/critic", parts=[])), VIEW, T0)
    assert (default.role, default.created_at, default.completed_at) == (
        "agent/critic",
        encode_time(T0),
        encode_time(T0),
    )


@given(messages(FULL, role="user"))
def test_a_message_that_acp_carries_survives_a_round_trip(message: Message) -> None:
    found = decode_message(again(encode_message(message, VIEW)))
    assert found.replace(extra={}) == message.replace(message_id=None)


@given(messages(), st.integers(0, 2**52))
def test_every_message_has_a_valid_and_stable_form(message: Message, at: int) -> None:
    wire = encode_message(message, VIEW, at)
    assert again(wire) == wire
    once = encode_message(decode_message(again(wire), agent="echo"), VIEW, at)
    assert encode_message(decode_message(again(once), agent="echo"), VIEW, at) == once


def test_unknown_fields_of_parts_and_messages_survive() -> None:
    wire = w.Message.model_validate(
        {
            "role": "user",
            "parts": [{"content": "x", "color": "blue"}, {"metadata": {"kind": "mood", "x": 1}}],
            "tone": 7,
        }
    )
    found = encode_message(decode_message(again(wire)), VIEW)
    dumped = found.model_dump()
    assert dumped["tone"] == 7
    assert dumped["parts"][0]["color"] == "blue"
    assert dumped["parts"][1]["metadata"] == {"kind": "mood", "x": 1}


@pytest.mark.parametrize(
    ("role", "name", "wire"),
    [
        ("user", None, "user"),
        ("agent", None, "agent/echo"),
        ("agent", "critic", "agent/critic"),
        ("agent", "a.b c", "agent/a-b-c"),
        ("system", None, "agent/echo"),
    ],
)
def test_written_roles_match_the_pattern(role: Any, name: str | None, wire: str) -> None:
    assert encode_role(role, name, "echo") == wire
    w.Message(role=wire, parts=[])


@pytest.mark.parametrize("role", ["system", "tool", "agent/", "agent/a b", "user\n", "Agent", ""])
def test_other_roles_are_refused(role: str) -> None:
    with pytest.raises(FaultError) as caught:
        validate(w.Message, {"role": role, "parts": []})
    assert caught.value.fault.code is FaultCode.INVALID


def test_times_end_in_z_and_keep_their_microseconds() -> None:
    assert encode_time(1_760_000_000_000_007) == "2025-10-09T08:53:20.000007Z"
    assert encode_time(0) == "1970-01-01T00:00:00.000000Z"


# Questions and answers

QUESTION = InterruptRaised(message=Message.of("May I?"), value={"x": 1}, answer_schema={"type": "object"})


def test_a_question_survives_with_its_data_as_a_part() -> None:
    wire = encode_question(QUESTION, VIEW, T0)
    assert wire["type"] == "message"
    found = decode_question(json.loads(json.dumps(wire)), agent="echo")
    assert found.message.parts == (TextPart(text="May I?"), DataPart(data={"x": 1}))
    assert (found.value, found.answer_schema) == ({"x": 1}, {"type": "object"})
    assert decode_question(encode_question(found, VIEW, T0), agent="echo") == found


def test_an_await_without_a_message_is_a_question_with_data() -> None:
    assert decode_question({"form": [1]}).value == {"form": [1]}
    assert decode_question(None).message.text


@pytest.mark.parametrize(
    ("resume", "value"),
    [
        ({"type": "message", "message": {"parts": [{"content": "Ada"}]}}, "Ada"),
        ({"message": {"parts": [{"content": "A"}, {"content": "da"}]}}, "Ada"),
        ({"type": "message", "message": {"parts": []}}, ""),
        (
            {"type": "message", "message": {"parts": [{"content": '{"a":1}', "content_type": "application/json"}]}},
            {"a": 1},
        ),
        (
            {
                "type": "message",
                "message": {"parts": [{"content": "Ada"}, {"content": "{}", "content_type": "application/json"}]},
            },
            "Ada",
        ),
        ({"approved": True}, {"approved": True}),
    ],
)
def test_an_answer_is_the_callers_text_or_data(resume: dict[str, Any], value: Any) -> None:
    found, message = decode_answer(resume)
    assert found == value
    assert message.role == "user"


def test_an_answer_of_type_message_without_one_is_refused() -> None:
    with pytest.raises(FaultError) as caught:
        decode_answer({"type": "message"})
    assert caught.value.fault.code is FaultCode.INVALID


def call(**members: Any) -> Invocation:
    return make(Invocation, agent="echo", thread_id="t", task_id="k", run_id="r", **members)


def test_an_answer_is_forwarded_in_the_callers_words() -> None:
    answers = (InterruptAnswered(interrupt_id="i", value="Ada"),)
    spoken = call(answers=answers, messages=(Message.of("Ada, of course", "user"),))
    assert encode_answer(spoken, VIEW)["message"]["parts"][0]["content"] == "Ada, of course"
    assert encode_answer(call(answers=answers), VIEW)["message"]["parts"][0]["content"] == "Ada"
    data = (InterruptAnswered(interrupt_id="i", value={"a": 1}),)
    assert encode_answer(call(answers=data), VIEW)["message"]["parts"][0]["content_type"] == "application/json"


def test_data_input_is_forwarded_as_text_and_data() -> None:
    [wire] = encode_input(call(data={"message": "Hello", "other": 1}), VIEW)
    assert (wire.role, wire.parts[0].content) == ("user", "Hello")
    assert (wire.parts[1].content_type, wire.parts[1].content) == ("application/json", '{"message":"Hello","other":1}')
    [wire] = encode_input(call(data={"prompt": "Hello"}), VIEW)
    assert [part.content for part in wire.parts] == ["Hello"]
    [wire] = encode_input(call(messages=(Message.of("Hi", "user"),), data={"n": 1}), VIEW)
    assert [part.content for part in wire.parts] == ["Hi", '{"n":1}']
    assert encode_input(call(), VIEW) == []


def test_history_is_forwarded_before_the_input() -> None:
    invocation = call(history=(Message.of("One", "user"), Message.of("Uno")), messages=(Message.of("Two", "user"),))
    assert [wire.role for wire in encode_input(invocation, VIEW)] == ["user", "agent/echo", "user"]


# Faults


@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_has_a_status_and_one_of_three_codes(code: FaultCode) -> None:
    fault = Fault(code=code, message="words")
    status, error = encode_fault(fault)
    assert 400 <= status < 600
    assert error.code in ("server_error", "invalid_input", "not_found")
    assert error.model_dump() == {"code": error.code, "message": "words", "data": None}
    assert encode_error(fault).code in ("server_error", "invalid_input")


def test_errors_of_an_acp_agent_are_forwarded_unchanged() -> None:
    error = w.Error(code="not_found", message="No such city", data={"city": "X"})
    assert encode_error(decode_error(error)) == error
    assert decode_error(error).code is FaultCode.AGENT_FAILED
    assert encode_error(decode_error(w.Error(code="my_error", message="x"))).code == "server_error"
    assert encode_error(decode_error(None)).message
    assert encode_error(None).message


# Agents

MANIFEST = {
    "name": "Slow_Echo Agent!",
    "description": None,
    "input_content_types": ["*/*"],
    "output_content_types": ["text/plain"],
    "metadata": {
        "tags": ["Chat"],
        "capabilities": [{"name": "Echoes", "description": "Says it again"}],
        "created_at": "2025-01-01T00:00:00+00:00",
        "custom": {"x": 1},
    },
}


def test_a_manifest_survives_under_a_valid_name() -> None:
    [info] = decode_agents({"agents": [MANIFEST]})
    assert AGENT_NAME.match(info.name)
    assert upstream_name(info) == "Slow_Echo Agent!"
    assert info.remembers
    assert info.skills == (Skill(id="echoes", name="Echoes", description="Says it again", tags=("Chat",)),)
    wire = encode_agent(info, "slow-echo").model_dump()
    assert wire["metadata"]["capabilities"] == MANIFEST["metadata"]["capabilities"]  # type: ignore[index]
    assert wire["metadata"]["custom"] == {"x": 1}
    assert wire["metadata"]["created_at"] == "2025-01-01T00:00:00Z"


def test_agents_with_colliding_names_get_distinct_ones() -> None:
    listed = [{"name": name} for name in ("A", "a", "a!", "-", "x" * 100, "x" * 99)]
    names = [info.name for info in decode_agents({"agents": listed})]
    assert len(set(names)) == len(names)
    assert all(AGENT_NAME.match(name) for name in names)


def test_content_types_are_never_an_empty_list() -> None:
    wire = encode_agent(AgentInfo(name="x", input_types=(), output_types=()), "x")
    assert (wire.input_content_types, wire.output_content_types) == (["*/*"], ["*/*"])


def test_an_agent_keeps_its_upstream_name_unless_it_is_renamed() -> None:
    [info] = decode_agents({"agents": [MANIFEST]})
    assert preferred_name(info) == "Slow_Echo Agent!"
    assert preferred_name(info.replace(name="my_echo")) == "my-echo"
    assert preferred_name(AgentInfo(name="slow_echo")) == "slow-echo"


def test_unknown_manifest_members_and_a_null_description_survive() -> None:
    status = {"avg_run_tokens": 1, "avg_run_time_seconds": 2, "success_rate": 3}
    [info] = decode_agents({"agents": [{**MANIFEST, "status": status}]})
    manifest = encode_agent(info, "x").model_dump()
    assert (manifest["description"], manifest["status"]) == (None, status)
    assert encode_agent(AgentInfo(name="x"), "x").description == ""


def test_invalid_operator_metadata_does_not_break_the_agent_list() -> None:
    wire = encode_agent(AgentInfo(name="x", metadata={"acp": {"metadata": {"tags": 7}}}), "x")
    assert wire.metadata == w.Metadata(annotations={URI: params(MORE_REQUESTS)})


@given(st.lists(st.from_regex(r"\A[a-c][-a-c_.]{0,3}[a-c]\Z"), unique=True))
def test_every_agent_has_a_unique_label(names: list[str]) -> None:
    found = labels((name, label(name)) for name in names)
    assert sorted(found.values()) == sorted(names)
    assert all(found[name] == name for name in names if not {"_", "."} & set(name))


def test_an_agent_list_that_is_a_bare_array_is_refused() -> None:
    with pytest.raises(FaultError):
        decode_agents([MANIFEST])


# Arbitrary input


def only_a_fault(decode: Any, *arguments: Any) -> None:
    """Check that a decoder raises only faults, with a message."""
    try:
        decode(*arguments)
    except FaultError as error:
        assert error.fault.message


WIRE = (w.RunCreateRequest, w.RunResumeRequest, w.Run, w.Session, w.Message, w.AgentsListResponse, w.Error)
KEYS = st.sampled_from(
    re.findall(
        r"\w+",
        "role parts content content_encoding content_url metadata kind name type run message part status error generic "
        "agent_name input mode session session_id await_resume",
    )
)
LIKELY = st.recursive(
    json_values() | st.sampled_from(["user", "message", "citation", "trajectory", "base64", "sync", "run.created"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(st.binary())
def test_decoders_return_a_value_or_a_fault_for_any_bytes(raw: bytes) -> None:
    def read(model: type[BaseModel]) -> None:
        validate(model, parse_json(raw))

    for model in WIRE:
        only_a_fault(read, model)


@given(LIKELY)
def test_decoders_return_a_value_or_a_fault_for_any_json(value: Any) -> None:
    for model in WIRE:
        only_a_fault(validate, model, value)
    only_a_fault(decode_event, value)
    only_a_fault(decode_agents, value)
    if isinstance(value, dict):
        only_a_fault(decode_answer, value)
        only_a_fault(decode_question, value)


@given(st.dictionaries(KEYS, LIKELY, max_size=6))
def test_every_accepted_message_can_be_encoded(value: dict[str, Any]) -> None:
    def round_trip(message: Any) -> None:
        again(encode_message(decode_message(validate(w.Message, message)), VIEW))

    only_a_fault(round_trip, {"role": "user", "parts": [value]})
