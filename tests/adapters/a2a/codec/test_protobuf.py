"""JSON of A2A 1.0 and its protocol buffer messages: what passes in both directions, and what cannot."""

from typing import Any

import pytest

from babelgate.adapters.a2a.codec.protobuf import decode_status, encode_status, from_bytes, to_bytes
from babelgate.adapters.a2a.wire.protobuf import REPLIES, REQUESTS, Status
from babelgate.canonical import FaultCode, FaultError

INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org"}


def message_with(**part: Any) -> dict[str, Any]:
    return {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [part]}}


@pytest.mark.parametrize(
    "request_",
    [
        message_with(text="Grüße \u2028 \U0001f642"),
        message_with(data={"one": 1, "half": 0.5, "none": None, "list": [True, {"deep": []}], "large": 2**53}),
        message_with(data=None),
        message_with(data=[]),
        message_with(raw="AAEC", filename="a.bin", mediaType="application/octet-stream", metadata={"k": "v"}),
        message_with(url="https://example.com/a"),
        {**message_with(text="x"), "configuration": {"historyLength": 0, "returnImmediately": True}},
    ],
    ids=lambda each: str(each)[60:90],
)
def test_requests_keep_their_json(request_: dict[str, Any]) -> None:
    encoded = to_bytes(request_, REQUESTS["SendMessage"]())
    assert from_bytes(encoded, REQUESTS["SendMessage"]()) == request_


def test_doubles_without_a_fraction_become_integers() -> None:
    decoded = from_bytes(
        to_bytes(message_with(data=[3, 3.5, 1e300]), REQUESTS["SendMessage"]()), REQUESTS["SendMessage"]()
    )
    assert [type(each) for each in decoded["message"]["parts"][0]["data"]] == [int, float, float]


def test_unknown_members_are_left_out() -> None:
    task = {"id": "1", "contextId": "2", "status": {"state": "TASK_STATE_WORKING"}, "own": {"x": 1}}
    assert "own" not in from_bytes(to_bytes(task, REPLIES["GetTask"]()), REPLIES["GetTask"]())


@pytest.mark.parametrize(
    "part", [{"data": 2**53 + 1}, {"data": {"deep": [-(2**80) - 1]}}, {"data": 10**400}, {"text": "half \ud800"}]
)
def test_content_without_a_message_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(FaultError, match="use JSON-RPC or REST") as caught:
        to_bytes(message_with(**part), REQUESTS["SendMessage"]())
    assert caught.value.fault.code is FaultCode.UNSUPPORTED


@pytest.mark.parametrize("content", [b"\xff", b"\x12\x05abc", b"\x12\x06\x0a\x04\xff\xff\xff\xff"])
def test_bytes_that_are_no_message_are_invalid(content: bytes) -> None:
    with pytest.raises(FaultError) as caught:
        from_bytes(content, REQUESTS["SendMessage"]())
    assert caught.value.fault.code is FaultCode.INVALID


def test_details_of_errors_are_bounded() -> None:
    violations = [{"field": f"field{number}", "description": "x" * 50} for number in range(200)]
    details = [INFO, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]
    encoded = encode_status(3, "é" * 5000, details)
    assert len(encoded) <= 4096
    info, bad_request = decode_status(encoded)
    assert info["reason"] == "TASK_NOT_FOUND"
    assert bad_request["fieldViolations"] == violations[: len(bad_request["fieldViolations"])] != []
    assert len(violations) == 200


def any_of(name: str, content: bytes) -> bytes:
    status: Any = Status()
    status.details.add(type_url=f"type.googleapis.com/{name}", value=content)
    return status.SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff\xff", b"", b"\x1a\x02\x0a\x00", b"\x1a\x08\x0a\x06x/none"),
        any_of("google.rpc.ErrorInfo", b"\xff"),
        any_of("google.protobuf.Value", b"\x11\x00\x00\x00\x00\x00\x00\xf8\x7f"),  # not a number
    ],
)
def test_unknown_details_of_errors_are_ignored(content: bytes) -> None:
    assert not any("reason" in each for each in decode_status(content))


def test_messages_with_too_many_fields_are_refused_unparsed() -> None:
    values = b"\x0a\x00" * 100_000  # empty values of a list, of 2 bytes each
    nested = values
    for tag in (b"\x32", b"\x22", b"\x2a", b"\x12"):  # list_value, data, parts, message
        nested = tag + varint(len(nested)) + nested
    with pytest.raises(FaultError) as caught:
        from_bytes(nested, REQUESTS["SendMessage"](), 50_000)
    assert caught.value.fault.code is FaultCode.TOO_LARGE
    text = to_bytes(message_with(text="\x0a\x00" * 100_000), REQUESTS["SendMessage"]())
    assert from_bytes(text, REQUESTS["SendMessage"](), 50)["message"]["messageId"] == "1"


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def test_the_order_of_members_does_not_change_a_message() -> None:
    names = [f"member{number}" for number in range(50)]
    one, other = (message_with(data=dict.fromkeys(each, 1)) for each in (names, reversed(names)))
    assert to_bytes(one, REQUESTS["SendMessage"]()) == to_bytes(other, REQUESTS["SendMessage"]())
