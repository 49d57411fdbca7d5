"""Calls of the gRPC service as JSON-RPC requests, and its responses as messages."""

import json
from typing import Any

import pytest
from pydantic_core import to_json

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
    message = SERVICE.methods[method].open_writer()(body, 200)
    assert from_bytes(message, REPLIES[method]()) == (result or {})


def failure_of(error: Any, status: int) -> RpcFailure:
    with pytest.raises(RpcFailure) as caught:
        SERVICE.methods["GetTask"].open_writer()(json.dumps({"error": error}).encode(), status)
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


def update(text: Any, artifact: str = "a", **part: Any) -> Any:
    parts = [{"text": text, **part}]
    return {"artifactUpdate": {"taskId": "1", "artifact": {"artifactId": artifact, "parts": parts}, "append": True}}


TOKENS = [
    "one",
    " two",
    "",
    "\u2028\x00é\U0001f642\\",
    '"',
    '","',
    ":",
    "a",
    "1",
    "text",
    '"}]},"append":true',
    "x" * 2000,
]


@pytest.mark.parametrize("first", [*TOKENS, None], ids=lambda each: str(each)[:20])
def test_messages_do_not_depend_on_those_before_them(first: str | None) -> None:
    opening = [] if first is None else [update(first)]
    state = {"statusUpdate": {"taskId": "1", "status": {"state": "TASK_STATE_WORKING"}}}
    more = [update("x", filename="f"), update("x", "b"), update(None), state, update("x"), update("x", text2="y")]
    write = SERVICE.methods["SendStreamingMessage"].open_writer()
    for result in [*opening, *map(update, TOKENS), *more, *map(update, TOKENS)]:
        body = to_json({"jsonrpc": "2.0", "id": 1, "result": result})
        assert write(body, 200) == to_bytes(result, REPLIES["SendStreamingMessage"]())


def test_an_error_after_tokens_ends_the_call() -> None:
    write = SERVICE.methods["SendStreamingMessage"].open_writer()
    write(to_json({"result": update("x")}), 200)
    with pytest.raises(RpcFailure):
        write(to_json({"error": error_object(Fault(code=FaultCode.INTERNAL, message="no"), "1.0")}), 200)


@pytest.mark.parametrize("text", [b'"a', b'"a","url":"b"', b"1", b"null", rb'"\ud800"', b""])
def test_other_json_instead_of_a_text_is_read_whole(text: bytes) -> None:
    write, fresh = (SERVICE.methods["SendStreamingMessage"].open_writer() for _ in range(2))
    body = to_json({"result": update("first")})
    write(body, 200)
    assert outcome(write, body.replace(b'"first"', text)) == outcome(fresh, body.replace(b'"first"', text))


def outcome(write: Any, body: bytes) -> Any:
    try:
        return write(body, 200)
    except (FaultError, ValueError) as error:
        return str(error)
