"""Calls of the gRPC service as JSON-RPC requests, and its responses as messages."""

import json
from typing import Any

import pytest

from babelgate.adapters.a2a.codec.protobuf import decode_status, from_bytes, to_bytes
from babelgate.adapters.a2a.errors import REASONS, error_object
from babelgate.adapters.a2a.server.grpc import CODES, service
from babelgate.adapters.a2a.server.trace import METHODS_1_0
from babelgate.adapters.a2a.wire.protobuf import REPLIES, REQUESTS, STREAMS
from babelgate.adapters.kit.server.rpc import RpcFailure
from babelgate.canonical import Fault, FaultCode, FaultError

SERVICE = service()


def test_the_service_has_the_methods_of_json_rpc() -> None:
    assert SERVICE.methods.keys() == METHODS_1_0.keys()
    assert {name for name, method in SERVICE.methods.items() if method.streams} == STREAMS


def test_a_call_becomes_a_request_to_its_tenant() -> None:
    message = to_bytes({"tenant": "echo", "id": "1", "historyLength": 0}, REQUESTS["GetTask"]())
    request = SERVICE.methods["GetTask"].read(message, {}, "other")
    assert (request.path, request.headers) == ("/a2a/echo", {"a2a-version": "1.0"})
    body = json.loads(request.body)
    assert (body["method"], body["params"]) == ("GetTask", {"id": "1", "historyLength": 0})


def test_a_requested_version_is_not_replaced() -> None:
    assert SERVICE.methods["GetTask"].read(b"", {"a2a-version": "99.0"}, "echo").headers == {}


@pytest.mark.parametrize("tenant", ["", "a/b", "..", "../admin", "Ä", "x" * 64])
def test_calls_without_a_possible_agent_are_not_found(tenant: str) -> None:
    message = to_bytes({"tenant": tenant}, REQUESTS["ListTasks"]())
    with pytest.raises(FaultError) as caught:
        SERVICE.methods["ListTasks"].read(message, {}, None)
    assert caught.value.fault.code is FaultCode.NOT_FOUND


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("GetTask", {"id": "1", "contextId": "2", "status": {"state": "TASK_STATE_WORKING"}}),
        ("DeleteTaskPushNotificationConfig", None),
    ],
)
def test_results_become_messages(method: str, result: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
    message = SERVICE.methods[method].write(body, 200)
    assert from_bytes(message, REPLIES[method]()) == (result or {})


def failure_of(error: Any, status: int) -> RpcFailure:
    with pytest.raises(RpcFailure) as caught:
        SERVICE.methods["GetTask"].write(json.dumps({"error": error}).encode(), status)
    return caught.value


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_has_its_status_and_details(name: str) -> None:
    reason = REASONS[name]
    error = error_object(Fault(code=FaultCode.INVALID, message="no", details={"a2a": name}), "1.0")
    failure = failure_of(error, 200)
    assert (failure.code, failure.text) == (reason.rpc, "no")
    assert failure.code in CODES
    (info,) = decode_status(failure.details)
    assert (info["reason"], info["domain"]) == (name, reason.domain)


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (418, "INVALID_ARGUMENT"), (599, "INTERNAL")],
)
def test_errors_without_a_reason_have_the_status_of_http(status: int, code: str) -> None:
    assert failure_of({"code": -32000, "message": "no"}, status).code == code
