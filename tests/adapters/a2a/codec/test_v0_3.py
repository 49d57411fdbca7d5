from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters._json import validate
from babelgate.adapters.a2a.codec.dialect import decode_message
from babelgate.adapters.a2a.codec.v0_3 import Codec
from babelgate.adapters.a2a.wire import v0_3 as w
from babelgate.adapters.a2a.wire.requests import Push, PushName
from babelgate.canonical import DataPart, FaultCode, FaultError, Feature, Message
from tests.adapters.a2a.codec.test_v1_0 import TASK
from tests.adapters.a2a.schema import check
from tests.examples import examples
from tests.strategies import json_objects, json_values, messages

CODEC = Codec("https://gateway.example.com", "echo")
CARRIED = frozenset({Feature.TEXT, Feature.DATA, Feature.FILE_URL, Feature.METADATA})


def message(**more: Any) -> dict[str, Any]:
    return {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **more}


@given(messages(CARRIED))
def test_a_message_comes_back_as_it_was(said: Message) -> None:
    encoded = check("message", "0.3", CODEC.encode_message(said, "c", "t"))
    again = decode_message(validate(w.Message, encoded), "object")
    assert (again.role, again.parts, again.metadata) == (said.role, said.parts, said.metadata)


@given(json_values())
def test_data_that_is_no_object_is_wrapped_and_unwrapped_again(value: Any) -> None:
    encoded = CODEC.encode_message(Message(message_id="m", parts=(DataPart(data=value),)), "c", "t")
    check("message", "0.3", encoded)
    assert decode_message(validate(w.Message, encoded), "object").parts == (DataPart(data=value),)


def test_data_that_is_no_object_is_refused_on_the_way_in() -> None:
    with pytest.raises(FaultError, match="object"):
        CODEC.decode_send({"message": message(parts=[{"kind": "data", "data": [1]}])})


def test_fields_that_nobody_knows_survive() -> None:
    wire = message(parts=[{"kind": "text", "text": "x", "novel": [1]}], newField=1, referenceTaskIds=["t0"])
    said = CODEC.decode_send({"message": wire}).message
    assert CODEC.encode_message(said, "c", "t") == {**wire, "contextId": "c", "taskId": "t"}


@pytest.mark.parametrize(
    ("configuration", "waits"),
    [(None, True), ({}, True), ({"blocking": True}, True), ({"blocking": False}, False), ({"blocking": None}, True)],
)
def test_a_send_waits_unless_blocking_is_false(configuration: Any, waits: bool) -> None:
    assert CODEC.decode_send({"message": message(), "configuration": configuration}).wait is waits


def test_a_history_length_of_zero_is_unlimited_and_a_negative_one_is_refused() -> None:
    for length, wanted in ((0, None), (2, 2), (None, None)):
        assert CODEC.decode_get({"id": "t", "historyLength": length}).history_length == wanted
    with pytest.raises(FaultError, match="must not be negative"):
        CODEC.decode_get({"id": "t", "historyLength": -3})


def test_accepted_output_modes_are_required_in_0_2_5_and_may_be_missing_in_0_3() -> None:
    assert CODEC.decode_send({"message": message(), "configuration": {"blocking": True}}).output_modes == ()
    given_modes = {"acceptedOutputModes": ["text/plain"]}
    assert CODEC.decode_send({"message": message(), "configuration": given_modes}).output_modes == ("text/plain",)


def test_push_configs_are_nested_with_a_list_of_schemes_and_listed_as_a_bare_array() -> None:
    auth = {"schemes": ["Bearer", "Basic"], "credentials": "k"}
    wire = {
        "taskId": "t",
        "pushNotificationConfig": {"id": "p", "url": "https://x", "token": "s", "authentication": auth},
    }
    push = CODEC.decode_push(wire)
    assert check("push", "0.3", CODEC.encode_push(push)) == wire
    assert check("pushes", "0.3", CODEC.encode_pushes([push], "")) == [wire]


def test_a_push_config_is_got_by_task_and_the_config_may_be_left_out() -> None:
    assert CODEC.decode_push_name({"id": "t"}) == PushName(task_id="t")
    assert CODEC.decode_push_name({"id": "t", "pushNotificationConfigId": "p"}) == PushName(task_id="t", config_id="p")


def test_an_inline_push_config_is_read() -> None:
    params = {"message": message(), "configuration": {"pushNotificationConfig": {"url": "https://x"}}}
    assert CODEC.decode_send(params).push == Push(url="https://x")


def test_a_task_says_what_it_is() -> None:
    assert check("task", "0.3", CODEC.encode_task(TASK))["kind"] == "task"
    assert CODEC.encode_sent(TASK, None)["kind"] == "task"


@examples(150)
@given(
    json_objects(),
    st.sampled_from(["message", "configuration", "pushNotificationConfig", "id", "taskId"]),
    json_values(),
)
def test_json_of_any_kind_is_decoded_or_refused_and_nothing_else(params: dict[str, Any], key: str, value: Any) -> None:
    for decode in (
        CODEC.decode_send,
        CODEC.decode_get,
        CODEC.decode_task_id,
        CODEC.decode_list,
        CODEC.decode_push,
        CODEC.decode_push_name,
        CODEC.decode_push_list,
    ):
        try:
            decode({**params, key: value})
        except FaultError as error:
            assert error.fault.code is FaultCode.INVALID
