"""Exchange of one request: its caller, its parameters, its errors, and the messages to its client."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.tracing import note_failure
from babelgate.adapters.mcp.codec.session_id import SESSION
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.adapters.mcp.errors import INTERNAL, INVALID_PARAMS, RESOURCE_NOT_FOUND
from babelgate.adapters.mcp.server.calls import MissingCapability, PagesRequired, Retry
from babelgate.adapters.mcp.server.resources import ResourceNotFound
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.fault import BLAME
from babelgate.canonical.value import Json, JsonObject

log = logging.getLogger("babelgate.mcp")

UNCACHED: Final[Mapping[str, Any]] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Members of lists and contents, which are not cacheable: they depend on the caller, and the settings of the gateway
may change (NEXT/server/utilities/caching)."""


class RequestExchange(Protocol):
    """One request of a client, from its first byte to the end of the response. Implemented by the gateway's own
    transport, and by the SDK for sessions that it stores."""

    @property
    def scope(self) -> Mapping[str, Any]:
        """ASGI scope of the HTTP request."""
        ...

    @property
    def version(self) -> str:
        """Version of MCP that the request uses, such as `2025-11-25`."""
        ...

    @property
    def request_id(self) -> str | int:
        """JSON-RPC id of the request."""
        ...

    @property
    def params(self) -> JsonObject:
        """Parameters of the request as the client sent them; empty if there are none."""
        ...

    @property
    def capabilities(self) -> types.ClientCapabilities | None:
        """Capabilities that the client declares. None in a session that is not stored."""
        ...

    @property
    def can_be_asked(self) -> bool:
        """True if the gateway can send requests to the client before the response."""
        ...

    def header(self, name: str) -> str | None:
        """Return the value of the header with a lower-case name, or None."""
        ...

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification to the client before the response, if the client accepts an event stream."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        """Send a request for a method of `CAPABILITIES` to the client, and return its result. Return None if the
        request failed."""
        ...

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Set a callback for the case that the client disconnects or cancels the request before its response."""
        ...

    def challenge(self, fault: Fault) -> None:
        """Replace the response by a request for more scopes with this fault, unless the response has begun or the
        caller cannot get more scopes."""
        ...


class Method(NamedTuple):
    """Implementation of one JSON-RPC method."""

    params: type[BaseModel]
    """Model of the parameters."""
    handler: Callable[[Any, Any], Awaitable[JsonObject]]
    """Function that takes the `RequestExchange` and the validated parameters, and returns the result. Raises
    MethodError."""


class MethodError(Exception):
    """JSON-RPC error with which a method ends."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def is_modern(exchange: RequestExchange) -> bool:
    """Return True if the request uses a version without a handshake, such as 2026-07-28."""
    return exchange.version in MODERN_PROTOCOL_VERSIONS


def caller_of(exchange: RequestExchange) -> Caller:
    return exchange.scope["state"]["caller"]


def session_id_of(exchange: RequestExchange) -> str | None:
    return exchange.header(SESSION)


def request_meta(exchange: RequestExchange) -> JsonObject:
    """Return the member `_meta` of the parameters; empty if it is absent."""
    return exchange.params.get("_meta") or {}


def has_tasks(exchange: RequestExchange) -> bool:
    """Return True if the client declares the tasks extension."""
    capabilities = exchange.capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def retry_of(exchange: RequestExchange, params: types.InputResponseRequestParams) -> Retry | None:
    """Return the state and answers of a repeated request, or None for a first one."""
    if params.request_state is None or not is_modern(exchange):
        return None
    # Raw responses: several of the SDK's models may match one.
    return Retry(params.request_state, exchange.params.get("inputResponses") or {})


async def run_method(exchange: RequestExchange, work: Awaitable[JsonObject]) -> JsonObject:
    """Await the result of a method. Raises MethodError for a fault, an unknown resource, and an unexpected
    exception."""
    try:
        return await work
    except FaultError as error:
        raise refuse(exchange, error.fault) from error
    except ResourceNotFound as error:
        raise MethodError(not_found_code(exchange), str(error), {"uri": error.uri}) from error
    except MissingCapability as error:
        data: JsonObject = {"requiredCapabilities": error.capabilities}
        raise MethodError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), data) from error
    except PagesRequired as error:
        pages: JsonObject = {"elicitations": error.pages}
        raise MethodError(types.URL_ELICITATION_REQUIRED, str(error), pages) from error
    except MethodError:
        raise
    except Exception as error:
        log.exception("request failed")
        raise MethodError(INTERNAL, "The gateway failed to answer this.") from error


def not_found_code(exchange: RequestExchange) -> int:
    """Return the error code for an unknown resource (SPEC/server/resources and NEXT/server/resources, Error
    Handling)."""
    return INVALID_PARAMS if is_modern(exchange) else RESOURCE_NOT_FOUND


def refuse(exchange: RequestExchange, fault: Fault) -> MethodError:
    """Return the error for the fault of a method, and record the fault in the request's trace. If the token needs more
    scopes, the transport replaces the response by a request for them."""
    note_error(exchange, str(fault.code))
    if fault.is_scope_missing:
        exchange.challenge(fault)
    return MethodError(INTERNAL if BLAME[fault.code] != "caller" else INVALID_PARAMS, fault.message)


def note_error(exchange: RequestExchange, code: str) -> None:
    """Record the error code of a method in the request's trace."""
    note_failure(exchange.scope, code)
