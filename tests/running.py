"""A whole gateway on loopback, in the test's own process: `tests.opened` behind real sockets."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from babelgate.adapters import ADAPTERS
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.cli.listener import claim
from babelgate.gateway.http.connection import ConnectionTable, protocol_options
from babelgate.gateway.http.generations import Generations
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.fields import split_listen
from babelgate.gateway.settings.model import Settings
from tests import loopback
from tests.opened import Opened, opened
from tests.serving import serving


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    hub: GatewayHub
    http: httpx.AsyncClient
    """Client with the gateway as its base URL and a timeout of 30 s."""
    settings: Settings
    generations: Generations


@asynccontextmanager
async def running(
    folder: Path,
    agents: Mapping[str, object] | None = None,
    *,
    registered: Mapping[str, RegisteredAgent] | None = None,
    configured: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    serves_grpc: bool = False,
    table: ConnectionTable | None = None,
    **settings: Any,
) -> AsyncGenerator[Running]:
    """Serve the gateway that `opened` opens. With `serves_grpc`, it also listens for gRPC, on a free port. `table`
    counts the connections."""
    async with (
        _rpc_port(settings, serves_grpc=serves_grpc) as settings,
        opened(folder, agents, registered=registered, configured=configured, policy=policy, **settings) as gateway,
        serving(gateway.app, **protocol_options(gateway.settings, table=table)) as url,
        _serving_rpc(gateway, url),
        loopback.client(base_url=url, timeout=httpx.Timeout(30)) as http,
    ):
        try:
            yield Running(url, gateway.hub, http, gateway.settings, gateway.generations)
        finally:
            gateway.hub.close_readers()


@asynccontextmanager
async def _rpc_port(settings: dict[str, Any], *, serves_grpc: bool) -> AsyncGenerator[dict[str, Any]]:
    """Reserve a port for gRPC, and yield the settings with it."""
    if not serves_grpc:
        yield settings
        return
    with claim("127.0.0.1", 0) as place:
        listen = f"127.0.0.1:{place.getsockname()[1]}"
        yield {**settings, "grpc": {"listen": listen, "address": listen}}


@asynccontextmanager
async def _serving_rpc(gateway: Opened, url: str) -> AsyncGenerator[None]:
    if gateway.settings.grpc.listen is None:
        yield
        return
    from babelgate.gateway.http.rpc import RpcServer

    http = urlsplit(url)
    server = RpcServer(
        gateway.app,
        [adapter.rpc() for adapter in ADAPTERS if adapter.rpc is not None],
        address=split_listen(gateway.settings.grpc.listen),
        http_address=(http.hostname or "", http.port or 0),
        default_agent=lambda: gateway.generations.front().registry.default,
    )
    await server.start(gateway.settings)
    try:
        yield
    finally:
        gateway.hub.close_readers()
        await server.stop(1)
