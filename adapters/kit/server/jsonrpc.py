"""Dispatch of JSON-RPC 2.0 requests to methods. The only importer of jsonrpcserver.

The library dispatches: it finds the method, binds the params and calls it. Three of its other functions are replaced:

- Its schema validation refuses `params: null` and drops the id.
- Its batches are executed, although the protocols of the gateway have none. Each request, even a single one, gets a
  separate task.
- Its error texts quote exceptions, which would reach callers.
"""

from collections.abc import Awaitable, Callable, Container, Mapping
from inspect import signature
from typing import Any, Final, cast

import msgspec
from jsonrpcserver import Error, Result, Success
from jsonrpcserver.async_dispatcher import dispatch_request
from jsonrpcserver.dispatcher import create_request
from litestar.connection import ASGIConnection

from babelgate.adapters.kit.server.caller import note_operation
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

RequestId = str | int | float | None

Method = Callable[[Any, JsonObject], Awaitable[Any]]
"""Function that implements a JSON-RPC method: (context, params by name) → result. Raises FaultError."""
Table = dict[str, Callable[..., Any]]
"""Methods by name, in the form that the library calls."""


class JsonRpcReply(msgspec.Struct, frozen=True):
    """Response to one JSON-RPC request: a result or a fault. `code` is set if JSON-RPC itself defines the error, such
    as -32601."""

    id: RequestId = None
    method: str = ""
    """Name of the method; empty if it could not be read."""
    result: Any = None
    fault: Fault | None = None
    code: int | None = None


def table(methods: Mapping[str, Method]) -> Table:
    """Return the methods in the form that the library calls. Call this once, at startup."""
    return {name: _wrap_method(method) for name, method in methods.items()}


def _wrap_method(method: Method) -> Callable[..., Awaitable[Result]]:
    """Return a method in the form that the library calls."""

    # Positional-only: otherwise a member of the params with the argument's name would be a second value for it.
    async def call(context: Any, /, **params: Any) -> Result:
        try:
            return Success(await method(context, params))
        except FaultError as error:
            return Error(0, "", error.fault)

    # The library inspects the signature at every call, and that takes longer than the rest of its work.
    call.__signature__ = signature(call)  # type: ignore[attr-defined]
    return call


def envelope(reply_id: RequestId, **member: Any) -> JsonObject:
    """Return the JSON-RPC object of a response, whose `member` is `result=…` or `error=…`."""
    return {"jsonrpc": "2.0", "id": reply_id, **member}


def _invalid(reply_id: RequestId, method: str, message: str) -> JsonRpcReply:
    return JsonRpcReply(reply_id, method, fault=Fault(code=FaultCode.INVALID, message=message), code=INVALID_REQUEST)


def _check_request(request: Json) -> JsonRpcReply | dict[str, Any]:
    """Return the request in the form that the library accepts. Return an error reply if it is invalid, with the id of
    the request if that can be read."""
    # JSON-RPC 2.0, section 6, defines batches; A2A does not use them (a2a-sdk 1.3.0 also responds with -32600).
    if isinstance(request, list):
        return _invalid(None, "", "Batches are not supported.")
    if not isinstance(request, dict):
        return _invalid(None, "", "A request must be an object.")
    request_id = request.get("id")
    # JSON-RPC 2.0, section 4: a string, a number or null.
    is_valid_id = request_id is None or (isinstance(request_id, str | int | float) and not isinstance(request_id, bool))
    reply_id: RequestId = request_id if is_valid_id else None  # pyright: ignore[reportAssignmentType]
    method = request.get("method")
    name = method if isinstance(method, str) else ""
    if not is_valid_id:
        return _invalid(None, name, 'The member "id" must be a string or a number.')
    if request.get("jsonrpc") != "2.0":
        return _invalid(reply_id, name, 'The member "jsonrpc" must be "2.0".')
    if not name:
        return _invalid(reply_id, name, 'The member "method" must be a string, and not empty.')
    params = request.get("params")
    # JSON-RPC 2.0, section 4.2: a structured value, or omitted; null counts as omitted.
    if params is not None and not isinstance(params, dict | list):
        return _invalid(reply_id, name, 'The member "params" must be an object.')
    checked: dict[str, Any] = {"jsonrpc": "2.0", "method": name, "params": {} if params is None else params}
    if "id" in request:
        checked["id"] = reply_id
    return checked


def note_method(connection: ASGIConnection[Any, Any, Any, Any], request: object, methods: Container[str]) -> None:
    """Store the method of a JSON-RPC request as the operation for logs and metrics, if it is one of `methods`."""
    name = cast("JsonObject", request).get("method") if isinstance(request, dict) else None
    if isinstance(name, str) and name in methods:
        note_operation(connection, name)


async def dispatch(request: Json, methods: Table, context: Any) -> JsonRpcReply | None:
    """Call the method that the request names, and return its reply. Return None for a notification, which is executed
    but gets no response."""
    checked = _check_request(request)
    if isinstance(checked, JsonRpcReply):
        return checked
    reply_id: RequestId = checked.get("id")
    name: str = checked["method"]
    outcome: Any = (await dispatch_request(methods, context, create_request(checked)))[1]
    # JSON-RPC 2.0, section 4.1: a request without an id is a notification.
    if "id" not in checked:
        return None
    if hasattr(outcome, "_value"):
        return JsonRpcReply(reply_id, name, result=outcome._value.result)
    error = outcome._error
    if isinstance(error.data, Fault):
        return JsonRpcReply(reply_id, name, fault=error.data)
    return _library_error(reply_id, name, error.code)


def _library_error(reply_id: RequestId, name: str, code: int) -> JsonRpcReply:
    """Return the reply for an error of the library itself. Its data is dropped, because it may quote an internal
    exception."""
    match code:
        case -32601:
            message, fault_code = f"There is no method {name[:100]!r}.", FaultCode.UNSUPPORTED
        case -32602:
            message, fault_code = 'The member "params" must be an object.', FaultCode.INVALID
        case _:
            message, fault_code, code = "Something went wrong in the gateway.", FaultCode.INTERNAL, -32603
    return JsonRpcReply(reply_id, name, fault=Fault(code=fault_code, message=message), code=code)
