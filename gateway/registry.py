"""The configured agents: imports them or asks their servers, once, when the gateway starts.

An agent that cannot be had is listed as broken, with the reason in one line; the others serve.
"""

import asyncio
import importlib
import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import httpx

from adapters.acp.client import Client, discover
from adapters.acp.manifest import upstream_name
from canonical import Agent, AgentInfo, FaultCode, FaultError
from canonical.agent import AGENT_NAME
from gateway.callable import InProcess, wrap
from gateway.config import AgentSettings, Settings, Timeout

__all__ = ("Fronted", "Registry", "agent_name", "agent_uuid", "connect")

log = logging.getLogger("babelgate.registry")

_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""In which LangGraph Platform derives the id of the assistant that it makes for each graph: clients compute it too."""

_ASKING: Final = httpx.Timeout(5.0)
_INSTANCE: Final = re.compile(r"instance=([0-9a-fA-F-]{36})")


def agent_uuid(name: str) -> str:
    return str(uuid5(_NAMESPACE, name))


def agent_name(text: str) -> str:
    """A legal agent name that is like `text`."""
    legal = re.sub(r"[^-a-z0-9_.]+", "-", text.lower())[:63].strip("-_.")
    return legal if AGENT_NAME.fullmatch(legal) else "agent"


@dataclass(frozen=True, slots=True)
class Fronted:
    """An agent behind the gateway."""

    info: AgentInfo
    agent: Agent | None
    """None = broken."""
    broken: str | None = None
    """Why, in one line."""
    concurrency: int | None = None
    timeout: Timeout = field(default_factory=Timeout)
    idempotent: bool = False
    replay: bool = True
    instance: str | None = None
    """Of the gateway that the agent's server is, if it is one."""

    @property
    def total_timeout(self) -> float | None:
        return self.timeout.total


class Registry:
    def __init__(self, agents: Iterable[Fronted], default: str | None = None) -> None:
        """`default` = the agent of calls that name none; the first one if it is None."""
        self._agents = {each.info.name: each for each in agents}
        self._names = {agent_uuid(name): name for name in self._agents}
        self.default = next(iter(self._agents), None) if default is None else default

    def get(self, name: str) -> Fronted:
        """By name, or by the UUID that follows from it. Raises not_found."""
        found = self._agents.get(name) or self._agents.get(self._names.get(name.lower(), ""))
        if found is None:
            raise FaultError(FaultCode.NOT_FOUND, f"There is no agent {name!r}")
        return found

    def all(self) -> Sequence[Fronted]:
        return tuple(self._agents.values())

    def disown(self, instance: str) -> None:
        """Break the agents whose server is this very gateway: a call of them would call itself for ever."""
        for name, each in self._agents.items():
            if each.instance is not None and each.instance == instance:
                self._agents[name] = replace(each, agent=None, broken="its URL leads back to this gateway")

    async def aclose(self) -> None:
        """Let go of connections to upstreams, and of agents that wait for answers."""
        for each in self._agents.values():
            if isinstance(each.agent, Client | InProcess):
                await each.agent.aclose()


async def connect(settings: Settings, servers: Sequence[str] = ()) -> Registry:
    """The agents of the settings, and those of the servers, each under its own name. Servers are asked all at once; one
    that does not answer within seconds is broken."""
    if (cwd := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, cwd)
    async with _Discovery() as discovery:
        named, listed = await asyncio.gather(
            asyncio.gather(*(_front(name, each, discovery) for name, each in settings.agents.items())),
            asyncio.gather(*(_front_all(url, discovery) for url in servers)),
        )
    found = {each.info.name: each for each in named}
    for each in (each for server in listed for each in server):
        name, number = each.info.name, 1
        while name in found:
            number += 1
            name = f"{each.info.name[:58].rstrip('-_.')}-{number}"
        found[name] = replace(each, info=each.info.model_copy(update={"name": name}))
    return Registry(found.values(), settings.default_agent)


async def _front(name: str, settings: AgentSettings, discovery: "_Discovery") -> Fronted:
    try:
        if settings.python is not None:
            found = _imported(name, settings)
        else:
            found = await _upstream(name, settings, discovery)
    except _Broken as error:
        found = Fronted(AgentInfo(name=name), None, str(error), instance=error.instance)
    update = {"name": name, "continuable": settings.continuable or found.info.continuable}
    if settings.description is not None:
        update["description"] = settings.description
    return replace(
        found,
        info=found.info.model_copy(update=update),
        concurrency=settings.concurrency,
        timeout=settings.timeout,
        idempotent=settings.idempotent,
        replay=settings.replay,
    )


async def _front_all(url: str, discovery: "_Discovery") -> Sequence[Fronted]:
    try:
        infos, instance = await discovery.ask(url, {})
    except _Broken as error:
        return [Fronted(AgentInfo(name=agent_name(urlsplit(url).netloc)), None, str(error), instance=error.instance)]
    return [Fronted(info, Client(url, upstream_name(info)), instance=instance) for info in infos]


class _Broken(Exception):
    def __init__(self, reason: str, instance: str | None = None) -> None:
        super().__init__(" ".join(reason.split())[:500])
        self.instance = instance


# In this process


def _imported(name: str, settings: AgentSettings) -> Fronted:
    assert settings.python is not None
    module, _, path = settings.python.partition(":")
    try:
        target: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever a module does when it is run
        log.debug("importing %s failed", module, exc_info=True)
        raise _Broken(f"cannot import {module}: {type(error).__name__}: {error}") from None
    try:
        for attribute in path.split("."):
            target = getattr(target, attribute)
    except AttributeError:
        raise _Broken(f"the module {module} has no {path}") from None
    try:
        info, agent = wrap(target, name, replay=settings.replay)
    except TypeError as error:
        raise _Broken(f"{settings.python}: {error}") from None
    return Fronted(info, agent)


# Behind a URL


class _Discovery:
    """Asks servers which agents they have; one server once."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(event_hooks={"response": [self._heard]}, timeout=_ASKING)
        self._instances: dict[str, str] = {}
        self._asked: dict[tuple[str, str], asyncio.Task[list[AgentInfo]]] = {}

    async def __aenter__(self) -> "_Discovery":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def _heard(self, response: httpx.Response) -> None:
        match = _INSTANCE.search(response.headers.get("babelgate", ""))
        if match is not None:
            self._instances[_origin(str(response.request.url))] = match[1].lower()

    async def ask(self, url: str, headers: Mapping[str, str]) -> tuple[list[AgentInfo], str | None]:
        """Raises _Broken."""
        key = (url, repr(sorted(headers.items())))
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(discover(url, self._http, headers))
        try:
            infos = await self._asked[key]
        except FaultError as error:
            raise _Broken(f"{url}: {error.fault.message}", self._instances.get(_origin(url))) from None
        except UnicodeError:
            raise _Broken(f"{url}: its host is not a name") from None
        instance = self._instances.get(_origin(url))
        if not infos:
            raise _Broken(f"{url} has no agents", instance)
        return infos, instance


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


async def _upstream(name: str, settings: AgentSettings, discovery: _Discovery) -> Fronted:
    url = settings.url or ""
    headers = {key: secret.get_secret_value() for key, secret in settings.headers.items()}
    infos, instance = await discovery.ask(url, headers)
    info = _picked(name, settings.agent, url, infos)
    timeout = httpx.Timeout(connect=settings.timeout.connect, read=settings.timeout.read, write=60.0, pool=None)
    agent = Client(url, upstream_name(info), headers=headers, timeout=timeout)
    return Fronted(info, cast("Agent", agent), instance=instance)


def _picked(name: str, agent: str | None, url: str, infos: Sequence[AgentInfo]) -> AgentInfo:
    """The agent that is asked for by name; else the only one; else the one with the name it is to have here."""
    wanted = agent or name
    for info in infos:
        if wanted in (upstream_name(info), info.name):
            return info
    if agent is None and len(infos) == 1:
        return infos[0]
    names = ", ".join(upstream_name(info) for info in infos)
    if agent is not None:
        raise _Broken(f"{url} has no agent {agent}; it has {names}")
    raise _Broken(f"{url} has several agents, and none is called {name}: pick one with {url}#agent; it has {names}")
