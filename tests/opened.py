"""A gateway in the test's process: the real hub, real SQLite and the whole application. No socket is open.

`tests.bridge` calls it, and `tests.running` puts it behind a server.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babelgate.gateway.access.policy import Policy
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.agents.registry import Registry, connect
from babelgate.gateway.http.app import create_app, open_hub, register
from babelgate.gateway.http.generations import Generations, policy_of_settings
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.empty import make_database
from tests.registration import registering


@dataclass(frozen=True, slots=True)
class Opened:
    hub: GatewayHub
    app: Any
    """The ASGI application."""
    settings: Settings
    generations: Generations


def database_in(folder: Path) -> str:
    """Return the URL of the database of a gateway without a configured one."""
    return f"sqlite:///{folder / 'gateway.db'}"


@asynccontextmanager
async def opened(
    folder: Path,
    agents: Mapping[str, object] | None = None,
    *,
    registered: Mapping[str, RegisteredAgent] | None = None,
    configured: Mapping[str, Any] | None = None,
    registry: Registry | None = None,
    policy: Policy | None = None,
    observer: GatewayObserver = NO_OBSERVER,
    **settings: Any,
) -> AsyncGenerator[Opened]:
    """Open a gateway with agents by name on a database in `folder`. Opening the same folder again is a restart.

    `agents` are Python callables or Agents; the demo agents are the default. `configured` are agents as in
    babelgate.yaml, `settings` its other members. Loopback may be fetched unless the settings forbid it. The test closes
    a `registry` that it passes. `policy` decides what callers may do; the default
    follows from the settings.
    """
    defaults: dict[str, Any] = {"database": database_in(folder), "network": {"allow": ["127.0.0.0/8"]}}
    named = {} if configured is None else {"agents": configured}
    loaded = Settings.model_validate({**defaults, **named, **settings})
    if loaded.database.startswith("sqlite:"):
        make_database(loaded.database_path)
    used_registry = registry or await _registry(loaded, agents, registered)
    generations = Generations(
        loaded,
        used_registry,
        make_policy=policy_of_settings if policy is None else lambda _: policy,
        observer=observer,
    )
    hub = open_hub(generations, observer)
    await hub.start()
    try:
        with registering(register) as register_handlers:
            yield Opened(hub, create_app(generations, hub, register_handlers), loaded, generations)
    finally:
        await hub.stop()
        if registry is None:
            await generations.aclose()


async def _registry(
    settings: Settings, agents: Mapping[str, object] | None, registered: Mapping[str, RegisteredAgent] | None
) -> Registry:
    if agents is None and registered is None:
        return await connect(settings)
    found = [RegisteredAgent(*wrap(target, name)) for name, target in (agents or {}).items()]
    return Registry([*found, *(registered or {}).values()], settings.default_agent)
