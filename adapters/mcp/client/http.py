"""JSON-RPC messages to another MCP server over Streamable HTTP, in both eras of the protocol.

Up to 2025-11-25, a session begins with `initialize`. In 2026-07-28 each request has the version and the capabilities of
the client in its `_meta`, and there is no session.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.answers import parse_answer
from babelgate.adapters.kit.client.blame import decode_reply
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.client.frames import FrameStream, is_stream
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.carries import VERSION
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

HANDSHAKE: Final = "2025-11-25"
"""Newest version with a handshake, which `initialize` requests. Servers may answer with an earlier one."""
_HANDSHAKES: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE})
CAPABILITIES: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}}
"""Capabilities of the gateway as a client. Sampling is not offered: a server could use it to call the gateway's
models. Roots are not offered, because a run has no folders."""
_PREFIX: Final = "io.modelcontextprotocol/"
_ACCEPT: Final = "application/json, text/event-stream"
_NAMED: Final[Mapping[str, str]] = {"tools/call": "name", "resources/read": "uri"}
"""Member of the params that the header `Mcp-Name` repeats, by method (NEXT/basic/transports). For `tasks/…` it is
`taskId`."""


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a client on a server that has a handshake."""

    id: str | None
    """Value of the header `Mcp-Session-Id`; None if the server has no sessions."""
    version: str


class RpcError(FaultError):
    """Fault for the JSON-RPC error of a server. `rpc_code` is the error's code."""

    def __init__(self, message: str, rpc_code: int) -> None:
        super().__init__(FaultCode.AGENT_FAILED, message)
        self.rpc_code = rpc_code


class HttpClient(Calls):
    """HTTP client of one MCP endpoint."""

    def __init__(self, *args: str, **connection: object) -> None:
        super().__init__(*args, **connection)  # pyright: ignore[reportArgumentType]
        self._ids = count(1)
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
                self._is_stateless = VERSION in (result.get("supportedVersions") or ())
        return self._is_stateless

    async def initialize(self) -> Session:
        """Open a session (SPEC/basic/lifecycle, Initialization). Raises agent_invalid for an unknown version."""
        info = {"name": "babelgate", "version": version("babelgate")}
        params: JsonObject = {"protocolVersion": HANDSHAKE, "capabilities": CAPABILITIES, "clientInfo": info}
        request_id = next(self._ids)
        body = {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}
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
        agreed = as_text((result or {}).get("protocolVersion"))
        if agreed not in _HANDSHAKES:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server speaks MCP {agreed[:20]!r}")
        session = Session(session_id, agreed)
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

    def next_id(self) -> int:
        """Return an id for a request."""
        return next(self._ids)

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

    async def ask(self, method: str, params: JsonObject, session: Session | None = None) -> JsonObject:
        """Send a request and return its result. Without a session, it is a request of version 2026-07-28. Notifications
        before the result are ignored.

        Raises RpcError, agent_invalid, and agent_unreachable if the stream ends before the result.
        """
        async with aclosing(self.messages(method, params, session)) as messages:
            async for message in messages:
                if "method" not in message:
                    return result_of(message)
        raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its response")

    async def messages(
        self, method: str, params: JsonObject, session: Session | None = None, request_id: int | None = None
    ) -> AsyncGenerator[JsonObject]:
        """Send a request, and yield the messages of the server until its response, which is the last: notifications,
        requests, and the response. Raises agent_invalid for anything else."""
        request_id = self.next_id() if request_id is None else request_id
        if session is None:
            params = {**params, "_meta": {**_META, **as_object(params.get("_meta"))}}
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        headers = {"Accept": _ACCEPT, **(_modern_headers(method, params) if session is None else _headers(session))}
        async with self.request("POST", "", headers, body=to_json(body)) as response:
            if not is_stream(response):
                yield _message(await self.json(response))
                return
            async with aclosing(FrameStream(response, limit=self.answer_limit)) as frames:
                async for frame in frames:
                    if not frame.data:
                        continue
                    message = _message(await parse_answer(frame.data))
                    yield message
                    if "method" not in message and message.get("id") == request_id:
                        return

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        fault = super().decode_error_body(status, answer)
        error = as_object(as_object(answer).get("error"))
        text = as_text(error.get("message"))
        return fault.replace(message=f"{fault.message}: {text}") if text else fault


_META: Final[JsonObject] = {
    f"{_PREFIX}protocolVersion": VERSION,
    f"{_PREFIX}clientInfo": {"name": "babelgate", "version": version("babelgate")},
    f"{_PREFIX}clientCapabilities": {**CAPABILITIES, "extensions": {EXTENSION: {}}},
}
"""Members of `_meta` in each request of 2026-07-28 (NEXT/basic, _meta)."""


def result_of(message: JsonObject) -> JsonObject:
    """Return the result of a response. Raises RpcError for an error, agent_invalid if it is neither."""
    if "error" in message:
        error = decode_reply(w.Error, message["error"])
        raise RpcError(error.message, error.code)
    result = message.get("result")
    if not isinstance(result, dict):
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server sent a response without a result")
    return as_object(result)


def _message(value: Json) -> JsonObject:
    decode_reply(w.Envelope, value)
    return as_object(value)


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
