"""The gRPC binding of A2A 1.0 (specification 1.0, 10): each call becomes a request of JSON-RPC to the agent.

The messages are converted by their JSON. The agent is in `tenant`, which the agent's card declares and which clients
repeat in each request (4.4.6). Needs the extra `babelgate[grpc]`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from pydantic_core import from_json, to_json

from babelgate.adapters.a2a.codec.protobuf import MOST_REQUEST_FIELDS, encode_status, from_bytes, to_bytes
from babelgate.adapters.a2a.errors import REASONS, error_object, list_details, reason_of
from babelgate.adapters.a2a.wire.protobuf import REPLIES, REQUESTS, SERVICE, STREAMS
from babelgate.adapters.kit.server.rpc import RpcFailure, RpcMethod, RpcRequest, RpcService
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.agent import AGENT_NAME
from babelgate.canonical.value import JsonObject

CODES: Final = {
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}
"""Numbers of gRPC statuses by name (google/rpc/code.proto)."""
_BY_STATUS: Final = {
    reason.status: reason.rpc
    for reason in reversed(REASONS.values())
    if reason.status not in (400, 500)  # these have several statuses
}
"""Names of gRPC statuses by the HTTP status of a response that names no reason."""
_VERSION: Final = "a2a-version"


def service() -> RpcService:
    methods = {
        name: RpcMethod(streams=name in STREAMS, read=partial(_read, name), write=partial(_write, name))
        for name in REQUESTS
    }
    return RpcService(name=SERVICE, methods=methods, fail=_fail)


def _read(name: str, message: bytes, metadata: Mapping[str, str], default: str | None) -> RpcRequest:
    """Return the JSON-RPC request for a call of the method `name`. `default` is the agent for a request without a
    `tenant`. Raises invalid for bytes that are no message, too_large for too many fields, and not_found without an
    agent."""
    params = from_bytes(message, REQUESTS[name](), MOST_REQUEST_FIELDS)
    agent = params.pop("tenant", "") or default
    if not agent:
        raise FaultError(
            FaultCode.NOT_FOUND,
            "No agent is named, and there is no default agent: set tenant to the one in the agent's card.",
        )
    if AGENT_NAME.fullmatch(agent) is None:  # it becomes a segment of a path
        raise FaultError(FaultCode.NOT_FOUND, f"tenant: there is no agent {agent[:100]!r} here.")
    body = to_json({"jsonrpc": "2.0", "id": 1, "method": name, "params": params})
    # The package `lf.a2a.v1` already names the version: the server of a2a-sdk 1.3.0 accepts calls without it, too.
    headers = {} if metadata.get(_VERSION, "").strip() else {_VERSION: "1.0"}
    return RpcRequest(path=f"/a2a/{agent}", body=body, headers=headers)


def _write(name: str, body: bytes, status: int) -> bytes:
    """Return the message for a JSON-RPC response to the method `name`. Raises RpcFailure for an error, and unsupported
    for content that a protocol buffer cannot hold."""
    reply = cast("JsonObject", from_json(body))
    error = reply.get("error")
    if error is not None:
        raise _decode_error(error, status)
    result: Any = reply.get("result")
    return to_bytes({} if result is None else result, REPLIES[name]())


def _decode_error(error: JsonObject, status: int) -> RpcFailure:
    details = [*list_details(error)]
    reason = next((REASONS[each["reason"]] for each in details if each.get("reason") in REASONS), None)
    code = _BY_STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL") if reason is None else reason.rpc
    text = str(error.get("message", ""))
    return RpcFailure(code, text, encode_status(CODES[code], text, details))


def _fail(fault: Fault) -> RpcFailure:
    return _decode_error(error_object(fault, "1.0"), reason_of(fault).status)
