"""The gRPC binding of A2A 1.0 (specification 1.0, 10): each call becomes a request of JSON-RPC to the agent.

The messages are converted by their JSON. The agent is in `tenant`, which the agent's card declares and which clients
repeat in each request (4.4.6). Needs the extra `babelgate[grpc]`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec
from pydantic_core import from_json, to_json

from babelgate.adapters.a2a.codec.protobuf import (
    MOST_REQUEST_FIELDS,
    encode_status,
    from_bytes,
    serialize,
    to_bytes,
    to_message,
)
from babelgate.adapters.a2a.errors import REASONS, error_object, list_details, reason_of
from babelgate.adapters.a2a.wire.protobuf import REPLIES, REQUESTS, SERVICE, STREAMS
from babelgate.adapters.kit.server.encoding import encode_text
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
_decode_text: Final = msgspec.json.Decoder(str).decode


def service() -> RpcService:
    methods = {
        name: RpcMethod(streams=name in STREAMS, read=partial(_read, name), open_writer=_opener(name))
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


def _opener(name: str) -> Callable[[], Callable[[bytes, int], bytes]]:
    """Return the function `RpcMethod.open_writer` of the method `name`."""
    if name in STREAMS:
        return lambda: _EventWriter(name).write
    write = partial(_write, name)
    return lambda: write


def _write(name: str, body: bytes, status: int) -> bytes:
    """Return the message for a JSON-RPC response to the method `name`. Raises RpcFailure for an error, and unsupported
    for content that a protocol buffer cannot hold."""
    return to_bytes(_result_of(body, status), REPLIES[name]())


class _EventWriter:
    """Writer of a stream's messages. In consecutive tokens, only the text differs: it is replaced in the last message.
    Measured: a token takes 2 µs, and seven times as long otherwise."""

    def __init__(self, name: str) -> None:
        """Create the writer for one call of the method `name`."""
        self._reply = REPLIES[name]
        self._message: Any = None
        """Message of the last token; None if the last event was none."""
        self._part: Any = None
        """Part of the message that has the text."""
        self._before = self._after = b""
        """JSON of the last token before and after its text."""

    def write(self, body: bytes, status: int) -> bytes:
        """Return the message for an event. Raises the errors of `_write`."""
        message = self._message
        if message is not None and body.startswith(self._before) and body.endswith(self._after):
            try:
                self._part.text = _decode_text(body[len(self._before) : len(body) - len(self._after)])
            except msgspec.DecodeError:
                pass  # more than a text differs
            else:
                return serialize(message)
        result = _result_of(body, status)
        message = to_message(result, self._reply())
        self._remember(body, message)
        return serialize(message)

    def _remember(self, body: bytes, message: Any) -> None:
        """Prepare the message for the next text, if it is that of a token."""
        self._message = None
        parts = message.artifact_update.artifact.parts
        if len(parts) != 1 or not parts[0].HasField("text"):
            return
        text = encode_text(parts[0].text)
        if body.count(text) == 1:
            self._before, _, self._after = body.partition(text)
            self._message, self._part = message, parts[0]


def _result_of(body: bytes, status: int) -> JsonObject:
    """Return the result of a JSON-RPC response. Raises RpcFailure for an error."""
    reply = cast("JsonObject", from_json(body))
    error = reply.get("error")
    if error is not None:
        raise _decode_error(error, status)
    result: Any = reply.get("result")
    return {} if result is None else result


def _decode_error(error: JsonObject, status: int) -> RpcFailure:
    details = [*list_details(error)]
    reason = next((REASONS[each["reason"]] for each in details if each.get("reason") in REASONS), None)
    code = _BY_STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL") if reason is None else reason.rpc
    text = str(error.get("message", ""))
    return RpcFailure(code, text, encode_status(CODES[code], text, details))


def _fail(fault: Fault) -> RpcFailure:
    return _decode_error(error_object(fault, "1.0"), reason_of(fault).status)
