"""Agent registry: imports the configured agents, or asks their servers, when the gateway starts.

An agent that cannot be had is listed as broken, with the reason in one line; the others serve. One behind a URL is
looked for again when it is called, and when somebody asks whether the gateway is ready. One whose protocol and name the
settings give is called meanwhile.
"""

import asyncio
import importlib
import importlib.util
import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import httpx

from babelgate._renamed import describe_import_error
from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.upstream import Upstream
from babelgate.canonical import Agent, AgentInfo, FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.detection import Detected, Detector, Undetected
from babelgate.gateway.agents.failover import Server, server_pool
from babelgate.gateway.agents.langgraph.signature import can_make_graphs
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.registered_agent import Again, Describe, RegisteredAgent
from babelgate.gateway.settings.model import AgentSettings, Settings

log = logging.getLogger("babelgate.registry")

_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""In which LangGraph Platform derives the id of the assistant that it makes for each graph: clients compute it too."""
_PAUSE: Final = 5.0
"""Seconds for which a broken agent is not looked for again, unless it is called."""
_LOOK: Final = 30.0
"""Seconds that a call waits for a server to list its agents, if the agent has no `timeout.total`. Chosen."""
_AGAIN: Final = (0.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds before each attempt to fetch what describes an agent that works. Chosen."""
_DESCRIBED: Final = 50
"""Agents of one server that are described so. Chosen."""
_DESCRIBE: Final = 60.0
"""Seconds that one such attempt may take. Chosen."""


def agent_uuid(name: str) -> str:
    return str(uuid5(_NAMESPACE, name))


class Registry:
    def __init__(self, agents: Iterable[RegisteredAgent], default: str | None = None) -> None:
        """`default` = the agent of calls that name none; the first one if it is None."""
        self._agents = {each.info.name: each for each in agents}
        self._names = {agent_uuid(name): name for name in self._agents}
        """By UUIDs, and by names in whose place others were found."""
        self.default = next(iter(self._agents), None) if default is None else default
        self._instance: str | None = None
        self._looking: dict[str, asyncio.Future[None]] = {}
        """For those that are broken."""
        self._looked: dict[str, float] = {}
        """When that had ended last."""
        self._describing: set[asyncio.Task[None]] = set()

    def has_agent(self, name: str) -> bool:
        return name in self._agents

    def get(self, name: str) -> RegisteredAgent:
        """By name, or by the UUID that follows from it. Raises not_found."""
        found = self._agents.get(name) or self._agents.get(self._names.get(name.lower(), ""))
        if found is None:
            raise FaultError(FaultCode.NOT_FOUND, f"There is no agent {name[:100]!r}")
        return found

    def all(self) -> Sequence[RegisteredAgent]:
        return tuple(self._agents.values())

    async def get_reachable(self, name: str) -> RegisteredAgent:
        """The same. One that is broken because of its server is looked for first; who comes while it is looked for
        waits for what is found. One that can be called without that is called."""
        found = self.get(name)
        looking = self._look(found, now=found.agent is None)
        if looking is None or found.agent is not None:
            return found
        await asyncio.wait((looking,), timeout=found.timeout.total or _LOOK)
        return self.get(found.info.name)

    def look(self) -> None:
        """Begin to look for all that are broken."""
        for each in self.all():
            self._look(each)

    def follow(self, name: str, late: Again) -> None:
        """Take what is found in the place of a broken agent, when it is."""
        self._looking[name] = asyncio.ensure_future(self._refresh_agent(name, late))

    def describe(self) -> None:
        """Begin to fetch what describes the agents that have no description of their schemas yet."""
        for each in self.all():
            self._describe(each)

    def _describe(self, registered: RegisteredAgent) -> None:
        if registered.describe is None or registered.info.schemas:
            return
        task = asyncio.ensure_future(self._keep_description(registered.info.name, registered.describe))
        self._describing.add(task)
        task.add_done_callback(self._describing.discard)

    async def _keep_description(self, name: str, describe: Describe) -> None:
        for pause in _AGAIN:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(_DESCRIBE):
                    schemas = await describe()
            except (FaultError, TimeoutError) as error:
                log.debug("description failed agent=%s error=%s", name, error)
                continue
            known = self._agents.get(name)
            if known is not None:
                self._agents[name] = replace(known, info=known.info.replace(schemas=schemas))
            return

    async def settle(self) -> None:
        """Wait until every look that has begun has ended."""
        await asyncio.gather(*self._looking.values(), return_exceptions=True)

    def _look(self, registered: RegisteredAgent, *, now: bool = False) -> "asyncio.Future[None] | None":
        """One look at a time; None where there is nothing to look for, or not yet. `now` = without a pause."""
        name, again = registered.info.name, registered.again
        if again is None:
            return None
        looked = self._looked.get(name)
        if name not in self._looking and (now or looked is None or time.monotonic() - looked >= _PAUSE):
            self._looking[name] = asyncio.ensure_future(self._refresh_agent(name, again))
        return self._looking.get(name)

    async def _refresh_agent(self, name: str, again: Again) -> None:
        try:
            found = await again()
        finally:
            del self._looking[name]
            self._looked[name] = time.monotonic()
        known = self._agents[name].agent
        if (
            known is not None and len(found) == 1 and found[0].agent is not None
        ):  # it has been called meanwhile: its runs go on
            await _close(found[0].agent)
            found = [replace(found[0], agent=known)]
        self._put(name, found)

    def _put(self, name: str, found: Sequence[RegisteredAgent]) -> None:
        """In the place of the one that was broken. Of a server that was given without a name, that is all its agents,
        and the first of them answers to the old name too."""
        agents = list(self._agents.items())
        at = list(self._agents).index(name)
        rest = [*agents[:at], *agents[at + 1 :]]
        put = _apart(map(self._reject_loop, found), dict(rest))
        self._agents = dict([*rest[:at], *put.items(), *rest[at:]])
        self._names |= {agent_uuid(each): each for each in put}
        if name not in put:
            self._names[name] = next(iter(put))
        for each in put.values():
            self._describe(each)

    def disown(self, instance: str) -> None:
        """Break the agents whose server is this very gateway: a call of them would call itself for ever."""
        self._instance = instance
        for name, each in self._agents.items():
            self._agents[name] = self._reject_loop(each)

    def _reject_loop(self, registered: RegisteredAgent) -> RegisteredAgent:
        if registered.instance is None or registered.instance != self._instance:
            return registered
        return replace(registered, agent=None, broken="its URL leads back to this gateway", again=None)

    async def aclose(self) -> None:
        """Let go of connections to upstreams, and of agents that wait for answers."""
        looking = [*self._looking.values(), *self._describing]
        for each in looking:
            each.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        for each in self._agents.values():
            await _close(each.agent)


async def _close(agent: Agent | None) -> None:
    aclose = getattr(agent, "aclose", None)
    if aclose is not None:
        await aclose()


async def connect(
    settings: Settings,
    servers: Sequence[str] = (),
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    headers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    patience: float | None = None,
) -> Registry:
    """The agents of the settings, those of the servers, each under its own name, and `more` that are objects of this
    process. `headers` are sent to the server of each URL. Servers are asked all at once. `patience` =
    seconds after which one that has not answered is broken until it does; None = as long as a look takes."""
    if (cwd := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, cwd)
    detector = Detector()
    named = {name: asyncio.ensure_future(_front(name, each, detector)) for name, each in settings.agents.items()}
    listed = [asyncio.ensure_future(_front_all(url, headers.get(url, {}), detector)) for url in servers]
    imported = [look for name, look in named.items() if settings.agents[name].target is not None]
    try:
        if looks := [*named.values(), *listed]:
            await asyncio.wait(looks, timeout=patience)
        await asyncio.gather(*imported)
    except BaseException:
        for look in (*named.values(), *listed):
            look.cancel()
        await detector.aclose()
        raise
    late = _Late(detector)
    found: dict[str, RegisteredAgent] = {}
    for name, look in named.items():
        for each in late.take(look, partial(_wait_for, name, settings.agents[name])):
            found[each.info.name] = each
    found |= {name: RegisteredAgent(*wrap(target, name)) for name, target in more.items()}
    by_server = [
        late.take(look, partial(_wait_for_all, url, headers.get(url, {})))
        for url, look in zip(servers, listed, strict=True)
    ]
    found |= _apart((each for agents in by_server for each in agents), found)
    registry = Registry(found.values(), settings.default_agent)
    for name, each in found.items():
        if each.again is not None and (look := late.looks.get(id(each.again))) is not None:
            registry.follow(name, partial(late.finish, look))
    await late.close_when_done()
    registry.describe()
    return registry


class _Late:
    """Looks that go on after the start, and the detector that they share."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.looks: dict[int, asyncio.Future[Sequence[RegisteredAgent]]] = {}
        """Pending looks for agents, by the `id` of the `again` function of the stand-in that each will replace."""

    def take(
        self, look: "asyncio.Future[Sequence[RegisteredAgent]]", instead: Callable[[], RegisteredAgent]
    ) -> Sequence[RegisteredAgent]:
        """Return what a look has found, or what stands in its place while it has not ended."""
        if look.done():
            return look.result()
        made = instead()
        self.looks[id(made.again)] = look
        return [made]

    async def finish(self, look: "asyncio.Future[Sequence[RegisteredAgent]]") -> Sequence[RegisteredAgent]:
        try:
            return await look
        finally:
            self.looks = {again: each for again, each in self.looks.items() if each is not look}
            await self.close_when_done()

    async def close_when_done(self) -> None:
        if not self.looks:
            await self._detector.aclose()


def _apart(agents: Iterable[RegisteredAgent], taken: Container[str]) -> dict[str, RegisteredAgent]:
    """By name. Where the name is taken, it gets a number."""
    found: dict[str, RegisteredAgent] = {}
    for each in agents:
        name, number = each.info.name, 1
        while name in taken or name in found:
            number += 1
            name = f"{each.info.name[:58].rstrip('-_.')}-{number}"
        found[name] = replace(each, info=each.info.replace(name=name))
    return found


async def _look_again(
    bound: float, look: Callable[[Detector], Awaitable[Sequence[RegisteredAgent]]]
) -> Sequence[RegisteredAgent]:
    async with Detector(bound=bound) as detector:
        return await look(detector)


async def _front(name: str, settings: AgentSettings, detector: Detector) -> Sequence[RegisteredAgent]:
    try:
        if settings.target is not None:
            found = await _import_agent(name, settings)
        else:
            found = await _upstream(name, settings, detector)
    except _Broken as error:
        found = _stand_in(name, settings, error)
    return [_apply_settings(name, settings, found)]


def _wait_for(name: str, settings: AgentSettings) -> RegisteredAgent:
    """Return a stand-in for an agent whose server has not answered yet."""
    return _apply_settings(name, settings, _stand_in(name, settings, _Broken("its server has not answered yet")))


def _stand_in(name: str, settings: AgentSettings, error: "_Broken") -> RegisteredAgent:
    """A broken agent. If the settings give its protocol and its name, it can be called all the same."""
    if settings.target is not None:
        return RegisteredAgent(AgentInfo(name=name), None, str(error), instance=error.instance)
    again = partial(_look_again, settings.timeout.total or _LOOK, partial(_front, name, settings))
    upstream = next((each for each in UPSTREAMS if each.protocol == settings.protocol), None)
    info, agent = AgentInfo(name=name), None
    if error.may_work and upstream is not None and (assumed := _assume(name, settings)) is not None:
        info = assumed
        headers = {key: secret.get_secret_value() for key, secret in settings.headers.items()}
        try:
            agent = server_pool([_server(upstream, at, info, settings, headers) for at in settings.servers])
        except _Broken as wrong:
            error = wrong
    return RegisteredAgent(info, agent, str(error), instance=error.instance, again=again)


def _apply_settings(name: str, settings: AgentSettings, found: RegisteredAgent) -> RegisteredAgent:
    update = {"name": name, "continuable": settings.continuable or found.info.continuable}
    if settings.description is not None:
        update["description"] = settings.description
    return replace(
        found,
        info=found.info.replace(**update),
        concurrency=settings.concurrency,
        timeout=settings.timeout,
        idempotent=settings.idempotent,
        forward=frozenset(settings.forward) - {name.lower() for name in settings.headers},
        replay=settings.replay,
    )


async def _front_all(url: str, headers: Mapping[str, str], detector: Detector) -> Sequence[RegisteredAgent]:
    try:
        found = await _detect_agents(detector, url, headers, None)
    except _Broken as error:
        return [_stand_in_for_all(url, headers, error)]
    log.info("%s", found.because)
    plain = AgentSettings(url=url)
    return [
        RegisteredAgent(
            info,
            server_pool([_server(found.upstream, at, info, plain, headers)]),
            instance=found.instance,
            because=found.because,
            server=url,
            describe=_describe_later(found, at, info, headers) if len(found.agents) <= _DESCRIBED else None,
        )
        for info, at in found.agents
    ]


def _wait_for_all(url: str, headers: Mapping[str, str]) -> RegisteredAgent:
    return _stand_in_for_all(url, headers, _Broken("its server has not answered yet"))


def _stand_in_for_all(url: str, headers: Mapping[str, str], error: "_Broken") -> RegisteredAgent:
    info = AgentInfo(name=legal_name(urlsplit(url).netloc))
    again = partial(_look_again, _LOOK, partial(_front_all, url, headers))
    return RegisteredAgent(info, None, str(error), instance=error.instance, server=url, again=again)


class _Broken(Exception):
    """Why an agent cannot be had, in one line."""

    def __init__(self, reason: str, instance: str | None = None, *, may_work: bool = True) -> None:
        """`may_work` = its server was not seen to have no such agent."""
        super().__init__(" ".join(reason.split())[:500])
        self.instance = instance
        self.may_work = may_work


# In this process


async def _import_agent(name: str, settings: AgentSettings) -> RegisteredAgent:
    assert settings.target is not None
    place, _, path = settings.target.rpartition(":")
    target = module = _module(place)
    try:
        for attribute in path.split("."):
            target = getattr(target, attribute)
    except AttributeError:
        raise _Broken(f"{_describe_place(place)} has no {path}") from None
    try:
        if settings.graph is not None or _is_graph(target) or can_make_graphs(target):
            info, agent = await _graph(target, name, inspect.getdoc(module) or "")
        else:
            info, agent = wrap(target, name, replay=settings.replay)
    except TypeError as error:
        raise _Broken(f"{settings.target}: {error}") from None
    return RegisteredAgent(info, agent)


def _describe_place(place: str) -> str:
    return place if place.endswith(".py") else f"the module {place}"


def _module(place: str) -> Any:
    """A module by its name, or by its file: each file is run once. Raises _Broken."""
    try:
        return _of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as error:  # whatever a module does when it is run
        log.debug("importing %s failed", place, exc_info=True)
        raise _Broken(f"cannot import {place}: {describe_import_error(error)}") from None


def _of_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"babelgate_{uuid5(_NAMESPACE, str(path)).hex}_{path.stem}"
    if (known := sys.modules.get(name)) is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_graph(target: object) -> bool:
    """Of a class of LangGraph's, or of one that is made of one."""
    return any(base.__module__.partition(".")[0] == "langgraph" for base in type(target).__mro__)


async def _graph(target: object, name: str, about: str) -> tuple[AgentInfo, Agent]:
    try:
        from babelgate.gateway.agents.langgraph.agent import (  # they need LangGraph, which only graphs bring
            wrap_factory,
            wrap_graph,
        )
    except ImportError as error:
        raise TypeError(f"{error}: graphs need what babelgate[langgraph] installs") from error
    about = about.split("\n\n")[0]
    if callable(target) and not _is_graph(target):
        return await wrap_factory(target, name, about)
    return wrap_graph(target, name, about)


# Behind a URL


async def _upstream(name: str, settings: AgentSettings, detector: Detector) -> RegisteredAgent:
    headers = {key: secret.get_secret_value() for key, secret in settings.headers.items()}
    found: dict[str, tuple[AgentInfo, str, Detected]] = {}
    missing: _Broken | None = None
    for url in settings.servers:
        try:
            there = await _detect_named(name, detector, url, headers, settings)
            found[url] = (*_pick_agent(name, settings.agent, url, there), there)
        except _Broken as error:
            missing = error
    if not found:
        raise missing or _Broken("it has no URL")
    if missing is not None:  # one that is not there now may be there later
        log.warning("%s: %s", name, missing)
    info, first, detected = next(iter(found.values()))
    servers: list[Server] = []
    for url in settings.servers:
        mine, at, there = found.get(url, (info, url, detected))
        servers.append(_server(there.upstream, at, mine, settings, headers))
    log.info("%s: %s", name, detected.because)
    return RegisteredAgent(
        info,
        server_pool(servers),
        instance=detected.instance,
        because=detected.because,
        describe=_describe_later(detected, first, info, headers),
    )


def _describe_later(detected: Detected, url: str, info: AgentInfo, headers: Mapping[str, str]) -> Describe | None:
    fetch = detected.upstream.describe
    if fetch is None:
        return None

    async def describe() -> Mapping[str, JsonObject]:
        async with httpx.AsyncClient(timeout=_DESCRIBE) as http:
            return await fetch(url, http, headers, info)

    return describe


async def _detect_named(
    name: str, detector: Detector, url: str, headers: Mapping[str, str], settings: AgentSettings
) -> Detected:
    """Detect the agents of a server. One that lists none has the agent that the settings name with its protocol."""
    try:
        return await detector.detect(url, headers, settings.protocol)
    except Undetected as error:
        upstream = next((each for each in UPSTREAMS if each.protocol == settings.protocol), None)
        if not error.answers or (info := _assume(name, settings)) is None or upstream is None:
            raise _Broken(str(error), error.instance) from None
        because = f"{upstream.title} at {url}: {info.name}, which the server does not describe ({error})"
        return Detected(upstream, [(info, url)], because, error.instance)


def _assume(name: str, settings: AgentSettings) -> AgentInfo | None:
    """Return the agent as the settings name it, if they say enough to call it: its protocol, and its name where one
    server may have several agents."""
    upstream = next((each for each in UPSTREAMS if each.protocol == settings.protocol), None)
    if upstream is None or upstream.assume is None or not (settings.agent or upstream.alone):
        return None
    return upstream.assume(settings.agent or name)


async def _detect_agents(detector: Detector, url: str, headers: Mapping[str, str], protocol: str | None) -> Detected:
    try:
        return await detector.detect(url, headers, protocol)
    except Undetected as error:
        raise _Broken(str(error), error.instance) from None


def _server(
    upstream: Upstream, url: str, info: AgentInfo, settings: AgentSettings, headers: Mapping[str, str]
) -> Server:
    """Raises _Broken."""
    for option, value in settings.options.items():
        allowed = upstream.options.get(option)
        if allowed is None:
            there = ", ".join(upstream.options) or "none"
            raise _Broken(f"options: {upstream.title} has no {option}; it has {there}")
        if value not in allowed:
            raise _Broken(f"options.{option}: allowed are {', '.join(map(str, allowed))}")
    timeout = httpx.Timeout(connect=settings.timeout.connect, read=settings.timeout.read, write=60.0, pool=None)
    client = upstream.client(url, upstream.name_of(info), headers=headers, timeout=timeout, **settings.options)
    return Server(url, client, protocol=upstream.protocol)


def _pick_agent(name: str, agent: str | None, url: str, detected: Detected) -> tuple[AgentInfo, str]:
    """The agent that is asked for by name; else the only one; else the one with the name it is to have here. With the
    URL to call it at."""
    wanted, name_of = agent or name, detected.upstream.name_of
    for info, at in detected.agents:
        if wanted in (name_of(info), info.name):
            return info, at
    if len(detected.agents) == 1 and (agent is None or detected.upstream.alone):
        return detected.agents[0]
    names = ", ".join(name_of(info) for info, _ in detected.agents)
    if agent is not None:
        raise _Broken(f"{url} has no agent {agent}; it has {names}", may_work=False)
    raise _Broken(f"{url} has several agents, and none is called {name}: pick one with {url}#agent; it has {names}")
