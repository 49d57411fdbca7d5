"""Routes of the OpenAPI documents: `/openapi.json` for all protocols, `/openapi/acp.json` for one, and `/docs`, which
redirects to the console's page about them."""

from collections.abc import Sequence
from typing import Final, NotRequired

from litestar import Response, get
from litestar.types import ControllerRouterHandler
from typing_extensions import TypedDict

from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation
from babelgate.canonical.value import JsonObject
from babelgate.gateway.console.gate import GATE, ConsoleGate
from babelgate.gateway.console.pages import DOCS, is_switched
from babelgate.gateway.http.grants import Share
from babelgate.gateway.http.openapi import OpenApi, described_protocols

_READER: Final = "console/#/api"
"""Page of the console that shows the documents, as a URL relative to `/docs`."""


class ErrorDetail(TypedDict):
    code: str
    message: str


class GatewayError(TypedDict):
    """Error of a route that belongs to no protocol."""

    error: ErrorDetail


class Examples(TypedDict):
    """Index of the gateway: its version, its agents, and a URL and an example request for each protocol."""

    babelgate: str
    agents: list[str]
    protocols: list[JsonObject]


class Health(TypedDict):
    status: str


class ReadinessReport(TypedDict):
    status: str
    journal: str
    agents: dict[str, str]
    node: NotRequired[str]
    configuration: NotRequired[str]


class KeySetDocument(TypedDict):
    """Public keys of the gateway (RFC 7517)."""

    keys: list[JsonObject]


OWN_REST: Final = RestDescription(
    error=GatewayError,
    operations={
        "index": RestOperation(returns=Examples),
        "healthz": RestOperation(returns=Health),
        "readyz": RestOperation(returns=ReadinessReport),
        "jwks": RestOperation(returns=KeySetDocument),
        "give": RestOperation(body=Share, returns=JsonObject),
        "remove": RestOperation(query={"thread_id": "string", "grantee": "string"}),
        "list_grants": RestOperation(returns=JsonObject, query={"thread_id": "string"}),
        "key.create_key": RestOperation(body=JsonObject, returns=JsonObject),
        "key.rotate_key": RestOperation(body=JsonObject, is_body_optional=True, returns=JsonObject),
        "key.list_keys": RestOperation(returns=JsonObject, query={"limit": "integer", "after": "string"}),
        "agent.put_agent": RestOperation(body=JsonObject, returns=JsonObject, headers={"If-Match": "string"}),
        "agent.disable": RestOperation(body=JsonObject, returns=JsonObject),
        "audit.list_records": RestOperation(
            returns=JsonObject,
            query={
                "action": "string",
                "subject": "string",
                "kind": "string",
                "target": "string",
                "agent": "string",
                "outcome": "string",
                "since": "string",
                "until": "string",
                "limit": "integer",
                "before": "integer",
            },
        ),
        "usage.get_usage": RestOperation(
            returns=JsonObject, query={"by": "string", "since": "string", "until": "string"}
        ),
        "budget.list_budgets": RestOperation(returns=JsonObject, query={"limit": "integer"}),
        "budget.raise_budget": RestOperation(body=JsonObject, returns=JsonObject),
    },
)
"""Description of the operations that belong to no protocol, by name. An operation that is not listed takes no body and
returns any JSON."""


def openapi_routes() -> Sequence[ControllerRouterHandler]:
    """Return the handlers that serve the documents, which are generated at the first request."""
    generated: dict[bool, OpenApi] = {}  # with and without the console
    paths = {f"/openapi/{name}.json": name for name in described_protocols()}

    async def respond(request: AnyRequest, protocol: str | None) -> Response[JsonObject]:
        gate: ConsoleGate = request.scope["state"][GATE]
        has_console = gate.console.enabled
        if has_console not in generated:
            routes = [route for route in request.app.routes if has_console or not is_switched(route.path)]
            generated[has_console] = OpenApi(routes, OWN_REST)
        base_url = caller(request).base_url
        return Response(await aside(lambda: generated[has_console].document(base_url, protocol)))

    @get("/openapi.json")
    async def openapi(request: AnyRequest) -> Response[JsonObject]:
        """Return the OpenAPI document of all protocols."""
        return await respond(request, None)

    @get(list(paths))
    async def protocol_openapi(request: AnyRequest) -> Response[JsonObject]:
        """Return the OpenAPI document of one protocol."""
        return await respond(request, paths[request.scope["path"]])

    @get(DOCS, status_code=302)
    async def docs() -> Response[bytes]:
        """Redirect to the page of the console that shows the documents."""
        return Response(b"", status_code=302, headers={"Location": _READER})

    return [openapi, protocol_openapi, docs]
