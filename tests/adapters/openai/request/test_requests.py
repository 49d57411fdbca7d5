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


def test_only_shared_configuration_keys_are_sent_unchanged() -> None:
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
def test_configuration_keys_are_renamed_for_each_api(
    config: dict[str, Any], in_chat: dict[str, Any], in_responses: dict[str, Any]
) -> None:
    for body, expected in ((chat(**config), in_chat), (response(**config), in_responses)):
        plain = {"model", "messages", "stream", "stream_options", "input", "store"}
        assert {key: value for key, value in body.items() if key not in plain} == expected


def test_instructions_become_a_system_message_or_instructions() -> None:
    assert chat(instructions="Be kind")["messages"][0] == {"role": "system", "content": "Be kind"}
    assert response(instructions="Be kind")["instructions"] == "Be kind"


def test_tools_only_responses_have_are_lost_in_chat_completions() -> None:
    tools: Any = [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}}]
    losses = Losses()
    body = encode_chat("m", MESSAGES, {"tools": tools}, None, losses)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]
    assert [loss.feature for loss in losses] == [Feature.CALLER_TOOLS]
    assert response(tools=tools)["tools"] == tools


@pytest.mark.parametrize("tools", [None, {}, "x", [1, None, "x"]])
def test_invalid_tools_are_left_out(tools: Any) -> None:
    assert "tools" not in chat(tools=tools, tool_choice="auto")
    assert "tool_choice" not in response(tools=tools, tool_choice="auto")


@pytest.mark.parametrize(
    "yes", [True, "yes", " Yes ", "true", {"approve": True}, {"approved": True}, {"approve": "ok"}]
)
def test_affirmative_answers_approve(yes: Any) -> None:
    assert is_approved(yes)


@pytest.mark.parametrize("no", [False, None, "no", "", "yes, but", {}, {"approve": False}, 1, []])
def test_all_other_answers_do_not_approve(no: Any) -> None:
    assert not is_approved(no)


def test_output_is_json_that_can_be_stored() -> None:
    assert output_of('{"a": [1.5]}') == {"a": [1.5]}
    for text in ("", "NaN", "1e999", "[" * 100 + "]" * 100, "{", "\ud800"):
        assert output_of(text) is None


def test_usage_is_decoded_to_canonical_names() -> None:
    assert decode_usage({"prompt_tokens": 1, "total_tokens": 3, "x": None}) == {"input_tokens": 1, "total_tokens": 3}
    assert decode_usage(None) == {}


def test_file_without_a_type_is_an_octet_stream() -> None:
    assert data_url(FilePart(inline=b"\x00")) == "data:application/octet-stream;base64,AA=="


def test_every_feature_is_declared_with_reason_and_source() -> None:
    assert set(CARRIES) == set(Feature)
    for feature, carry in CARRIES.items():
        assert carry.level == "full" or (carry.how and carry.source), feature


# Models


def test_models_become_agents_with_unique_valid_names() -> None:
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


def test_model_keeps_the_members_its_server_reports() -> None:
    [info] = decode_models({"data": [MODEL]})
    encoded = encode_model(info).model_dump()
    assert list(differences(MODEL, {name: value for name, value in encoded.items() if name not in SHARED})) == []


def test_oversized_description_of_a_model_is_dropped() -> None:
    [info] = decode_models({"data": [{**MODEL, "x": "x" * 70_000}]})
    assert encode_model(info).model_dump().keys() - SHARED == {"id", "object", "created", "owned_by"}


def test_bare_list_of_models_is_accepted() -> None:
    assert [info.name for info in decode_models([{"id": "a"}])] == ["a"]


SHARED = {"type", "display_name", "created_at", "lifecycle"}
"""Members for clients of Anthropic's API, whose list of models has the same path."""
NO_LISTS: list[Any] = [None, {}, {"data": None}, {"data": [{}]}, [1], "x"]


@pytest.mark.parametrize("answer", NO_LISTS)
def test_invalid_list_of_models_is_rejected(answer: Any) -> None:
    with pytest.raises(FaultError):
        decode_models(answer)


# Faults


def test_secrets_are_redacted_everywhere_except_short_words() -> None:
    fault = decode_error_response(
        400, Error(message="Bearer abcdefghij is abcdefghij", param="abcdefghij", code="true")
    )
    redacted = redact_fault(fault, ["Bearer abcdefghij", "abcdefghij", "true"])
    assert "abcdefghij" not in repr(redacted)
    assert redacted.message == "The agent's server answered 400: *** is ***"
    assert redacted.details["openai"]["code"] == "true"
