"""A whole gateway on loopback, in the test's own process: `tests.opened` behind real sockets."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from babelgate.gateway.access.policy import Policy
from babelgate.gateway.http.connection import protocol_options
from babelgate.gateway.http.generations import Generations
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests import loopback
from tests.opened import opened
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
    **settings: Any,
) -> AsyncGenerator[Running]:
    """Serve the gateway that `opened` opens."""
    async with (
        opened(folder, agents, registered=registered, configured=configured, policy=policy, **settings) as gateway,
        serving(gateway.app, **protocol_options(gateway.settings)) as url,
        loopback.client(base_url=url, timeout=httpx.Timeout(30)) as http,
    ):
        try:
            yield Running(url, gateway.hub, http, gateway.settings, gateway.generations)
        finally:
            gateway.hub.close_readers()
