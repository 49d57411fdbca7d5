"""Application wiring: the adapters in one Litestar application, connected to the hub and wrapped by the middleware."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from os import getpid
from socket import gethostname
from typing import Any, Final

from litestar import Litestar, Response, get
from litestar.exceptions import HTTPException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.tracing import note_failure
from babelgate.canonical import Cron, Fault, FaultCode, FaultError, Principal
from babelgate.canonical.printable import printable
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.admin.routes import GATE, AdminGate, admin_routes
from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.composition import HubOptions, create_hub
from babelgate.gateway.console.gate import GATE as CONSOLE_GATE
from babelgate.gateway.console.gate import ConsoleGate
from babelgate.gateway.console.routes import console_routes
from babelgate.gateway.http import grants
from babelgate.gateway.http.admin_address import AdminAddress
from babelgate.gateway.http.callback import callback_route
from babelgate.gateway.http.direct import DirectApp
from babelgate.gateway.http.front import JWKS_PATH, Front
from babelgate.gateway.http.generations import Generations
from babelgate.gateway.http.middleware import GatewayMiddleware
from babelgate.gateway.http.openapi_routes import openapi_routes
from babelgate.gateway.http.operations import find_adapter
from babelgate.gateway.http.response import MAX_PATH, Scope
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.blob_store import open_blobs

log = logging.getLogger("babelgate")

_JWKS_AGE: Final = 3600
"""Seconds for which clients may cache the public keys. Chosen. A new key must be published for as long before it signs
alone."""
_VERSION: Final = version("babelgate")
_STATUS: Final = {
    FaultCode.NOT_FOUND: 404,
    FaultCode.METHOD_NOT_ALLOWED: 405,
    FaultCode.UNAUTHENTICATED: 401,
    FaultCode.FORBIDDEN: 403,
    FaultCode.CONFLICT: 409,
    FaultCode.TOO_LARGE: 413,
    FaultCode.QUEUE_FULL: 429,
    FaultCode.LIMITED: 429,
    FaultCode.INTERNAL: 500,
    FaultCode.SHUTTING_DOWN: 503,
    FaultCode.UNAVAILABLE: 503,
}
_CODES: Final = {404: FaultCode.NOT_FOUND, 405: FaultCode.METHOD_NOT_ALLOWED, 413: FaultCode.TOO_LARGE}


def open_hub(generations: Generations, observer: GatewayObserver = NO_OBSERVER) -> GatewayHub:
    """Return a hub for the settings and agents of the current generation. It is not started yet."""
    settings, policy = generations.current.settings, generations.policy
    blobs = open_blobs(settings.artifacts, settings.blobs_path, settings.limits.artifact)
    options = HubOptions(
        writers={dialect: make for adapter in ADAPTERS for dialect, make in adapter.webhooks.items()},
        webhook_protocols={dialect: adapter.name for adapter in ADAPTERS for dialect in adapter.webhooks},
        crons={
            dialect: partial(_submit_cron, policy, adapter.name, submit)
            for adapter in ADAPTERS
            for dialect, submit in adapter.crons.items()
        },
        power=settings.durability == "power",
        pooler=settings.pooler,
        standby=settings.standby,
        cluster=node_name(settings) if settings.is_shared else None,
        audits=settings.has_credentials,
        observer=observer,
    )
    hub = create_hub(generations.hub_generation, settings.database, blobs, options)
    generations.attach(hub)
    return hub


async def _submit_cron(
    policy: Policy,
    protocol: str,
    submit: Callable[[GuardedHub, Principal, Cron, str], Awaitable[object]],
    hub: GatewayHub,
    owner: str,
    cron: Cron,
    run_id: str,
) -> None:
    """Submit a run of a cron through the guard, with the rights of the caller who last changed the cron. Raises the
    faults of `submit`."""
    if hub.observer.traces is not None:
        hub.observer.traces.leave()  # that of the request which has created or changed a cron
    principal = cron.principal or Principal.of_owner(owner)
    await submit(GuardedHub(hub, policy, protocol), principal, cron, run_id)


def node_name(settings: Settings) -> str | None:
    """Return the name of this node, or None for a single gateway without a configured name."""
    return settings.node or (f"{gethostname()}:{getpid()}" if settings.is_shared else None)


class _App(DirectApp):
    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Return the plugins without Litestar's defaults for pydantic and attrs.

        No handler takes or returns such models. The default plugins would need 2 MB, most of it for pydantic v1.
        """
        return [*plugins, MsgspecDIPlugin()]


def register(handlers: Sequence[Any]) -> Litestar:
    """Return a Litestar application that serves these handlers."""
    return _App(
        handlers,
        openapi_config=None,
        answer=_answer,
        request_max_body_size=None,  # adapters/kit/json.py has the limit, with an error response in each protocol
        logging_config=None,
    )


def create_app(
    generations: Generations,
    hub: GatewayHub,
    register: Callable[[Sequence[Any]], Litestar] = register,
    *,
    admin_address: AdminAddress | None = None,
) -> GatewayMiddleware:
    """Return the gateway as an ASGI application, which neither starts nor stops the hub. `admin_address` is the
    separate address of the administration API, if it has one.

    Most of the time is spent in `register`, so tests that create many applications can replace it.
    """
    policy, auditor, port = generations.policy, hub.auditor, generations.admin_port()
    hubs = {adapter.name: GuardedHub(hub, policy, adapter.name) for adapter in ADAPTERS}
    own_hub = GuardedHub(hub, policy, "")

    def can_discover(principal: Principal, agent: str, path: str) -> bool:
        adapter = find_adapter(path)
        return (own_hub if adapter is None else hubs[adapter.name]).can_discover(principal, agent)

    def has_own_origin(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        return generations.front().has_own_origin(scope, headers)

    handlers: list[Any] = [*_gateway_routes(hub, own_hub, generations.front), *grants.routes(own_hub)]
    handlers.append(callback_route(hub))
    handlers += [admin_routes(hub, port), *console_routes(hub, own_hub, port), *openapi_routes()]
    for adapter in ADAPTERS:
        handlers += adapter.routes(hubs[adapter.name])
    return GatewayMiddleware(
        register(handlers),
        generations.front,
        can_discover=can_discover,
        encode=_encode,
        version=_VERSION,
        instance=lambda: hub.instance,
        streams=generations.streams,
        auditor=auditor,
        state={
            GATE: AdminGate(port.settings, policy, auditor),
            CONSOLE_GATE: ConsoleGate(port.settings, policy, has_own_origin, auditor, admin_address),
        },
        has_context=generations.current.settings.log_format == "json",
        observer=generations.observer,
        admin_address=admin_address,
    )


def _gateway_routes(hub: GatewayHub, guarded_hub: GuardedHub, front: Callable[[], Front]) -> Sequence[Any]:
    """Return the handlers that belong to no protocol: the index with the URLs, the health checks, and the public
    keys."""

    @get("/")
    async def index(request: AnyRequest) -> dict[str, Any]:
        client = caller(request)
        agent = client.agent or "agent"
        return {
            "babelgate": _VERSION,
            "agents": [agent]
            if client.has_single_agent
            else [info.name for info in guarded_hub.agents(client.principal)],
            "protocols": [
                {"protocol": example.label, "url": example.url, "example": example.curl}
                for adapter in ADAPTERS
                for example in adapter.examples(client.base_url, agent)
            ],
        }

    @get("/healthz")
    async def healthz() -> Response[dict[str, str]]:
        if hub.journal.is_superseded:  # only a restart helps
            return Response({"status": "superseded"}, status_code=503)
        return Response({"status": "ok"})

    @get("/readyz")
    async def readyz(request: AnyRequest) -> Response[dict[str, Any]]:
        registry = hub.registry
        registry.detect_broken()
        why = await hub.ready()
        detailed = caller(request).owner != ""  # reasons name paths and hosts, and this URL needs no key
        visible = {info.name for info in guarded_hub.agents(caller(request).principal)}
        agents = {f.info.name: _health(f, detailed=detailed) for f in registry.all() if f.info.name in visible}
        journal = "ok" if why is None else why if detailed else "failing"
        body: dict[str, Any] = {"status": "ok" if why is None else "failing", "journal": journal, "agents": agents}
        if hub.cluster is not None:
            nodes = hub.cluster.nodes
            body["node"] = nodes.name if detailed else nodes.node_id
            others = nodes.find_other_configs()
            comparison = f"differs from {', '.join(others)}" if detailed else "differs"
            body["configuration"] = comparison if others else "ok"
        return Response(body, status_code=200 if why is None else 503)

    @get(JWKS_PATH)
    async def jwks() -> Response[dict[str, Any]]:
        """Return the public keys by which the gateway signs."""
        keys = front().signing_keys
        if keys is None:
            return Response({"keys": []}, headers={"Cache-Control": "no-cache"})
        return Response(keys.jwks, headers={"Cache-Control": f"public, max-age={_JWKS_AGE}"})

    return (index, healthz, readyz, jwks)


def _health(registered: RegisteredAgent, *, detailed: bool) -> str:
    """Return the health of one agent: "ok", "broken" if it is not available, or "failing" with its failing servers.

    Reasons are included only if `detailed` is true.
    """
    if registered.broken:
        return f"broken: {registered.broken}" if detailed else "broken"
    if not isinstance(registered.agent, ServerPool):
        return "ok"
    failing = {url: state for url, state in registered.agent.health.items() if state != "ok"}
    if not failing:
        return "ok"
    return "failing: " + ", ".join(f"{url} is {state}" for url, state in failing.items()) if detailed else "failing"


def _answer(request: AnyRequest, error: Exception) -> Response[Any]:
    """Return the response to an error of a handler, in the format of the protocol that the path belongs to."""
    if isinstance(error, FaultError):
        response = _encode(error.fault, request)
        if "allow" in error.fault.details:  # "The origin server MUST generate an Allow header field" (RFC 9110, 15.5.6)
            response.headers["allow"] = ", ".join(error.fault.details["allow"])
        return response
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code)
        if code is None:
            code = FaultCode.INVALID if error.status_code < 500 else FaultCode.INTERNAL
        response = _encode(Fault(code=code, message=error.detail), request)
        if error.headers and "allow" in {name.lower() for name in error.headers}:
            response.headers.update(error.headers)
        return response
    path = printable(request.scope["path"], MAX_PATH, is_ascii=True)
    log.error("request failed method=%s path=%s", request.method, path, exc_info=error)
    return _encode(Fault(code=FaultCode.INTERNAL, message="The gateway failed to answer this."), request)


def _encode(fault: Fault, request: AnyRequest) -> Response[Any]:
    note_failure(request.scope, str(fault.code))
    adapter = find_adapter(request.scope["path"])
    if adapter is not None:
        return adapter.encode_fault(fault, request)
    is_precondition = fault.details.get("reason") == "revision"  # RFC 9110, 13.1.1
    status = 412 if is_precondition else _STATUS.get(fault.code, 400)
    body = {"error": {"code": str(fault.code), "message": fault.message}}
    return Response(body, status_code=status, media_type="application/json", headers=fault_headers(fault))
