"""Addresses of gRPC servers, calls to them with the user's headers and certificates, and the JSON of their messages."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from babelgate.conformance.protocols.a2a.v1.grpc import SERVICE, rpc_url, service
from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import Unanswered, Wire
from babelgate.conformance.wire.rpc import RpcClient
from babelgate.conformance.wire.schema import load_schemas
from babelgate.conformance.wire.tls import CLIENT_FILES, EXTRA_CA
from tests.authority import Authority


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


@asynccontextmanager
async def serving_task(credentials: Any = None) -> AsyncGenerator[str]:
    """Serve GetTask, and yield the URL of the server. The task `late` is never returned, and `none` is no message."""

    async def get_task(content: bytes, context: Any) -> bytes:
        task_id = service().decode_request("GetTask", content)["id"]
        if task_id == "late":
            await asyncio.Event().wait()
        task = {"id": task_id, "status": {"state": "TASK_STATE_COMPLETED"}}
        return b"\xff" if task_id == "none" else service().encode_response("GetTask", task)

    server = grpc.aio.server()
    handlers = {"GetTask": cast("Any", grpc).unary_unary_rpc_method_handler(get_task)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if credentials is None:
        port, scheme = server.add_insecure_port("127.0.0.1:0"), "grpc"
    else:
        port, scheme = server.add_secure_port("127.0.0.1:0", credentials), "grpcs"
    await server.start()
    try:
        yield f"{scheme}://127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def get_task(url: str, task: str = "1", bound: float = 5.0) -> Exchange:
    async with Wire(urls=["https://127.0.0.1"], schemas=load_schemas("a2a-1.0")) as wire:
        client = RpcClient(wire, url, service())
        content = service().encode_request("GetTask", {"id": task})
        return await client.call(
            "GetTask", content, sends="GetTask.params", receives="GetTask.result", fails="RpcStatus", bound=bound
        )


async def test_calls_use_the_certificates_of_the_check(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue("server", "127.0.0.1"), authority.issue("client", "client")
    pair = (server.key.read_bytes(), server.cert.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], authority.path.read_bytes(), require_client_auth=True)
    async with serving_task(credentials) as url:
        with pytest.raises(Unanswered):
            await get_task(url)
        token, files_token = EXTRA_CA.set(authority.path), CLIENT_FILES.set((client.cert, client.key))
        try:
            exchange = await get_task(url)
        finally:
            EXTRA_CA.reset(token)
            CLIENT_FILES.reset(files_token)
    assert (exchange.rpc_status, exchange.status) == ("OK", 200)
    assert exchange.json == {"id": "1", "status": {"state": "TASK_STATE_COMPLETED"}}


async def test_late_answer_and_lost_server_are_no_answer() -> None:
    async with serving_task() as url:
        with pytest.raises(Unanswered, match=r"nothing came within 0\.2 s"):
            await get_task(url, "late", 0.2)
    with pytest.raises(Unanswered):
        await get_task(url)


async def test_method_without_a_server_has_a_status() -> None:
    async with serving_task() as url, Wire() as wire:
        client = RpcClient(wire, url, service())
        exchange = await client.call("CancelTask", b"", sends=None, receives=None, fails=None)
    assert (exchange.rpc_status, exchange.status) == ("UNIMPLEMENTED", 501)
    assert exchange.header("grpc-status") == "12"
    assert exchange.json["code"] == 12


async def test_invalid_message_is_a_violation_of_its_schema() -> None:
    async with serving_task() as url:
        exchange = await get_task(url, "none")
    [request, response] = exchange.messages
    assert (request.is_from_check, request.violations) == (True, ())
    assert [each.definitions for each in response.violations] == [("GetTask.result",)]
