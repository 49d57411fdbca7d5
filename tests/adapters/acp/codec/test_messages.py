"""Parts, messages, questions and answers, both ways."""

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
from tests.given import make
from tests.strategies import T0, json_values, messages

VIEW = EncodingContext(run_id="r", session_id="s", agent="echo", base_url="http://gateway")
FULL = frozenset({Feature.TEXT, Feature.DATA, Feature.FILE_URL, Feature.CITATION})


def again(model: BaseModel) -> Any:
    """What the other side reads: the model after a way over the wire."""
    return type(model).model_validate(parse_json(w.dump(model)))


def test_the_times_of_a_message_are_those_of_whoever_said_it() -> None:
    told = w.Message.model_validate(
        {"role": "agent", "parts": [], "created_at": "2025-01-01T00:00:00+00:00", "completed_at": None}
    )
    made = encode_message(decode_message(told), VIEW, T0)
    assert (made.role, made.created_at, made.completed_at) == ("agent", "2025-01-01T00:00:00Z", None)
    untold = encode_message(decode_message(w.Message(role="agent/critic", parts=[])), VIEW, T0)
    assert (untold.role, untold.created_at, untold.completed_at) == ("agent/critic", encode_time(T0), encode_time(T0))


@given(messages(FULL, role="user"))
def test_a_message_that_acp_carries_is_what_it_was(message: Message) -> None:
    found = decode_message(again(encode_message(message, VIEW)))
    assert found.replace(extra={}) == message.replace(message_id=None)


@given(messages(), st.integers(0, 2**52))
def test_every_message_has_a_form_that_is_legal_and_stays_the_same(message: Message, at: int) -> None:
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
def test_roles_fit_the_pattern(role: Any, name: str | None, wire: str) -> None:
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


def test_a_question_is_what_it_was_with_its_data_as_a_part() -> None:
    wire = encode_question(QUESTION, VIEW, T0)
    assert wire["type"] == "message"
    found = decode_question(json.loads(json.dumps(wire)), agent="echo")
    assert found.message.parts == (TextPart(text="May I?"), DataPart(data={"x": 1}))
    assert (found.value, found.answer_schema) == ({"x": 1}, {"type": "object"})
    assert decode_question(encode_question(found, VIEW, T0), agent="echo") == found


def test_an_await_that_is_no_message_is_a_question_with_data() -> None:
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
def test_an_answer_is_the_callers_text_or_the_callers_data(resume: dict[str, Any], value: Any) -> None:
    found, message = decode_answer(resume)
    assert found == value
    assert message.role == "user"


def test_an_answer_that_says_message_and_has_none_is_refused() -> None:
    with pytest.raises(FaultError) as caught:
        decode_answer({"type": "message"})
    assert caught.value.fault.code is FaultCode.INVALID


def call(**given: Any) -> Invocation:
    return make(Invocation, agent="echo", thread_id="t", task_id="k", run_id="r", **given)


def test_an_answer_goes_upstream_as_the_caller_said_it() -> None:
    answers = (InterruptAnswered(interrupt_id="i", value="Ada"),)
    spoken = call(answers=answers, messages=(Message.of("Ada, of course", "user"),))
    assert encode_answer(spoken, VIEW)["message"]["parts"][0]["content"] == "Ada, of course"
    assert encode_answer(call(answers=answers), VIEW)["message"]["parts"][0]["content"] == "Ada"
    data = (InterruptAnswered(interrupt_id="i", value={"a": 1}),)
    assert encode_answer(call(answers=data), VIEW)["message"]["parts"][0]["content_type"] == "application/json"


def test_input_that_is_no_message_goes_upstream_as_its_text_and_as_data() -> None:
    [wire] = encode_input(call(data={"message": "Hello", "other": 1}), VIEW)
    assert (wire.role, wire.parts[0].content) == ("user", "Hello")
    assert (wire.parts[1].content_type, wire.parts[1].content) == ("application/json", '{"message":"Hello","other":1}')
    [wire] = encode_input(call(data={"prompt": "Hello"}), VIEW)
    assert [part.content for part in wire.parts] == ["Hello"]
    [wire] = encode_input(call(messages=(Message.of("Hi", "user"),), data={"n": 1}), VIEW)
    assert [part.content for part in wire.parts] == ["Hi", '{"n":1}']
    assert encode_input(call(), VIEW) == []


def test_history_goes_upstream_only_where_the_gateway_gives_it() -> None:
    said = call(history=(Message.of("One", "user"), Message.of("Uno")), messages=(Message.of("Two", "user"),))
    assert [wire.role for wire in encode_input(said, VIEW)] == ["user", "agent/echo", "user"]


# Faults


@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_has_a_status_and_one_of_three_codes(code: FaultCode) -> None:
    fault = Fault(code=code, message="words")
    status, error = encode_fault(fault)
    assert 400 <= status < 600
    assert error.code in ("server_error", "invalid_input", "not_found")
    assert error.model_dump() == {"code": error.code, "message": "words", "data": None}
    assert encode_error(fault).code in ("server_error", "invalid_input")


def test_the_words_of_an_acp_agent_go_on_as_it_said_them() -> None:
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


def test_a_manifest_is_what_it_was_under_a_name_that_is_one_here() -> None:
    [info] = decode_agents({"agents": [MANIFEST]})
    assert AGENT_NAME.match(info.name)
    assert upstream_name(info) == "Slow_Echo Agent!"
    assert info.remembers
    assert info.skills == (Skill(id="echoes", name="Echoes", description="Says it again", tags=("Chat",)),)
    wire = encode_agent(info, "slow-echo").model_dump()
    assert wire["metadata"]["capabilities"] == MANIFEST["metadata"]["capabilities"]  # type: ignore[index]
    assert wire["metadata"]["custom"] == {"x": 1}
    assert wire["metadata"]["created_at"] == "2025-01-01T00:00:00Z"


def test_agents_whose_names_fall_together_are_told_apart() -> None:
    listed = [{"name": name} for name in ("A", "a", "a!", "-", "x" * 100, "x" * 99)]
    names = [info.name for info in decode_agents({"agents": listed})]
    assert len(set(names)) == len(names)
    assert all(AGENT_NAME.match(name) for name in names)


def test_content_types_are_never_an_empty_list() -> None:
    wire = encode_agent(AgentInfo(name="x", input_types=(), output_types=()), "x")
    assert (wire.input_content_types, wire.output_content_types) == (["*/*"], ["*/*"])


def test_an_agent_of_an_acp_server_keeps_the_name_it_has_there_unless_it_is_called_otherwise_here() -> None:
    [info] = decode_agents({"agents": [MANIFEST]})
    assert preferred_name(info) == "Slow_Echo Agent!"
    assert preferred_name(info.replace(name="my_echo")) == "my-echo"
    assert preferred_name(AgentInfo(name="slow_echo")) == "slow-echo"


def test_what_a_manifest_says_of_no_description_and_in_unknown_members_survives() -> None:
    status = {"avg_run_tokens": 1, "avg_run_time_seconds": 2, "success_rate": 3}
    [info] = decode_agents({"agents": [{**MANIFEST, "status": status}]})
    made = encode_agent(info, "x").model_dump()
    assert (made["description"], made["status"]) == (None, status)
    assert encode_agent(AgentInfo(name="x"), "x").description == ""


def test_metadata_in_the_operators_own_form_does_not_break_the_list() -> None:
    wire = encode_agent(AgentInfo(name="x", metadata={"acp": {"metadata": {"tags": 7}}}), "x")
    assert wire.metadata == w.Metadata(annotations={URI: params(MORE_REQUESTS)})


@given(st.lists(st.from_regex(r"\A[a-c][-a-c_.]{0,3}[a-c]\Z"), unique=True))
def test_every_agent_is_advertised_under_a_name_of_its_own(names: list[str]) -> None:
    found = labels((name, label(name)) for name in names)
    assert sorted(found.values()) == sorted(names)
    assert all(found[name] == name for name in names if not {"_", "."} & set(name))


def test_an_agent_list_that_is_a_bare_array_is_refused() -> None:
    with pytest.raises(FaultError):
        decode_agents([MANIFEST])


# Anything at all


def only_a_fault(decode: Any, *given: Any) -> None:
    try:
        decode(*given)
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
def test_any_bytes_into_a_decoder_are_a_value_or_a_fault(raw: bytes) -> None:
    def read(model: type[BaseModel]) -> None:
        validate(model, parse_json(raw))

    for model in WIRE:
        only_a_fault(read, model)


@given(LIKELY)
def test_any_json_into_a_decoder_is_a_value_or_a_fault(value: Any) -> None:
    for model in WIRE:
        only_a_fault(validate, model, value)
    only_a_fault(decode_event, value)
    only_a_fault(decode_agents, value)
    if isinstance(value, dict):
        only_a_fault(decode_answer, value)
        only_a_fault(decode_question, value)


@given(st.dictionaries(KEYS, LIKELY, max_size=6))
def test_any_message_that_is_taken_can_be_shown_again(value: dict[str, Any]) -> None:
    def both_ways(given: Any) -> None:
        again(encode_message(decode_message(validate(w.Message, given)), VIEW))

    only_a_fault(both_ways, {"role": "user", "parts": [value]})
