"""Routes of A2A over JSON-RPC. Both versions have the same URL, and are distinguished by the names of their methods."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from litestar import Response, post
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler
from pydantic_core import to_json

from babelgate.adapters.a2a.codec import v0_3, v1_0
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import error_object
from babelgate.adapters.kit.json import ABSENT, read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import LargeJson, json_response
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.jsonrpc import (
    PARSE_ERROR,
    JsonRpcReply,
    Method,
    dispatch,
    envelope,
    note_method,
    table,
)
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.kit.server.sse import LargeFrame, event_stream, frame, frame_of, frames, pieces_of
from babelgate.adapters.kit.server.tracing import find_tracer, note_failure
from babelgate.canonical import Fault, FaultCode, FaultError, Hub
from babelgate.canonical.value import JsonObject

from . import card, operation, push
from .call import Answer, Call, Operation, Stream, check_version, make_call, requested_version
from .trace import METHODS_1_0, describe

PING: Final = 15.0
"""Seconds between the heartbeats of a silent stream. Chosen."""

METHODS_0_3: Final[dict[str, Operation]] = {
    "message/send": operation.send,
    "message/stream": operation.stream,
    "tasks/get": operation.get,
    "tasks/cancel": operation.cancel,
    "tasks/resubscribe": operation.subscribe,
    "tasks/pushNotificationConfig/set": push.create,
    "tasks/pushNotificationConfig/get": push.get,
    "tasks/pushNotificationConfig/list": push.list_configs,
    "tasks/pushNotificationConfig/delete": push.delete,
    "agent/getAuthenticatedExtendedCard": card.get_extended_card,
}
STREAMS_0_3: Final = frozenset({"message/stream", "tasks/resubscribe"})


def _method(operate: Operation, dialect: type[Dialect]) -> Method:
    async def method(call: Call, params: JsonObject) -> Answer | Stream:
        check_version(call, dialect.version)
        return await operate(call, dialect(call.caller.base_url, call.agent.name), params)

    return method


METHODS: Final = table(
    {
        **{name: _method(operate, v1_0.Codec) for name, operate in METHODS_1_0.items()},
        **{name: _method(operate, v0_3.Codec) for name, operate in METHODS_0_3.items()},
    }
)


def _version_of(reply: JsonRpcReply, requested: str) -> str:
    """Return the version in whose format an error is encoded: that of the called method, or else the `requested`
    one."""
    # Methods of 1.0 are in PascalCase, those of 0.x have a slash (specification 1.0, 9.4; 0.3, 3.5.6). No name is in
    # both, so one URL serves both.
    if reply.method in METHODS_1_0:
        return "1.0"
    if reply.method in METHODS_0_3 or "/" in reply.method:
        return "0.3"
    return "1.0" if reply.method or requested.partition(".")[0] == "1" else "0.3"


_REASONS: Final = {-32700: "PARSE_ERROR", -32600: "INVALID_REQUEST", -32601: "METHOD_NOT_FOUND"}


def _error(reply: JsonRpcReply, fault: Fault, requested: str) -> Response[Any]:
    if reply.code in _REASONS:
        fault = fault.replace(details={**fault.details, "a2a": _REASONS[reply.code]})
    body = to_json(envelope(reply.id, error=error_object(fault, _version_of(reply, requested))))
    headers = fault_headers(fault)
    # a2a-sdk 0.3.26: "Expected response header Content-Type to contain 'text/event-stream'".
    if reply.method in STREAMS_0_3:
        # Clients of 0.x accept only an event stream here; those of 1.0 receive JSON.
        return event_stream(_one(frame(body)), ping=None, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


async def _one(data: bytes) -> AsyncGenerator[bytes]:
    yield data


async def _frames(reply: JsonRpcReply, stream: Stream, requested: str) -> AsyncGenerator[bytes]:
    """Yield the frames of a stream, in which each event is a complete response with the id of the request."""
    # Specification 1.0, 9.4.2; 0.3, 7.2.1.
    head = b'{"jsonrpc":"2.0","id":%b,"result":' % to_json(reply.id)
    async with aclosing(stream.batches) as batches:
        try:
            async for batch in batches:
                small = [event for event in batch if isinstance(event, bytes)]
                if len(small) == len(batch):  # a silent stream then holds no iterator over its last events
                    yield frames(small, before=head, after=b"}")
                    continue
                async with aclosing(pieces_of(_frame_all(reply, head, batch))) as pieces:
                    async for piece in pieces:
                        yield piece
        except FaultError as error:
            # An unnamed event like the others, as the 0.3 side of a2a-sdk 1.3.0 sends it; its 1.0 side names the event
            # `error`.
            object_ = error_object(error.fault, _version_of(reply, requested))
            yield frame(to_json(envelope(reply.id, error=object_)))


def _frame_all(reply: JsonRpcReply, head: bytes, events: Sequence[bytes | LargeJson]) -> Iterator[bytes | LargeFrame]:
    for event in events:
        if isinstance(event, bytes):
            yield frames((event,), before=head, after=b"}")
        else:
            yield frame_of(LargeJson(envelope(reply.id, result=event.value)))


def trace_operation(request: AnyRequest, body: object) -> None:
    """Start the span of the method that a request calls, if the request is traced."""
    tracer = find_tracer(request)
    if tracer is None or not isinstance(body, dict):
        return
    message = cast("JsonObject", body)
    method, params = message.get("method"), message.get("params")
    operate = METHODS_1_0.get(str(method)) or METHODS_0_3.get(str(method))
    if operate is not None:
        version = "1.0" if method in METHODS_1_0 else "0.3"
        tracer.start_operation(describe(operate, version, params), {})


def routes(hub: Hub, lines: FanoutCache) -> Sequence[ControllerRouterHandler]:
    @post("/a2a/{agent:str}", status_code=200)
    async def call(request: AnyRequest, agent: FromPath[str]) -> Response[Any]:
        context = make_call(hub, lines, request, agent)
        try:
            body = await read_json(request)
        except FaultError as error:
            if error.fault.code is FaultCode.TOO_LARGE:
                raise
            return _error(JsonRpcReply(code=PARSE_ERROR), error.fault, context.version)
        note_method(request, body, METHODS)
        trace_operation(request, body)
        reply = await dispatch(None if body is ABSENT else body, METHODS, context)
        if reply is None:
            # JSON-RPC 2.0, 4.1: a notification is not answered. a2a-sdk 1.3.0 does answer it.
            return Response(b"", status_code=204)
        if reply.fault is not None:
            note_failure(request.scope, str(reply.fault.code))
            return _error(reply, reply.fault, context.version)
        result: Answer | Stream = reply.result
        if isinstance(result, Stream):
            return event_stream(_frames(reply, result, context.version), ping=PING, headers=result.headers)
        response = envelope(reply.id, result=result.result)
        if result.tasks is not None:
            return await list_response(to_json(response), result.tasks, name="tasks", headers=result.headers)
        return json_response(response, result.headers)

    return [call]


def encode_fault(fault: Fault, request: AnyRequest) -> JsonObject:
    """Return the response body for a fault that occurred before the request was read, so that its id is not known."""
    requested = requested_version(request)
    return envelope(None, error=error_object(fault, "1.0" if requested.partition(".")[0] == "1" else "0.3"))
