"""Addresses of gRPC servers, the user's headers in calls to them, and the JSON of their messages."""

from typing import Any

import pytest

from babelgate.conformance.protocols.a2a.v1.grpc import rpc_url, service
from babelgate.conformance.wire.http import Wire


@pytest.mark.parametrize(
    ("declared", "card_url", "url"),
    [
        ("agent.example:50051", "http://agent.example/card.json", "grpc://agent.example:50051"),
        ("agent.example:50051", "https://agent.example/card.json", "grpcs://agent.example:50051"),
        ("[::1]:50051", "http://agent.example/card.json", "grpc://[::1]:50051"),
        ("https://agent.example/a2a", "http://agent.example/card.json", "grpcs://agent.example:443"),
        ("http://agent.example:81", "https://agent.example/card.json", "grpc://agent.example:81"),
        ("grpc://agent.example:81", "https://agent.example/card.json", "grpc://agent.example:81"),
        ("agent.example", "https://agent.example/card.json", "grpcs://agent.example:443"),
        ("[", "https://agent.example/card.json", "grpc://["),
    ],
)
def test_url_of_a_grpc_server_comes_from_the_card(declared: str, card_url: str, url: str) -> None:
    assert rpc_url(declared, card_url) == url


@pytest.mark.parametrize(
    ("judged", "called", "is_sent"),
    [
        ("http://agent.example:8000", "grpc://agent.example:50051", True),
        ("http://localhost:8000", "grpc://127.0.0.1:50051", True),
        ("https://agent.example", "grpcs://agent.example:50051", True),
        ("https://agent.example", "grpc://agent.example:50051", False),
        ("http://agent.example:8000", "grpc://other.example:50051", False),
        ("http://agent.example:8000", "http://agent.example:8001", False),
    ],
)
async def test_keys_are_sent_to_grpc_on_the_judged_host(judged: str, called: str, is_sent: bool) -> None:
    key, caller = {"X-Api-Key": "secret"}, {"A2A-Version": "1.0"}
    async with Wire(headers=key, other_headers={"X-Api-Key": "other"}, urls=[judged]) as wire:
        assert wire.headers_to_send(called, caller) == ({**key, **caller} if is_sent else caller)
        assert wire.headers_to_send(called, caller, is_anonymous=True) == caller
        assert bool(wire.withheld) is not is_sent


def test_required_empty_members_are_in_the_json_of_a_message() -> None:
    listed = service().encode_response("ListTasks", {"tasks": [{"id": "1", "status": {"state": 3}}], "pageSize": 5})
    assert service().decode_response("ListTasks", listed) == {
        "tasks": [{"id": "1", "status": {"state": "TASK_STATE_COMPLETED"}}],
        "nextPageToken": "",
        "pageSize": 5,
        "totalSize": 0,
    }
    card: dict[str, Any] = {
        "name": "A",
        "skills": [{"id": "1"}],
        "securityRequirements": [{"schemes": {"key": {}}}, {}],
    }
    decoded = service().decode_response("GetExtendedAgentCard", service().encode_response("GetExtendedAgentCard", card))
    assert decoded == {
        **card,
        "description": "",
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [{"id": "1", "description": "", "tags": []}],
        "securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {}}],
    }


def test_numbers_of_data_keep_their_value() -> None:
    sent = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {"a": 42, "b": 1.5, "c": None}}]}}
    assert service().decode_request("SendMessage", service().encode_request("SendMessage", sent)) == sent


def test_bytes_that_are_no_message_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"lf\.a2a\.v1\.Task"):
        service().decode_response("GetTask", b"\xff\xff")
    with pytest.raises(ValueError, match="parts"):
        service().encode_request("SendMessage", {"message": {"parts": "no list"}})
