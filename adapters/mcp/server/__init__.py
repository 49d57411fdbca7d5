"""Routes of the MCP endpoint: one URL for versions with a handshake and for the stateless version 2026-07-28. Requests
that pass the gateway's own checks are served by the MCP SDK."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, delete, get, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.mcp.errors import encode_fault
from babelgate.adapters.mcp.server.authorization import METADATA_PATHS, challenge_headers, get_metadata
from babelgate.adapters.mcp.server.transport import TransportHandlers
from babelgate.canonical import Fault, Hub

__all__ = ("PATH", "answer_fault", "routes")

PATH: Final = "/mcp"


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the route handlers of the endpoint."""
    transport = TransportHandlers(hub)
    return [
        post(PATH, status_code=200)(transport.post),
        get(PATH)(transport.get),
        delete(PATH, status_code=200)(transport.delete),
        get(list(METADATA_PATHS))(get_metadata),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the error response for a fault, as a JSON-RPC error."""
    status, body, _ = encode_fault(fault)
    return json_response(body, challenge_headers(fault, request), status=status)
