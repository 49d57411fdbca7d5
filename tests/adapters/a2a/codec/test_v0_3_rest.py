from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.a2a.codec.v0_3_rest import Codec
from babelgate.canonical import DataPart, FilePart, TextPart
from tests.adapters.a2a.codec.test_v1_0 import TASK
from tests.adapters.a2a.schema import check

CODEC = Codec("https://gateway.example.com", "echo")


def message(**more: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}], **more}


@given(st.binary(max_size=50))
def test_file_bytes_are_base64_twice_like_in_the_sdks(data: bytes) -> None:
    encoded = CODEC.encode_part(FilePart(inline=data, name="f"))
    assert b64decode(b64decode(encoded["file"]["fileWithBytes"])) == data
    decoded = CODEC.decode_send({"message": message(content=[encoded])}).message
    assert decoded.parts == (FilePart(inline=data, name="f", size=len(data)),)


def test_file_bytes_in_single_base64_are_accepted() -> None:
    data = bytes(range(255))
    wire = {"file": {"fileWithBytes": b64encode(data).decode()}}
    assert CODEC.decode_send({"message": message(content=[wire])}).message.parts[0] == FilePart(inline=data, size=255)


def test_parts_are_content_and_objects_have_no_kind() -> None:
    encoded = CODEC.encode_task(TASK)
    assert "content" in encoded["history"][0]
    assert "kind" not in str(encoded)


def test_task_is_wrapped_only_in_the_answer_to_a_send() -> None:
    assert set(CODEC.encode_sent(TASK, None)) == {"task"}
    assert CODEC.encode_task(TASK)["id"] == "t"


def test_json_of_the_json_rpc_binding_is_accepted() -> None:
    """Check the body that a2a-js sent up to 0.3.7."""
    parts = [
        {"kind": "text", "text": "a"},
        {"kind": "data", "data": {"data": 1}},
        {"kind": "file", "file": {"bytes": "YQ=="}},
    ]
    wire = {"kind": "message", "messageId": "m", "role": "user", "parts": parts}
    assert CODEC.decode_send({"message": wire}).message.parts == (
        TextPart(text="a"),
        DataPart(data={"data": 1}),
        FilePart(inline=b"a", size=1),
    )


def test_the_message_may_be_called_request() -> None:
    # `request` is the name in the protocol buffer; its JSON name in 0.3.0 is `message`.
    assert CODEC.decode_send({"request": message()}).message.text == "hi"
    assert CODEC.decode_send({"message": message()}).message.text == "hi"


@pytest.mark.parametrize(
    ("body", "waits"),
    [({}, True), ({"configuration": {}}, False), ({"configuration": {"blocking": True}}, True)],
)
def test_configuration_without_blocking_does_not_wait(body: Any, waits: bool) -> None:
    # The SDK of 0.3 omits `blocking` if it is false.
    assert CODEC.decode_send({"message": message(), **body}).wait is waits


def test_inline_push_config_has_its_protocol_buffer_name() -> None:
    push = CODEC.decode_send({"message": message(), "configuration": {"pushNotification": {"url": "https://x"}}}).push
    assert push is not None
    assert push.url == "https://x"


def test_a_push_config_is_named_by_its_path() -> None:
    wire = {"taskId": "t", "pushNotificationConfig": {"id": "p", "url": "https://x"}}
    encoded = check("push", "0.3-rest", CODEC.encode_push(CODEC.decode_push(wire)))
    assert encoded["name"] == "tasks/t/pushNotificationConfigs/p"


def test_fields_unknown_to_the_protocol_buffer_are_omitted() -> None:
    decoded = CODEC.decode_send({"message": message(novel=1, referenceTaskIds=["t0"])}).message
    assert set(CODEC.encode_message(decoded, "c", "t")) == {"messageId", "contextId", "taskId", "role", "content"}
