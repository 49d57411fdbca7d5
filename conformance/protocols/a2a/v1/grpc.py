"""gRPC binding of A2A 1.0 (specification 1.0, 10). It can be imported without the extra `babelgate[grpc]`, and used
only with it."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from babelgate.conformance.protocols.a2a.binding import A2aEventStream, A2aReply, reason_of
from babelgate.conformance.verdict import NotApplicable
from babelgate.conformance.wire.exchange import Exchange, SseFrame
from babelgate.conformance.wire.http import Wire
from babelgate.conformance.wire.rpc import RpcClient

if TYPE_CHECKING:
    from babelgate.conformance.wire.protobuf import ProtoService

SERVICE: Final = "lf.a2a.v1.A2AService"
_EMPTY: Final = {
    "AgentCard": ("description", "defaultInputModes", "defaultOutputModes", "skills"),
    "AgentProvider": ("organization", "url"),
    "AgentSkill": ("description", "tags"),
    "AuthorizationCodeOAuthFlow": ("scopes",),
    "ClientCredentialsOAuthFlow": ("scopes",),
    "DeviceCodeOAuthFlow": ("scopes",),
    "ListTasksResponse": ("tasks", "nextPageToken", "pageSize", "totalSize"),
    "SecurityRequirement": ("schemes",),
}
"""Members that are required and may be empty, by the name of the message type."""
_RPC_STATUS: Final = "RpcStatus"
"""Name of the schema definition of errors."""


@cache
def service() -> "ProtoService":
    """Return the service of A2A 1.0. Needs the extra `babelgate[grpc]`."""
    from babelgate.conformance.wire.protobuf import ProtoService

    content = files("babelgate.conformance").joinpath("schemas", "a2a-1.0.binpb").read_bytes()
    return ProtoService(SERVICE, content, _EMPTY)


def rpc_url(declared: str, card_url: str) -> str:
    """Return the URL of a gRPC server, `grpc://host:port` or with TLS `grpcs://host:port`.

    A card declares `host:port`, or a URL (1.0.1). Only a URL tells whether there is TLS: otherwise the server has it if
    the card was read from an https URL.
    """
    try:
        parts = urlsplit(declared if "://" in declared else f"//{declared}")
    except ValueError:
        return f"grpc://{declared}"  # the calls fail
    is_secure = parts.scheme in ("https", "grpcs") or (not parts.scheme and card_url.startswith("https:"))
    place = parts.netloc
    if not re.search(r":\d+$", place):
        place += ":443" if is_secure else ":80"
    return f"{'grpcs' if is_secure else 'grpc'}://{place}"


class GrpcBinding:
    name = "GRPC"
    is_first_generation = False

    def __init__(self, wire: Wire, url: str, tenant: str, headers: Mapping[str, str]) -> None:
        """Create the client. `url` is that of `rpc_url`. `tenant` is the one in the card, which every request repeats
        (1.0, 4.4.6)."""
        self.wire = wire
        self.url = url
        self._tenant = tenant
        self._headers = headers
        self._client = RpcClient(wire, url, service())

    async def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> A2aReply:
        """Call a method. Raises NotApplicable for parameters that a protocol buffer cannot hold, such as a text in the
        place of a list."""
        return await self.call_bytes(
            operation,
            self.encode(operation, params),
            is_valid=is_valid,
            headers=headers,
            is_anonymous=is_anonymous,
            bound=bound,
        )

    async def call_bytes(
        self,
        operation: str,
        content: bytes,
        *,
        is_valid: bool = False,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> A2aReply:
        """Call a method with an encoded message. With `is_valid=False` it may be invalid, so the response is not
        validated."""
        exchange = await self._client.call(
            operation,
            content,
            sends=f"{operation}.params" if is_valid else None,
            receives=f"{operation}.result" if is_valid else None,
            fails=_RPC_STATUS,
            headers={**self._headers, **(headers or {})},
            is_anonymous=is_anonymous,
            bound=bound,
        )
        return _reply(exchange)

    @asynccontextmanager
    async def stream(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
    ) -> AsyncGenerator[A2aEventStream]:
        async with self._client.stream(
            operation,
            self.encode(operation, params),
            sends=f"{operation}.params" if is_valid else None,
            events="StreamResponse",
            fails=_RPC_STATUS,
            headers={**self._headers, **(headers or {})},
            is_anonymous=is_anonymous,
        ) as stream:
            yield A2aEventStream(stream, _payload, _reply)

    def encode(self, operation: str, params: Mapping[str, Any]) -> bytes:
        """Return the message for parameters. Raises NotApplicable if a protocol buffer cannot hold them."""
        try:
            return service().encode_request(operation, {**({"tenant": self._tenant} if self._tenant else {}), **params})
        except ValueError as error:
            raise NotApplicable(f"a message of gRPC cannot hold this: {error}") from None


def _payload(frame: SseFrame) -> Any:
    return frame.json_or_none


def _reply(exchange: Exchange) -> A2aReply:
    if exchange.rpc_status != "OK":
        return A2aReply(exchange, None, reason_of(exchange.json) or f"gRPC {exchange.rpc_status}")
    if exchange.is_stream:
        return A2aReply(exchange, exchange.frames[0].json_or_none if exchange.frames else None, "")
    return A2aReply(exchange, exchange.json, "" if exchange.is_json else "gRPC OK without a message")
