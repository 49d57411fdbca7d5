from typing import Any

import pytest

from babelgate.adapters.a2a.codec.v0_3 import Codec
from babelgate.adapters.a2a.wire.requests import Push, PushName
from babelgate.canonical import FaultError
from tests.adapters.a2a.codec.test_v1_0 import TASK
from tests.adapters.a2a.schema import check

CODEC = Codec("https://gateway.example.com", "echo")


def message(**more: Any) -> dict[str, Any]:
    return {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **more}


def test_data_other_than_an_object_is_rejected() -> None:
    with pytest.raises(FaultError, match="object"):
        CODEC.decode_send({"message": message(parts=[{"kind": "data", "data": [1]}])})


def test_unknown_fields_survive_a_round_trip() -> None:
    wire = message(parts=[{"kind": "text", "text": "x", "novel": [1]}], newField=1, referenceTaskIds=["t0"])
    decoded = CODEC.decode_send({"message": wire}).message
    assert CODEC.encode_message(decoded, "c", "t") == {**wire, "contextId": "c", "taskId": "t"}


@pytest.mark.parametrize(
    ("configuration", "waits"),
    [(None, True), ({}, True), ({"blocking": True}, True), ({"blocking": False}, False), ({"blocking": None}, True)],
)
def test_a_send_waits_unless_blocking_is_false(configuration: Any, waits: bool) -> None:
    assert CODEC.decode_send({"message": message(), "configuration": configuration}).wait is waits


def test_history_length_of_zero_is_unlimited() -> None:
    for length, expected in ((0, None), (2, 2), (None, None)):
        assert CODEC.decode_get({"id": "t", "historyLength": length}).history_length == expected
    with pytest.raises(FaultError, match="must not be negative"):
        CODEC.decode_get({"id": "t", "historyLength": -3})


def test_accepted_output_modes_may_be_missing() -> None:
    assert CODEC.decode_send({"message": message(), "configuration": {"blocking": True}}).output_modes == ()
    configuration = {"acceptedOutputModes": ["text/plain"]}
    assert CODEC.decode_send({"message": message(), "configuration": configuration}).output_modes == ("text/plain",)


def test_push_configs_are_nested_and_listed_as_an_array() -> None:
    auth = {"schemes": ["Bearer", "Basic"], "credentials": "k"}
    wire = {
        "taskId": "t",
        "pushNotificationConfig": {"id": "p", "url": "https://x", "token": "s", "authentication": auth},
    }
    push = CODEC.decode_push(wire)
    assert check("push", "0.3", CODEC.encode_push(push)) == wire
    assert check("pushes", "0.3", CODEC.encode_pushes([push], "")) == [wire]


def test_push_config_is_named_by_task_and_optional_id() -> None:
    assert CODEC.decode_push_name({"id": "t"}) == PushName(task_id="t")
    assert CODEC.decode_push_name({"id": "t", "pushNotificationConfigId": "p"}) == PushName(task_id="t", config_id="p")


def test_an_inline_push_config_is_read() -> None:
    params = {"message": message(), "configuration": {"pushNotificationConfig": {"url": "https://x"}}}
    assert CODEC.decode_send(params).push == Push(url="https://x")


def test_task_has_its_kind() -> None:
    assert check("task", "0.3", CODEC.encode_task(TASK))["kind"] == "task"
    assert CODEC.encode_sent(TASK, None)["kind"] == "task"
