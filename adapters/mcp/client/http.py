"""JSON-RPC messages to another MCP server over Streamable HTTP."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.answers import parse_answer
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.client.frames import FrameStream, is_stream
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.mcp.carries import VERSION
from babelgate.adapters.mcp.client.server_client import (
    INITIALIZE,
    ServerClient,
    Session,
    agreed_version,
    as_message,
    has_stateless_version,
    result_of,
    with_meta,
)
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

_ACCEPT: Final = "application/json, text/event-stream"
_NAMED: Final[Mapping[str, str]] = {"tools/call": "name", "resources/read": "uri"}
"""Member of the params that the header `Mcp-Name` repeats, by method (NEXT/basic/transports). For `tasks/…` it is
`taskId`."""


class HttpClient(Calls, ServerClient):
    """HTTP client of one MCP endpoint."""

    def __init__(self, *args: str, **connection: object) -> None:
        Calls.__init__(self, *args, **connection)  # pyright: ignore[reportArgumentType]
        ServerClient.__init__(self)
        self._is_stateless: bool | None = None

    def set_version(self, version: str) -> None:
        """Set the version of the server. Otherwise the first call asks the server."""
        self._is_stateless = version == VERSION

    async def is_stateless(self) -> bool:
        """Return True if the server speaks 2026-07-28. The first call asks it with `server/discover`: a server of an
        earlier version answers with an error. Raises agent_unreachable and agent_timeout."""
        if self._is_stateless is None:
            try:
                result = await self.ask("server/discover", {})
            except FaultError as error:
                if is_retryable(error.fault):
                    raise
                self._is_stateless = False
            else:
                self._is_stateless = has_stateless_version(result)
        return self._is_stateless

    async def initialize(self) -> Session:
        """Open a session (SPEC/basic/lifecycle, Initialization). Raises agent_invalid for an unknown version."""
        request_id = self.next_id()
        body = {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": INITIALIZE}
        result: JsonObject | None = None
        async with self.request("POST", "", {"Accept": _ACCEPT}, body=to_json(body)) as response:
            session_id = response.headers.get("mcp-session-id")
            if is_stream(response):
                async with aclosing(FrameStream(response, limit=self.answer_limit)) as frames:
                    async for frame in frames:
                        message = as_object(await parse_answer(frame.data))
                        if message.get("id") == request_id:
                            result = result_of(message)
                            break
            else:
                result = result_of(as_object(await self.json(response)))
        session = Session(session_id, agreed_version(result or {}))
        await self.notify("notifications/initialized", {}, session)
        return session

    async def close_session(self, session: Session) -> None:
        """End a session. The errors of a server that does not support this are ignored."""
        if session.id is None:
            return
        try:
            async with self.request("DELETE", "", _headers(session)):
                pass
        except FaultError:
            return

    async def notify(self, method: str, params: JsonObject, session: Session) -> None:
        """Send a notification."""
        await self._post({"jsonrpc": "2.0", "method": method, "params": params}, session)

    async def respond(self, request_id: object, reply: JsonObject, session: Session) -> None:
        """Send the response to a request of the server. `reply` has the member `result` or `error`."""
        await self._post({"jsonrpc": "2.0", "id": request_id, **reply}, session)

    async def _post(self, message: JsonObject, session: Session) -> None:
        headers = {"Accept": _ACCEPT, **_headers(session)}
        async with self.request("POST", "", headers, body=to_json(message)):
            pass

    async def messages(
        self, method: str, params: JsonObject, session: Session | None = None, request_id: int | None = None
    ) -> AsyncGenerator[JsonObject]:
        request_id = self.next_id() if request_id is None else request_id
        if session is None:
            params = with_meta(params)
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        headers = {"Accept": _ACCEPT, **(_modern_headers(method, params) if session is None else _headers(session))}
        async with self.request("POST", "", headers, body=to_json(body)) as response:
            if not is_stream(response):
                yield as_message(await self.json(response))
                return
            async with aclosing(FrameStream(response, limit=self.answer_limit)) as frames:
                async for frame in frames:
                    if not frame.data:
                        continue
                    message = as_message(await parse_answer(frame.data))
                    yield message
                    if "method" not in message and message.get("id") == request_id:
                        return

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        fault = super().decode_error_body(status, answer)
        error = as_object(as_object(answer).get("error"))
        text = as_text(error.get("message"))
        return fault.replace(message=f"{fault.message}: {text}") if text else fault


def _headers(session: Session) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": session.version}
    return headers if session.id is None else {**headers, "Mcp-Session-Id": session.id}


def _modern_headers(method: str, params: JsonObject) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    name = as_text(params.get(_NAMED.get(method, "taskId")))
    return {**headers, "Mcp-Name": _header_value(name)} if name else headers


def _header_value(text: str) -> str:
    """Return a text as the value of a header. If it has characters that a header cannot have, encode it in base64 in
    the form of SEP-2243."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?"):
        return text
    from base64 import b64encode

    return f"=?base64?{b64encode(text.encode()).decode()}?="
