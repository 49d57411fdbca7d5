"""Base class of the clients of an MCP server, for each transport, in both eras of the protocol.

Up to 2025-11-25, a session begins with `initialize`. In 2026-07-28 each request has the version and the capabilities of
the client in its `_meta`, and there is no session.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from typing import Final, Literal

from babelgate.adapters.kit.client.blame import decode_reply
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.carries import VERSION
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

Version = Literal["auto", "2025-11-25", "2026-07-28"]
"""Version that a server speaks, as the option `version` of an agent has it. With `auto`, the client asks it."""
HANDSHAKE: Final = "2025-11-25"
"""Newest version with a handshake, which `initialize` requests. Servers may answer with an earlier one."""
_HANDSHAKES: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE})
CAPABILITIES: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}}
"""Capabilities of the gateway as a client. Sampling is not offered: a server could use it to call the gateway's
models. Roots are not offered, because a run has no folders."""
_CLIENT: Final[JsonObject] = {"name": "babelgate", "version": version("babelgate")}
INITIALIZE: Final[JsonObject] = {"protocolVersion": HANDSHAKE, "capabilities": CAPABILITIES, "clientInfo": _CLIENT}
"""Params of `initialize`."""
_PREFIX: Final = "io.modelcontextprotocol/"
_META: Final[JsonObject] = {
    f"{_PREFIX}protocolVersion": VERSION,
    f"{_PREFIX}clientInfo": _CLIENT,
    f"{_PREFIX}clientCapabilities": {**CAPABILITIES, "extensions": {EXTENSION: {}}},
}
"""Members of `_meta` in each request of 2026-07-28 (NEXT/basic, _meta)."""


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


class ServerClient(ABC):
    """Client of one MCP server: the base class of the clients for each transport."""

    def __init__(self) -> None:
        self._ids = count(1)

    def next_id(self) -> int:
        """Return an id for a request."""
        return next(self._ids)

    @abstractmethod
    def set_version(self, version: str) -> None:
        """Set the version of the server. Otherwise the first call asks the server."""
        ...

    @abstractmethod
    async def is_stateless(self) -> bool:
        """Return True if the server speaks 2026-07-28. Raises agent_unreachable and agent_timeout."""
        ...

    @abstractmethod
    async def initialize(self) -> Session:
        """Open a session (SPEC/basic/lifecycle, Initialization). Raises agent_invalid for an unknown version."""
        ...

    @abstractmethod
    async def close_session(self, session: Session) -> None:
        """End a session. Errors are ignored."""
        ...

    @abstractmethod
    async def notify(self, method: str, params: JsonObject, session: Session) -> None:
        """Send a notification."""
        ...

    @abstractmethod
    async def respond(self, request_id: object, reply: JsonObject, session: Session) -> None:
        """Send the response to a request of the server. `reply` has the member `result` or `error`."""
        ...

    @abstractmethod
    def messages(
        self, method: str, params: JsonObject, session: Session | None = None, request_id: int | None = None
    ) -> AsyncGenerator[JsonObject]:
        """Send a request, and yield the messages of the server until its response, which is the last: notifications,
        requests, and the response. Without a session, it is a request of version 2026-07-28. Raises agent_invalid for
        anything else."""
        ...

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""
        ...

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


def with_meta(params: JsonObject) -> JsonObject:
    """Return the params of a request with the members of `_meta` that 2026-07-28 requires."""
    return {**params, "_meta": {**_META, **as_object(params.get("_meta"))}}


def result_of(message: JsonObject) -> JsonObject:
    """Return the result of a response. Raises RpcError for an error, agent_invalid if it is neither."""
    if "error" in message:
        error = decode_reply(w.Error, message["error"])
        raise RpcError(error.message, error.code)
    result = message.get("result")
    if not isinstance(result, dict):
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server sent a response without a result")
    return as_object(result)


def agreed_version(result: JsonObject) -> str:
    """Return the version in the result of `initialize`. Raises agent_invalid for an unknown one."""
    agreed = as_text(result.get("protocolVersion"))
    if agreed not in _HANDSHAKES:
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server speaks MCP {agreed[:20]!r}")
    return agreed


def has_stateless_version(discovered: JsonObject) -> bool:
    """Return True if the result of `server/discover` lists 2026-07-28."""
    return VERSION in (discovered.get("supportedVersions") or ())


def as_message(value: Json) -> JsonObject:
    """Return a JSON value as a message of JSON-RPC. Raises agent_invalid for any other value."""
    decode_reply(w.Envelope, value)
    return as_object(value)
