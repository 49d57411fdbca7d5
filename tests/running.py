"""A whole gateway on loopback, in the test's own process: real hub, real SQLite, real sockets."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.agents.python.agent import wrap
from gateway.agents.registry import Registry, connect
from gateway.fronted import Fronted
from gateway.http.app import create_app, open_hub
from gateway.http.connection import protocol_options
from gateway.hub import Hub
from gateway.outbound import Fetcher
from gateway.settings.model import Settings
from gateway.storage.database import sqlite_path
from tests import loopback
from tests.empty import make_database
from tests.serving import serving


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    hub: Hub
    http: httpx.AsyncClient
    """With the gateway as its base URL and no timeout on reading."""
    settings: Settings


@asynccontextmanager
async def running(
    folder: Path,
    agents: Mapping[str, object] | None = None,
    *,
    fronted: Mapping[str, Fronted] | None = None,
    configured: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[Running]:
    """Serve Python callables and Agents by name (the demo agents if there are none), on a database in `folder`. The
    same folder again is a restart. `configured` = agents as babelgate.yaml has them, `settings` = the rest of it;
    loopback may be fetched unless they say otherwise."""
    given: dict[str, Any] = {"database": f"sqlite:///{folder / 'gateway.db'}", "network": {"allow": ["127.0.0.0/8"]}}
    named = {} if configured is None else {"agents": configured}
    loaded = Settings.model_validate({**given, **named, **settings})
    path = sqlite_path(loaded.database)
    if path is not None:
        make_database(path)
    if agents is None and fronted is None:
        registry = await connect(loaded)
    else:
        found = [Fronted(*wrap(target, name)) for name, target in (agents or {}).items()]
        registry = Registry([*found, *(fronted or {}).values()], loaded.default_agent)
    fetcher = Fetcher(loaded.network.allow)
    hub = open_hub(loaded, registry, fetcher)
    await hub.start()
    try:
        async with (
            serving(create_app(hub, registry, loaded), **protocol_options(loaded)) as url,
            loopback.client(base_url=url, timeout=httpx.Timeout(30)) as http,
        ):
            try:
                yield Running(url, hub, http, loaded)
            finally:
                hub.close_readers()
    finally:
        await hub.stop()
        await registry.aclose()
