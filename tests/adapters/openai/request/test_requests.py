"""Request bodies of both APIs from a caller's configuration, and conversions that both APIs share."""

from typing import Any

import pytest

from babelgate.adapters.kit.client.redact import redact_fault
from babelgate.adapters.openai.agents import decode_models, encode_model, upstream_name
from babelgate.adapters.openai.carries import CARRIES
from babelgate.adapters.openai.codec.model import Losses, data_url, decode_usage, is_approved, output_of
from babelgate.adapters.openai.errors.decode import decode_error_response
from babelgate.adapters.openai.request.chat import encode_chat
from babelgate.adapters.openai.request.responses import encode_response
from babelgate.adapters.openai.wire.answers import Error
from babelgate.canonical import FaultError, Feature, FilePart, Message
from babelgate.canonical.agent import AGENT_NAME
from tests.difference import differences

MESSAGES = (Message.of("Hi", "user"),)


def chat(**config: Any) -> dict[str, Any]:
    return encode_chat("m", MESSAGES, config, None, Losses())


def response(**config: Any) -> dict[str, Any]:
    return encode_response("m", [], config, None)


def test_what_both_apis_call_alike_is_passed_and_nothing_else() -> None:
    config = {"temperature": 0, "user": "u", "configurable": {"thread_id": "t"}, "recursion_limit": 25, "top_p": None}
    for body in (chat(**config), response(**config)):
        assert (body["temperature"], body["user"]) == (0, "u")
        assert not body.keys() & {"configurable", "recursion_limit", "top_p", "metadata"}


@pytest.mark.parametrize(
    ("config", "in_chat", "in_responses"),
    [
        ({"max_tokens": 5}, {"max_tokens": 5}, {"max_output_tokens": 5}),
        ({"max_completion_tokens": 5}, {"max_completion_tokens": 5}, {"max_output_tokens": 5}),
        ({"max_output_tokens": 5}, {"max_completion_tokens": 5}, {"max_output_tokens": 5}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"verbosity": "low"}, {"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"stop": ["x"]}, {"stop": ["x"]}, {}),
        ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_object"}},
         {"text": {"format": {"type": "json_object"}}}),
    ],
)  # fmt: skip
def test_what_they_call_differently_is_renamed(
    config: dict[str, Any], in_chat: dict[str, Any], in_responses: dict[str, Any]
) -> None:
    for body, expected in ((chat(**config), in_chat), (response(**config), in_responses)):
        plain = {"model", "messages", "stream", "stream_options", "input", "store"}
        assert {key: value for key, value in body.items() if key not in plain} == expected


def test_instructions_are_the_systems_words() -> None:
    assert chat(instructions="Be kind")["messages"][0] == {"role": "system", "content": "Be kind"}
    assert response(instructions="Be kind")["instructions"] == "Be kind"


def test_tools_that_only_responses_have_are_a_loss_in_chat_completions() -> None:
    tools: Any = [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}}]
    losses = Losses()
    body = encode_chat("m", MESSAGES, {"tools": tools}, None, losses)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]
    assert [loss.feature for loss in losses] == [Feature.CALLER_TOOLS]
    assert response(tools=tools)["tools"] == tools


@pytest.mark.parametrize("tools", [None, {}, "x", [1, None, "x"]])
def test_tools_that_are_none_are_none(tools: Any) -> None:
    assert "tools" not in chat(tools=tools, tool_choice="auto")
    assert "tool_choice" not in response(tools=tools, tool_choice="auto")


@pytest.mark.parametrize(
    "yes", [True, "yes", " Yes ", "true", {"approve": True}, {"approved": True}, {"approve": "ok"}]
)
def test_a_yes_is_a_yes(yes: Any) -> None:
    assert is_approved(yes)


@pytest.mark.parametrize("no", [False, None, "no", "", "yes, but", {}, {"approve": False}, 1, []])
def test_everything_else_is_a_no(no: Any) -> None:
    assert not is_approved(no)


def test_output_is_json_that_can_be_stored() -> None:
    assert output_of('{"a": [1.5]}') == {"a": [1.5]}
    for text in ("", "NaN", "1e999", "[" * 100 + "]" * 100, "{", "\ud800"):
        assert output_of(text) is None


def test_usage_is_told_in_one_form() -> None:
    assert decode_usage({"prompt_tokens": 1, "total_tokens": 3, "x": None}) == {"input_tokens": 1, "total_tokens": 3}
    assert decode_usage(None) == {}


def test_a_file_without_a_type_is_bytes() -> None:
    assert data_url(FilePart(inline=b"\x00")) == "data:application/octet-stream;base64,AA=="


def test_every_feature_is_declared_and_every_loss_has_a_reason_and_a_source() -> None:
    assert set(CARRIES) == set(Feature)
    for feature, carry in CARRIES.items():
        assert carry.level == "full" or (carry.how and carry.source), feature


# Models


def test_models_are_agents_with_names_of_their_own() -> None:
    ids = ["Org/One", "org-one", "ft:gpt-4o:acme::x", "é", "x" * 100]
    infos = decode_models({"object": "list", "data": [{"id": name} for name in ids]})
    assert [upstream_name(info) for info in infos] == ids
    assert len({info.name for info in infos}) == len(ids)
    assert all(AGENT_NAME.fullmatch(info.name) for info in infos)


MODEL: dict[str, Any] = {
    "id": "far",
    "object": "model",
    "created": 1700000000,
    "owned_by": "them",
    "max_model_len": 4096,
    "permission": [{"id": "p"}],
}


def test_a_model_is_listed_as_its_server_lists_it() -> None:
    [info] = decode_models({"data": [MODEL]})
    assert list(differences(MODEL, encode_model(info).model_dump())) == []


def test_what_is_said_of_a_model_has_a_limit() -> None:
    [info] = decode_models({"data": [{**MODEL, "x": "x" * 70_000}]})
    assert encode_model(info).model_dump().keys() == {"id", "object", "created", "owned_by"}


def test_a_bare_list_of_models_is_understood() -> None:
    assert [info.name for info in decode_models([{"id": "a"}])] == ["a"]


NO_LISTS: list[Any] = [None, {}, {"data": None}, {"data": [{}]}, [1], "x"]


@pytest.mark.parametrize("answer", NO_LISTS)
def test_what_is_no_list_of_models_is_refused(answer: Any) -> None:
    with pytest.raises(FaultError):
        decode_models(answer)


# Faults


def test_a_secret_is_covered_wherever_it_stands_and_short_words_are_left() -> None:
    fault = decode_error_response(
        400, Error(message="Bearer abcdefghij is abcdefghij", param="abcdefghij", code="true")
    )
    redacted = redact_fault(fault, ["Bearer abcdefghij", "abcdefghij", "true"])
    assert "abcdefghij" not in repr(redacted)
    assert redacted.message == "The agent's server answered 400: *** is ***"
    assert redacted.details["openai"]["code"] == "true"
