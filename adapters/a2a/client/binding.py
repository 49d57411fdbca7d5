"""Calls of an A2A server's methods over JSON-RPC, REST or gRPC. They return the results as JSON, without the envelope
of JSON-RPC."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
from pydantic_core import to_json

from babelgate.adapters.a2a.agents.interface import Interface
from babelgate.adapters.a2a.client.http import HttpClient
from babelgate.adapters.a2a.codec import v0_3, v0_3_rest, v1_0
from babelgate.adapters.a2a.codec.dialect import DataRule, Dialect
from babelgate.adapters.a2a.errors import decode_error
from babelgate.adapters.a2a.frameworks.ag2 import CLIENT_TOOLS
from babelgate.adapters.kit.client.answers import parse_answer, read_bytes
from babelgate.adapters.kit.client.frames import FrameStream, is_stream
from babelgate.adapters.kit.extension import URI
from babelgate.adapters.kit.tracing import TracedOperation
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream, application/json"
# Specification 1.0, 9.4; 0.3, 7.1 to 7.9.
_METHODS_1_0: Final = {
    "send": "SendMessage",
    "stream": "SendStreamingMessage",
    "get": "GetTask",
    "cancel": "CancelTask",
    "subscribe": "SubscribeToTask",
}
_METHODS_0_3: Final = {
    "send": "message/send",
    "stream": "message/stream",
    "get": "tasks/get",
    "cancel": "tasks/cancel",
    "subscribe": "tasks/resubscribe",
}


class Replies:
    """Reader of a server's replies to one call: the events of a stream, or the single response.

    `unwrap` returns the content of a reply, such as `result` in JSON-RPC, and raises its error.
    """

    def __init__(self, http: HttpClient, response: httpx.Response, unwrap: Callable[[Json], Json]) -> None:
        self._http = http
        self._response = response
        self._is_stream = is_stream(response)
        self._frames = FrameStream(response)
        self._unwrap = unwrap
        self._has_response = not self._is_stream
        """True if the server has sent a single response and no stream, and the response was not read yet."""
        self._failed: FaultError | None = None
        """Error of a reply. It is raised by the next `read`, after the replies before it were returned."""

    async def read(self) -> Sequence[Json]:
        """Return the replies that have arrived, and wait for one if there are none. Return an empty sequence at the
        end.

        Raises agent_invalid, the error that the server sent, or the error that broke the connection.
        """
        if self._has_response:
            self._has_response = False
            return (self._unwrap(await self._http.json(self._response)),)
        replies: list[Json] = []
        while not replies and self._is_stream:
            if self._failed is not None:
                raise self._failed
            frames = await self._frames.read()
            if not frames:
                break
            try:
                for frame in frames:
                    # `[DONE]` is not in A2A: streams in OpenAI's framing end with it.
                    if frame.data.strip() not in (b"", b"[DONE]"):
                        replies.append(self._unwrap(await parse_answer(frame.data)))
            except FaultError as error:
                self._failed = error
        if not replies and self._frames.broken is not None:
            raise self._frames.broken
        return replies

    async def drain(self, seconds: float) -> None:
        if self._is_stream:
            await self._frames.drain(seconds)

    async def aclose(self) -> None:
        await self._frames.aclose()


class ClientBinding(ABC):
    """Calls of one interface of an A2A server, with the headers that each request needs."""

    rule: DataRule = "any"
    """Form in which the server sends the data of a data part."""

    def __init__(self, http: HttpClient, interface: Interface, dialect: Dialect) -> None:
        self.interface = interface
        self.dialect = dialect
        self._http = http
        # No header means 0.3 (specification 1.0, 3.6.2), and servers of 0.3 do not read it.
        self._headers = {"A2A-Version": "1.0"} if interface.version == "1.0" else {}
        self.extended = interface.extended and interface.streams
        """True if the Babelgate extension is activated. This requires streams, because the task that ends a send
        without a stream cannot hold all records."""
        self._add_extensions(())
        self.accepts_tools = CLIENT_TOOLS in interface.extensions and interface.version == "1.0" and not self.extended
        """True if the agent accepts the caller's tools by the extension `CLIENT_TOOLS` of ag2."""

    def _add_extensions(self, uris: Sequence[str]) -> None:
        active = ", ".join([*([URI] if self.extended else []), *uris])
        if active:
            # Specification 1.0, 3.2.6, and its name in 0.3: each is read by servers that do not know the other.
            self._headers = {**self._headers, "A2A-Extensions": active, "X-A2A-Extensions": active}

    def with_extensions(self, uris: Sequence[str]) -> Self:
        """Return a binding whose requests activate those of the extensions `uris` that the server declares.

        Each request has to activate its extensions (specification 1.0, 3.2.6).
        """
        declared = [uri for uri in self.interface.extensions if uri in uris]
        if not declared:
            return self
        binding = copy(self)
        binding._add_extensions(declared)
        return binding

    @abstractmethod
    def open_send(self, params: JsonObject) -> AbstractAsyncContextManager["Replies"]:
        """Send a message, and return the replies as a context: a stream if the interface has streams, and one response
        otherwise."""
        ...

    @abstractmethod
    async def get(self, task_id: str, context_id: str | None) -> Json: ...

    @abstractmethod
    async def cancel(self, task_id: str, context_id: str | None) -> None: ...

    @abstractmethod
    def open_subscription(self, task_id: str, *, start: int | None = None) -> AbstractAsyncContextManager["Replies"]:
        """Subscribe to a task, and return the replies as a context. With `start`, a server that is another gateway
        first replays the events since that seq. Without it, the stream continues from now."""
        ...

    async def file(self, blob: str) -> bytes:
        """Return the bytes of a file that another gateway stores under the hash `blob`. Raises agent_invalid, or the
        server's error."""
        base = self.interface.files_url or self.interface.url
        url = f"{base.rstrip('/')}/files/{quote(blob, safe='')}"
        async with self._http.open_response("GET", url, accept="*/*") as response:
            return await read_bytes(response, self._http.answer_limit)

    def _operation(self, method: str) -> TracedOperation:
        """Return the operation for traces. Its name is that of the method in 1.0, for all bindings and versions."""
        name = _METHODS_1_0[method]
        return TracedOperation(name, {"a2a.method.name": name, "a2a.protocol.version": self.interface.version})

    def _headers_from(self, start: int | None) -> dict[str, str]:
        return self._headers if start is None else {**self._headers, "Babelgate-From": str(start)}

    def fallback(self, error: FaultError) -> "ClientBinding | None":
        """Return another binding with which to repeat a request after `error`: version 0.3, without streams, or over
        HTTP. Return None if there is no such binding.

        The server may not know the method or the version (specification 1.0, 3.6.2 and 5.4), or may have no streams
        even if its card declares them (3.3.4).
        """
        alternative = self.interface.alternative
        if alternative is not None and isinstance(error.__cause__, (httpx.ConnectError, httpx.ConnectTimeout)):
            other = replace(alternative, extended=self.interface.extended)
            return create_binding(self._http, other, self.dialect.agent)
        reason, status = error.fault.details.get("reason"), error.fault.details.get("status")
        is_unknown = reason == "METHOD_NOT_FOUND" or (not reason and status in (404, 405, 501))
        has_0_3 = not (self.interface.rest or self.interface.grpc)
        if self.interface.version == "1.0" and has_0_3 and (is_unknown or reason == _NO_VERSION):
            return create_binding(self._http, replace(self.interface, version="0.3"), self.dialect.agent)
        if self.interface.streams and (is_unknown or reason == "UNSUPPORTED_OPERATION"):
            return create_binding(self._http, replace(self.interface, streams=False), self.dialect.agent)
        return None


_NO_VERSION: Final = "VERSION_NOT_SUPPORTED"


def create_binding(http: HttpClient, interface: Interface, agent: str) -> ClientBinding:
    if interface.grpc:
        return _Grpc(http, interface, v1_0.Codec("", agent))
    if interface.rest:
        dialect = v1_0.Codec if interface.version == "1.0" else v0_3_rest.Codec
        return _Rest(http, interface, dialect("", agent))
    dialect = v1_0.Codec if interface.version == "1.0" else v0_3.Codec
    return _JsonRpc(http, interface, dialect("", agent))


class _JsonRpc(ClientBinding):
    def __init__(self, http: HttpClient, interface: Interface, dialect: Dialect) -> None:
        super().__init__(http, interface, dialect)
        self._methods = _METHODS_1_0 if interface.version == "1.0" else _METHODS_0_3
        self._ids = count(1)

    def _request(self, method: str, params: JsonObject) -> bytes:
        if self.interface.tenant:  # specification 1.0, 4.4.6: each request has to name it
            params = {"tenant": self.interface.tenant, **params}
        return to_json({"jsonrpc": "2.0", "id": next(self._ids), "method": self._methods[method], "params": params})

    async def _call(self, method: str, params: JsonObject) -> Json:
        body = self._request(method, params)
        async with self._http.open_response(
            "POST",
            self.interface.url,
            accept=_JSON,
            body=body,
            headers=self._headers,
            operation=self._operation(method),
        ) as response:
            return _result(await self._http.json(response))

    @asynccontextmanager
    async def _open(
        self, method: str, params: JsonObject, accept: str = _STREAM, *, start: int | None = None
    ) -> AsyncGenerator[Replies]:
        body = self._request(method, params)
        async with (
            self._http.open_response(
                "POST",
                self.interface.url,
                accept=accept,
                body=body,
                headers=self._headers_from(start),
                operation=self._operation(method),
            ) as response,
            aclosing(Replies(self._http, response, _result)) as replies,
        ):
            yield replies

    def _task(self, task_id: str, context_id: str | None) -> JsonObject:
        """Return the params of a request that names a task. In 0.3 they contain the task's contextId, too, if it is
        known, because langgraph-api 0.16.7 requires it."""
        has_context = self.interface.version == "0.3" and context_id
        return {"id": task_id, "contextId": context_id} if has_context else {"id": task_id}

    def open_send(self, params: JsonObject) -> AbstractAsyncContextManager[Replies]:
        return self._open("stream", params) if self.interface.streams else self._open("send", params, _JSON)

    async def get(self, task_id: str, context_id: str | None) -> Json:
        return await self._call("get", self._task(task_id, context_id))

    async def cancel(self, task_id: str, context_id: str | None) -> None:
        await self._call("cancel", self._task(task_id, context_id))

    def open_subscription(self, task_id: str, *, start: int | None = None) -> AbstractAsyncContextManager[Replies]:
        return self._open("subscribe", {"id": task_id}, start=start)


def _result(value: Json) -> Json:
    """Return the result in a JSON-RPC response. Raises the error that the response has instead."""
    if not isinstance(value, dict) or value.get("error") is not None:
        raise _decode_error_response(value)
    return value.get("result", value)


def _decode_error_response(value: Json) -> FaultError:
    if isinstance(value, dict):
        return decode_error(value)
    return FaultError(FaultCode.AGENT_INVALID, "The agent breaks its protocol: an answer is not a JSON object")


class _Rest(ClientBinding):
    def __init__(self, http: HttpClient, interface: Interface, dialect: Dialect) -> None:
        super().__init__(http, interface, dialect)
        # Path prefixes in the protocol buffers: `/v1` in 0.3; `/{tenant}` in 1.0.1, if the interface has a tenant.
        prefix = "/v1" if interface.version == "0.3" else f"/{quote(interface.tenant, safe='')}"
        self._base = interface.url.rstrip("/") + prefix.rstrip("/")
        self.rule = "wrapped" if interface.version == "0.3" else "any"

    async def _call(self, name: str, method: str, path: str, params: JsonObject | None = None) -> Json:
        body = None if params is None else to_json(params)
        async with self._http.open_response(
            method,
            self._base + path,
            accept=_JSON,
            body=body,
            headers=self._headers,
            operation=self._operation(name),
        ) as response:
            return _payload(await self._http.json(response))

    @asynccontextmanager
    async def _open(
        self,
        name: str,
        method: str,
        path: str,
        params: JsonObject | None = None,
        accept: str = _STREAM,
        *,
        start: int | None = None,
    ) -> AsyncGenerator[Replies]:
        body = None if params is None else to_json(params)
        async with (
            self._http.open_response(
                method,
                self._base + path,
                accept=accept,
                body=body,
                headers=self._headers_from(start),
                operation=self._operation(name),
            ) as response,
            aclosing(Replies(self._http, response, _payload)) as replies,
        ):
            yield replies

    def open_send(self, params: JsonObject) -> AbstractAsyncContextManager[Replies]:
        if self.interface.streams:
            return self._open("stream", "POST", "/message:stream", params)
        return self._open("send", "POST", "/message:send", params, _JSON)

    async def get(self, task_id: str, context_id: str | None) -> Json:
        return await self._call("get", "GET", _path(task_id))

    async def cancel(self, task_id: str, context_id: str | None) -> None:
        await self._call("cancel", "POST", f"{_path(task_id)}:cancel", {})

    def open_subscription(self, task_id: str, *, start: int | None = None) -> AbstractAsyncContextManager[Replies]:
        # GET in the protocol buffers of 0.3 and of 1.0.1, POST in the prose of 1.0 (11.3).
        return self._open("subscribe", "GET", f"{_path(task_id)}:subscribe", start=start)


def _path(task_id: str) -> str:
    return f"/tasks/{quote(task_id, safe='')}"


def _payload(value: Json) -> Json:
    """Return the body of a REST response, or an event, unchanged. Raises the fault if it is an error.

    An error has a member `error` (specification 1.0, 11.6), or a `message` that is a text (a2a-sdk 0.3.26). The
    `message` of a reply is an object.
    """
    if not isinstance(value, dict) or value.get("error") is not None or isinstance(value.get("message"), str):
        raise _decode_error_response(value)
    return value


class _Grpc(ClientBinding):
    """gRPC, whose transport converts the JSON of 1.0 (specification 1.0, 10). Errors have the form of REST."""

    def _request(self, method: str, params: JsonObject) -> dict[str, Any]:
        # Importing gRPC takes time and memory, which a gateway without it does not need.
        from babelgate.adapters.a2a.client.grpc import codec_of, path_of

        if self.interface.tenant:  # specification 1.0, 4.4.6: each request has to name it
            params = {"tenant": self.interface.tenant, **params}
        name = _METHODS_1_0[method]
        return {
            "method": "POST",
            "url": self.interface.url + path_of(name),
            "body": to_json(params),
            "operation": self._operation(method),
            "rpc": codec_of(name),
        }

    async def _call(self, method: str, params: JsonObject) -> Json:
        request = self._request(method, params)
        async with self._http.open_response(**request, accept=_JSON, headers=self._headers) as response:
            return _payload(await self._http.json(response))

    @asynccontextmanager
    async def _open(self, method: str, params: JsonObject, *, start: int | None = None) -> AsyncGenerator[Replies]:
        request = self._request(method, params)
        async with (
            self._http.open_response(**request, accept=_STREAM, headers=self._headers_from(start)) as response,
            aclosing(Replies(self._http, response, _payload)) as replies,
        ):
            yield replies

    def open_send(self, params: JsonObject) -> AbstractAsyncContextManager[Replies]:
        return self._open("stream" if self.interface.streams else "send", params)

    async def get(self, task_id: str, context_id: str | None) -> Json:
        return await self._call("get", {"id": task_id})

    async def cancel(self, task_id: str, context_id: str | None) -> None:
        await self._call("cancel", {"id": task_id})

    def open_subscription(self, task_id: str, *, start: int | None = None) -> AbstractAsyncContextManager[Replies]:
        return self._open("subscribe", {"id": task_id}, start=start)
