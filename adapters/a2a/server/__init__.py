"""Routes of the A2A server. Handlers decode the request, call the hub, and encode the response."""

import re
from collections.abc import Sequence
from typing import Any

from litestar import Response
from litestar.types import ControllerRouterHandler
from pydantic_core import to_json

from babelgate.adapters.a2a.errors import reason_of
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.canonical import Fault, Hub

from . import card, jsonrpc, rest

__all__ = ("encode_fault", "routes")

_BELOW = re.compile(r"^(?:/agent/[^/]+)?/a2a/[^/]+/?(.*)$", re.DOTALL)


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    lines = FanoutCache()
    return [*jsonrpc.routes(hub, lines), *rest.routes(hub, lines), *card.routes(hub)]


def encode_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return a fault as a response in the format of the binding (JSON-RPC or REST) to which the path belongs, even if
    no route matched.

    JSON-RPC's own errors have status 200. The faults here occur before a request is read, so the HTTP status names the
    problem: 401, 404, 413.
    """
    path = _BELOW.match(request.scope["path"])
    below = path[1].rstrip("/") if path else "card"
    reason = reason_of(fault)
    status = reason.status
    if not below and request.method == "POST":
        body = jsonrpc.encode_fault(fault, request)
    else:
        old = below == "v1" or below.startswith(("v1/", "agent/"))
        status = reason.status_0_3 if old else status
        body = rest.encode_fault(fault, old=old)
    return Response(to_json(body), status_code=status, media_type="application/json", headers=fault_headers(fault))
