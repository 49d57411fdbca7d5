"""The agents of the configuration, by name: imported or reached once at start. One that fails is listed as broken with the
reason, and the others serve."""

import asyncio
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid5

import httpx

from adapters.acp.client import Client, discover
from adapters.acp.manifest import upstream_name
from canonical import Agent, AgentInfo, FaultCode, FaultError
from gateway.callable import wrap
from gateway.config import DEMO, AgentSettings, Settings, Timeouts

__all__ = ("NAMESPACE", "Fronted", "Registry", "agent_id", "connect")

NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""Of the UUIDs by which agents can be called beside their names; the one that LangGraph Platform uses."""


def agent_id(name: str) -> str:
    return str(uuid5(NAMESPACE, name))


@dataclass(frozen=True, slots=True)
class Fronted:
    """A configured agent."""

    info: AgentInfo
    agent: Agent | None
    broken: str | None = None
    """Why there is none."""
    source: str = ""
    concurrency: int | None = None
    total_timeout: float | None = None
    """Seconds of a run; None = the gateway's limit."""
    idempotent: bool = False


class Registry:
    def __init__(self, agents: Sequence[Fronted], default: str | None = None) -> None:
        self._agents = {fronted.info.name: fronted for fronted in agents}
        self._ids = {agent_id(name): fronted for name, fronted in self._agents.items()}
        self.default = default if default is not None else next(iter(self._agents), None)

    def get(self, name: str) -> Fronted:
        """By name or UUID. Raises not_found."""
        fronted = self._agents.get(name) or self._ids.get(name.lower())
        if fronted is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {name} not found")
        return fronted

    def all(self) -> Sequence[Fronted]:
        return list(self._agents.values())

    async def aclose(self) -> None:
        for fronted in self._agents.values():
            if isinstance(fronted.agent, Client):
                await fronted.agent.aclose()


async def connect(settings: Settings) -> Registry:
    """Import or reach every configured agent; the demo agents where none is configured."""
    wanted: Mapping[str, AgentSettings] = settings.agents or {
        name: AgentSettings(python=f"gateway.demo:{name}") for name in DEMO
    }
    here = str(Path.cwd())
    if here not in sys.path:  # `module:name` of the folder that the command runs in, as with any Python server
        sys.path.insert(0, here)
    found = await asyncio.gather(*(_reach(name, agent) for name, agent in wanted.items()))
    return Registry(found, settings.default_agent)


async def _reach(name: str, settings: AgentSettings) -> Fronted:
    source = settings.python or settings.url or ""
    try:
        info, agent = _imported(name, settings) if settings.python else await _upstream(name, settings)
    except FaultError as error:
        return _broken(name, settings, source, error.fault.message)
    changes: dict[str, object] = {"name": name, "continuable": settings.continuable}
    if settings.description is not None:
        changes["description"] = settings.description
    return Fronted(
        info=info.model_copy(update=changes),
        agent=agent,
        source=source,
        concurrency=settings.concurrency,
        total_timeout=settings.timeouts.total,
        idempotent=settings.idempotent,
    )


def _broken(name: str, settings: AgentSettings, source: str, why: str) -> Fronted:
    info = AgentInfo(name=name, description=settings.description or f"Broken: {why}")
    return Fronted(info=info, agent=None, broken=why, source=source)


def _imported(name: str, settings: AgentSettings) -> tuple[AgentInfo, Agent]:
    module, _, path = (settings.python or "").partition(":")
    try:
        target: object = importlib.import_module(module)
        for step in path.split("."):
            target = getattr(target, step)
        return wrap(target, name, replay=settings.replay)
    except Exception as error:  # whatever an author's module raises while it is imported
        why = f"{settings.python}: {type(error).__name__}: {error}"
        raise FaultError(FaultCode.AGENT_UNREACHABLE, " ".join(why.split())) from error


async def _upstream(name: str, settings: AgentSettings) -> tuple[AgentInfo, Agent]:
    url = (settings.url or "").rstrip("/")
    headers = {key: value.get_secret_value() for key, value in settings.headers.items()}
    offered = await agents_at(url, headers, settings.timeouts)
    wanted = settings.agent or name
    own = {upstream_name(info): info for info in offered}
    matching = [key for key, info in own.items() if wanted in (key, info.name)]
    if not matching and settings.agent is None and len(own) == 1:
        matching = list(own)
    if not matching:
        raise FaultError(
            FaultCode.AGENT_UNREACHABLE,
            f"{url} has no agent {wanted}; it has {', '.join(own) or 'none'}: name one with agent: (or URL#agent)",
        )
    client = Client(url, matching[0], headers=headers, timeout=_httpx_timeout(settings.timeouts))
    return own[matching[0]], client


async def agents_at(url: str, headers: Mapping[str, str], timeouts: Timeouts) -> Sequence[AgentInfo]:
    """What an ACP server offers. Raises agent_unreachable, in one line, for anything else."""
    async with httpx.AsyncClient(timeout=httpx.Timeout(10, connect=timeouts.connect)) as http:
        return await discover(url, http, headers)


def _httpx_timeout(timeouts: Timeouts) -> httpx.Timeout:
    return httpx.Timeout(connect=timeouts.connect, read=timeouts.read, write=60.0, pool=None)
