"""Scripted A2A 1.0 server of gRPC. Without a violation, its card declares JSON-RPC and REST, too."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn, cast

import grpc
import grpc.aio

from babelgate.conformance.protocols.a2a.v1.grpc import SERVICE, service
from tests.conformance.servers import a2a_1_0
from tests.conformance.servers.a2a_agent import Refused
from tests.conformance.servers.a2a_grpc_violations import VIOLATIONS
from tests.conformance.servers.a2a_served import ERRORS, OPTIONS
from tests.conformance.servers.kit import Request, Server

TENANT: Final = "agent"
STREAMS: Final = ("SendStreamingMessage", "SubscribeToTask")
UNKNOWN_FIELD: Final = b"\xc0\x3e\x01"
STATUSES: Final = {
    "TASK_NOT_FOUND": ("not found is an invalid argument", "INVALID_ARGUMENT"),
    "TASK_NOT_CANCELABLE": ("not cancelable is aborted", "ABORTED"),
    "UNSUPPORTED_OPERATION": ("unsupported is an invalid argument", "INVALID_ARGUMENT"),
    "VERSION_NOT_SUPPORTED": ("an unsupported version is an invalid argument", "INVALID_ARGUMENT"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": ("bare: unsupported push is an invalid argument", "INVALID_ARGUMENT"),
}
"""Violation by which an error has another status, and that status, by the reason of the error."""


class Agent(a2a_1_0.Agent):
    listed = VIOLATIONS

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        breaks = next((each.breaks for each in VIOLATIONS if each.name == violation), "")
        self.bindings = ("JSONRPC", "HTTP+JSON", "GRPC")
        if breaks:
            self.bindings = ("JSONRPC", "GRPC") if breaks.startswith("binding.") else ("GRPC",)
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        server = grpc.aio.server()
        handlers = {
            name: self._handler(name)
            for name in service().methods
            if name != "GetExtendedAgentCard" or not self.does("a method is missing")
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    def interfaces(self, url: str) -> list[dict[str, Any]]:
        interfaces = [{"url": url, "protocolBinding": name, "protocolVersion": "1.0"} for name in self.bindings]
        interfaces[-1] |= {"url": self.address, "tenant": TENANT}
        if self.does("an interface that does not exist"):
            interfaces.append({**interfaces[-1], "url": "127.0.0.1:9"})
        return interfaces

    def get(self, params: Any, owner: str, binding: str) -> dict[str, Any]:
        found = super().get(params, owner, binding)
        created_by = self.tasks[params["id"]].binding if params["id"] in self.tasks else binding
        if created_by == "GRPC":
            self.raise_if("HTTP cannot find tasks of gRPC", Refused("TASK_NOT_FOUND"), when=binding != "GRPC")
        elif binding == "GRPC":
            self.raise_if("gRPC cannot find tasks of HTTP", Refused("TASK_NOT_FOUND"))
        return found

    # Calls

    def _handler(self, name: str) -> Any:
        async def unary(content: bytes, context: Any) -> bytes:
            params, owner = await self._begin(name, content, context)
            try:
                result = await self.operate(name, params, owner, "GRPC")
            except Refused as error:
                await self._abort(context, str(error))
            if name == "GetTaskPushNotificationConfig" and self.does("a response is no message"):
                return b"\xff\xff"
            return service().encode_response(name, result)

        async def stream(content: bytes, context: Any) -> AsyncIterator[bytes]:
            params, owner = await self._begin(name, content, context)
            try:
                events = await self.open_stream(name, params, owner, "GRPC")
            except Refused as error:
                await self._abort(context, str(error))
            async with aclosing(events):
                async for event in events:
                    yield service().encode_response(name, event)
            if self.does("streams end with an error"):
                await context.abort(grpc.StatusCode.UNKNOWN, "Goodbye.")

        if name in STREAMS:
            return cast("Any", grpc).unary_stream_rpc_method_handler(stream)
        return cast("Any", grpc).unary_unary_rpc_method_handler(unary)

    async def _begin(self, name: str, content: bytes, context: Any) -> tuple[dict[str, Any], str]:
        """Return the parameters of a call and its caller. End the call if it is refused."""
        params = service().decode_request(name, content)
        body = json.dumps(params, ensure_ascii=False).encode()
        request = Request("POST", f"/{SERVICE}/{name}", {}, dict(context.invocation_metadata()), body, "")
        self.note_request("POST", request.path, body)
        is_anonymous = "x-api-key" not in request.headers
        if is_anonymous and self.does("strangers are an unknown error"):
            await context.abort(grpc.StatusCode.UNKNOWN, "Who are you?")
        try:
            owner = self.owner_of(request)
        except PermissionError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Who are you?")
            raise AssertionError("an aborted call does not return") from error
        try:
            self.check_headers(request)
            is_strange = content.endswith(UNKNOWN_FIELD)
            self.raise_if("unknown fields are refused", Refused("INVALID_PARAMS"), when=is_strange)
            if params.pop("tenant", "") != TENANT:
                raise Refused("TASK_NOT_FOUND")
        except Refused as error:
            await self._abort(context, str(error))
        if "message" in params:
            params["message"].setdefault("parts", [])
        return params, owner

    async def _abort(self, context: Any, reason: str) -> NoReturn:
        name = ERRORS[reason][2]
        violation, other = STATUSES.get(reason, ("", ""))
        if violation and self.does(violation):
            name = other
        code, text = grpc.StatusCode[name], self.error_text(reason)
        number = code.value[0]
        domain = "example.com" if self.does("gRPC errors without a reason") else "a2a-protocol.org"
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": domain}
        status = {"code": 2 if self.does("another code in the details") else number, "message": text, "details": [info]}
        details = b"\xff\xff" if self.does("details are no status") else service().encode_status(status)
        await context.abort(code, text, (("grpc-status-details-bin", details),))
        raise AssertionError("an aborted call does not return")


RPC_SERVER: Final = Server(
    set="a2a-1.0",
    make=Agent,
    violations=VIOLATIONS,
    variants=("bare",),
    path="/agent",
    options=replace(OPTIONS, timeout=2.0),
)
"""Server with a name other than SERVER, which is that of JSON-RPC and REST."""
