"""Agent registry: imports the configured agents, or detects them on their servers, when the gateway starts.

An agent that is not available is listed as broken, with the reason in one line. The other agents serve. A broken agent
behind a URL is detected again when it is called, and on a readiness check. If the settings give its protocol and name,
it can be called meanwhile.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import httpx

from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.upstream import SelfDescribing, Upstream
from babelgate.canonical import Agent, AgentInfo, FaultCode, FaultError
from babelgate.gateway.agents.card_checks import CardChecks
from babelgate.gateway.agents.detection import ANYWHERE, Detected, Detector, Reach, Undetected
from babelgate.gateway.agents.failover import FailoverServer, ServerPool, server_pool
from babelgate.gateway.agents.importing import TargetError, import_agent
from babelgate.gateway.agents.networks import open_client
from babelgate.gateway.agents.processes.agent import ProcessAgent
from babelgate.gateway.agents.processes.graph import GraphProcess
from babelgate.gateway.agents.processes.process import Unstartable
from babelgate.gateway.agents.processes.programs import ProgramProcesses, Programs, ProgramSpec, rules_of
from babelgate.gateway.agents.processes.server import ManagedServer, ManagedServers
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.agents.server_access import ServerAccess
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.registered_agent import Describe, Detect, RegisteredAgent
from babelgate.gateway.settings.certificates import CertificateError, check_files
from babelgate.gateway.settings.model import AgentSettings, Settings

log = logging.getLogger("babelgate.registry")

_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""Namespace in which LangGraph Platform derives the assistant id of each graph. Clients compute these ids, too."""
_MIN_INTERVAL: Final = 5.0
"""Minimum time between two detections of a broken agent that no run needs, in seconds. Chosen."""
_DETECTION_TIMEOUT: Final = 30.0
"""Seconds that a call waits for a server to list its agents, if the agent has no `timeout.total`. Chosen."""
_DESCRIPTION_DELAYS: Final = (0.0, 5.0, 30.0, 120.0, 600.0)
"""Pause before each attempt to fetch the schemas of an agent that works, in seconds. Chosen."""
_MAX_DESCRIBED: Final = 50
"""Maximum number of agents of one server whose schemas are fetched. Chosen."""
_CONNECTION: Final = (
    "python",
    "graph",
    "process",
    "start_timeout",
    "memory",
    "command",
    "env",
    "cwd",
    "coding",
    "url",
    "urls",
    "protocol",
    "options",
    "agent",
    "headers",
    "auth",
    "tls",
    "replay",
    "networks",
    "card",
)
"""Settings of an agent whose change needs a new client. Changes of other settings are applied to the existing
client."""
_DESCRIPTION_TIMEOUT: Final = 60.0
"""Time limit of one attempt to fetch schemas, in seconds. Chosen."""


def agent_uuid(name: str) -> str:
    """Return the assistant id of an agent, as LangGraph Platform derives it from the name of a graph."""
    return str(uuid5(_NAMESPACE, name))


def unknown_agent(name: str) -> FaultError:
    """Return the error for an agent that does not exist, or that the caller cannot discover."""
    return FaultError(FaultCode.NOT_FOUND, f"There is no agent {name[:100]!r}")


class Registry:
    """Agents of the gateway, by name."""

    def __init__(
        self,
        agents: Iterable[RegisteredAgent],
        default: str | None = None,
        previous: "Registry | None" = None,
        cards: CardChecks | None = None,
        processes: ManagedServers | None = None,
    ) -> None:
        """Create a registry. `default` names the agent of calls without an agent's name; None means the first agent.
        `cards` verifies the cards of the agents' servers, and `processes` are the servers that the gateway has started.

        A registry that replaces a `previous` one takes over its aliases. It also takes over the agents that are not in
        `agents`, because committed runs of them may still start.
        """
        self._agents = {each.info.name: each for each in agents}
        self._names = {agent_uuid(name): name for name in self._agents}
        """Names of agents by alias: the UUID of the agent, or the name of a placeholder that the agent has replaced."""
        self.default = next(iter(self._agents), None) if default is None else default
        self._instance: str | None = None
        self._detections: dict[str, asyncio.Future[None]] = {}
        """Running detections of broken agents, by name."""
        self._detected_at: dict[str, float] = {}
        """Time at which the last detection of a broken agent ended, by name, on the monotonic clock."""
        self._describing: set[asyncio.Task[None]] = set()
        self._observer = NO_OBSERVER
        self.cards = cards or CardChecks()
        self.processes = processes or ManagedServers()
        self._removed: dict[str, RegisteredAgent] = {}
        """Agents that a reload has removed, by name. Their committed runs may still start."""
        if previous is not None:
            self._inherit(previous)

    def _inherit(self, previous: "Registry") -> None:
        self._instance, self._observer = previous._instance, previous._observer
        self._names |= {alias: name for alias, name in previous._names.items() if name in self._agents}
        self._detected_at = dict(previous._detected_at)
        earlier = {**previous._removed, **previous._agents}
        self._removed = {name: each for name, each in earlier.items() if name not in self._agents}
        self._agents = {name: self._reject_loop(each) for name, each in self._agents.items()}
        self._connect_observer(self.all())

    def forget_removed(self, agents: Iterable[Agent]) -> None:
        """Remove agents that are closed after a reload has removed them from the settings, so that no more runs of them
        start."""
        closed_ids = {id(agent) for agent in agents}
        self._removed = {name: each for name, each in self._removed.items() if id(each.agent) not in closed_ids}

    def report_to(self, observer: GatewayObserver) -> None:
        """Report failures of agents' servers to an observer from now on."""
        self._observer = observer
        self.cards.reports.report_to(observer)
        self._connect_observer(self.all())

    def _connect_observer(self, agents: Iterable[RegisteredAgent]) -> None:
        for each in agents:
            if isinstance(each.agent, ServerPool):
                each.agent.observer = self._observer

    def has_agent(self, name: str) -> bool:
        return name in self._agents

    def get(self, name: str) -> RegisteredAgent:
        """Return an agent by its name or UUID. Raises not_found."""
        registered = self._agents.get(name) or self._agents.get(self._names.get(name.lower(), ""))
        if registered is None:
            raise unknown_agent(name)
        return registered

    def get_for_run(self, name: str) -> RegisteredAgent:
        """Return the agent of a committed run by its name, even if a reload has removed the agent. Raises not_found."""
        return self._agents.get(name) or self._removed.get(name) or self.get(name)

    def all(self) -> Sequence[RegisteredAgent]:
        return tuple(self._agents.values())

    def active_agents(self) -> Sequence[Agent]:
        """Return the clients of all agents that can be called."""
        return [each.agent for each in self._agents.values() if each.agent is not None]

    def all_agents(self) -> Sequence[Agent]:
        """Return the clients of all agents that can be called, and of those that a reload has removed and whose runs
        may not have ended."""
        removed = [each.agent for each in self._removed.values() if each.agent is not None]
        return [*self.active_agents(), *removed]

    async def get_reachable(self, name: str) -> RegisteredAgent:
        """Return an agent by its name or UUID. An agent that cannot be called is detected on its server first.

        Concurrent calls wait for the same detection. A broken agent that can be called, because its settings suffice,
        is returned at once. Raises not_found.
        """
        registered = self.get(name)
        detection = self._start_detection(registered, now=registered.agent is None)
        if detection is None or registered.agent is not None:
            return registered
        await asyncio.wait((detection,), timeout=registered.timeout.total or _DETECTION_TIMEOUT)
        return self.get(registered.info.name)

    async def get_reachable_for_run(self, name: str) -> RegisteredAgent:
        """Return the agent of a committed run, even if a reload has removed it. An agent that cannot be called is
        detected on its server first. Raises not_found."""
        if name not in self._agents and name in self._removed:
            return self._removed[name]
        return await self.get_reachable(name)

    def detect_broken(self) -> None:
        """Start to detect all broken agents again, in the background."""
        for each in self.all():
            self._start_detection(each)

    def replace_when_detected(self, name: str, late: Detect) -> None:
        """Replace the broken agent `name` by the result of the detection `late`, when that ends."""
        self._detections[name] = asyncio.ensure_future(self._refresh_agent(name, late))

    def describe(self) -> None:
        """Start to fetch the schemas of agents that have none yet, in the background."""
        for each in self.all():
            self._describe(each)

    def _describe(self, registered: RegisteredAgent) -> None:
        if registered.describe is None or registered.info.schemas:
            return
        task = asyncio.ensure_future(self._keep_description(registered.info.name, registered.describe))
        self._describing.add(task)
        task.add_done_callback(self._describing.discard)

    async def _keep_description(self, name: str, describe: Describe) -> None:
        for pause in _DESCRIPTION_DELAYS:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(_DESCRIPTION_TIMEOUT):
                    described = await describe()
            except (FaultError, TimeoutError) as error:
                log.debug("description failed agent=%s error=%s", name, error)
                continue
            registered = self._agents.get(name)
            if registered is not None:
                self._agents[name] = _with_description(registered, described)
            return

    async def settle(self) -> None:
        """Wait until all running detections have ended."""
        await asyncio.gather(*self._detections.values(), return_exceptions=True)

    def _start_detection(self, registered: RegisteredAgent, *, now: bool = False) -> "asyncio.Future[None] | None":
        """Return the running detection of a broken agent, and start one if necessary.

        Return None if the agent is not broken, or if its last detection ended less than 5 seconds ago. `now` ignores
        the time of the last detection.
        """
        name, detect = registered.info.name, registered.detect
        if detect is None:
            return None
        last = self._detected_at.get(name)
        if name not in self._detections and (now or last is None or time.monotonic() - last >= _MIN_INTERVAL):
            self._detections[name] = asyncio.ensure_future(self._refresh_agent(name, detect))
        return self._detections.get(name)

    async def _refresh_agent(self, name: str, detect: Detect) -> None:
        try:
            detected = await detect()
        finally:
            del self._detections[name]
            self._detected_at[name] = time.monotonic()
        current = self._agents[name].agent
        if (
            current is not None and len(detected) == 1 and detected[0].agent is not None
        ):  # the stand-in was called meanwhile: its runs continue
            await close_agent(detected[0].agent)
            detected = [replace(detected[0], agent=current)]
        self._put(name, detected)

    def _put(self, name: str, detected: Sequence[RegisteredAgent]) -> None:
        """Replace the placeholder `name`, a server that could not be detected before, by the agents that were detected.

        If no detected agent has the placeholder's name, the name stays valid as an alias of the first one.
        """
        agents = list(self._agents.items())
        at = list(self._agents).index(name)
        rest = [*agents[:at], *agents[at + 1 :]]
        replacements = _apart(map(self._reject_loop, detected), dict(rest))
        self._agents = dict([*rest[:at], *replacements.items(), *rest[at:]])
        self._names |= {agent_uuid(each): each for each in replacements}
        if name not in replacements:
            self._names[name] = next(iter(replacements))
        self._connect_observer(replacements.values())
        for each in replacements.values():
            self._describe(each)

    def disown(self, instance: str) -> None:
        """Mark agents as broken if their server is this gateway, because a call would recurse without end. `instance`
        is the id of this gateway."""
        self._instance = instance
        for name, each in self._agents.items():
            self._agents[name] = self._reject_loop(each)

    def _reject_loop(self, registered: RegisteredAgent) -> RegisteredAgent:
        if registered.instance is None or registered.instance != self._instance:
            return registered
        return replace(registered, agent=None, broken="its URL leads back to this gateway", detect=None)

    async def aclose(self) -> None:
        """Close all connections to agents' servers, and the paused calls of agents in this process."""
        await self.stop_detections()
        await self.cards.aclose()
        for agent in self.all_agents():
            await close_agent(agent)
        await self.processes.aclose()

    async def close_others(self, other: "Registry") -> None:
        """Close the agents of this registry that another registry does not have."""
        await self.stop_detections()
        used_ids = {id(agent) for agent in other.all_agents()}
        for agent in self.active_agents():
            if id(agent) not in used_ids:
                await close_agent(agent)

    async def stop_detections(self) -> None:
        """Cancel the running detections, and the running fetches of schemas."""
        tasks = [*self._detections.values(), *self._describing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def close_agent(agent: Agent | None) -> None:
    """Close the connections of an agent, if it has any. Do nothing for None, which is an agent that could not be
    connected."""
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
    previous: Registry | None = None,
) -> Registry:
    """Return a registry of the agents in the settings, all agents of `servers`, and the objects in `more`.

    `more` maps names to Python objects. `headers` maps the URL of a server to the headers of requests to it. Servers
    are queried concurrently. A server that has not answered after `patience` seconds is listed as broken until it does;
    None waits for all servers.

    The registry replaces `previous`, if that is given. It takes over agents whose connections have the same settings,
    and all agents that are not from the settings.
    """
    if (cwd := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, cwd)
    detector = Detector()
    cards = CardChecks(settings.network.allow) if previous is None else previous.cards
    processes = ManagedServers() if previous is None else previous.processes
    await processes.update(settings.agents)
    access = {name: ServerAccess.of(name, each, cards) for name, each in settings.agents.items()}
    reused = _keep(previous, settings, access)
    programs: Programs = {}
    named = {
        name: asyncio.ensure_future(_front_started(processes.get(name), name, each, access[name], detector, programs))
        for name, each in settings.agents.items()
        if name not in reused
    }
    listed = [asyncio.ensure_future(_front_all(url, headers.get(url, {}), detector)) for url in servers]
    try:
        if looks := [*named.values(), *listed]:
            await asyncio.wait(looks, timeout=patience)
        await asyncio.gather(*(each for name, each in named.items() if not settings.agents[name].servers))
    except BaseException:
        for detection in (*named.values(), *listed):
            detection.cancel()
        await detector.aclose()
        raise
    # A detection of the previous registry may have ended meanwhile.
    reused = {name: each for name, each in _keep(previous, settings, access).items() if name not in named}
    late = _LateDetections(detector)
    agents_by_name: dict[str, RegisteredAgent] = {}
    for name, each in settings.agents.items():
        found = (
            [reused[name]] if name in reused else late.take(named[name], partial(_wait_for, name, each, access[name]))
        )
        agents_by_name |= {agent.info.name: agent for agent in found}
    agents_by_name |= {name: RegisteredAgent(*wrap(target, name)) for name, target in more.items()}
    by_server = [
        late.take(detection, partial(_wait_for_all, url, headers.get(url, {})))
        for url, detection in zip(servers, listed, strict=True)
    ]
    agents_by_name |= _apart((each for agents in by_server for each in agents), agents_by_name)
    unconfigured = () if previous is None else [each for each in previous.all() if each.settings is None]
    agents_by_name |= _apart(unconfigured, agents_by_name)
    registry = Registry(agents_by_name.values(), settings.default_agent, previous, cards, processes)
    for name, each in agents_by_name.items():
        if each.detect is not None and (detection := late.running.get(id(each.detect))) is not None:
            registry.replace_when_detected(name, partial(late.finish, detection))
    await late.close_when_done()
    registry.describe()
    return registry


def _keep(
    previous: Registry | None, settings: Settings, access: Mapping[str, ServerAccess]
) -> dict[str, RegisteredAgent]:
    """Return the agents of the settings whose connections in the `previous` registry can stay, by name, with their new
    settings. `access` is the access to the servers of each agent, by name. At the start, `previous` is None, and the
    result is empty.

    An agent in this process that could not be imported is not among them: it is imported again.
    """
    reused: dict[str, RegisteredAgent] = {}
    for old in () if previous is None else previous.all():
        name, before = old.info.name, old.settings
        after = settings.agents.get(name)
        if before is None or after is None or _connection_of(before) != _connection_of(after):
            continue
        if old.broken is not None and not before.servers:
            continue
        info = old.info if old.described is None else old.described.replace(schemas=old.info.schemas)
        detect = None if old.detect is None else _detect_again(name, after, access[name])
        reused[name] = _apply_settings(name, after, replace(old, info=info, detect=detect))
    return reused


def _connection_of(settings: AgentSettings) -> Mapping[str, object]:
    """Return the settings of an agent from which its client is built."""
    values = {name: getattr(settings, name) for name in _CONNECTION}
    return {**values, "timeout": (settings.timeout.connect, settings.timeout.read)}


class _LateDetections:
    """Detections that continue after the startup, and the detector that they share until the last of them has ended."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.running: dict[int, asyncio.Future[Sequence[RegisteredAgent]]] = {}
        """Running detections, by the `id` of the `detect` function of the placeholder that each will replace."""

    def take(
        self, detection: "asyncio.Future[Sequence[RegisteredAgent]]", instead: Callable[[], RegisteredAgent]
    ) -> Sequence[RegisteredAgent]:
        """Return the result of a detection. If it is still running, return a placeholder, which `instead` creates."""
        if detection.done():
            return detection.result()
        stand_in = instead()
        self.running[id(stand_in.detect)] = detection
        return [stand_in]

    async def finish(self, detection: "asyncio.Future[Sequence[RegisteredAgent]]") -> Sequence[RegisteredAgent]:
        try:
            return await detection
        finally:
            self.running = {key: each for key, each in self.running.items() if each is not detection}
            await self.close_when_done()

    async def close_when_done(self) -> None:
        if not self.running:
            await self._detector.aclose()


def _apart(agents: Iterable[RegisteredAgent], used_names: Container[str]) -> dict[str, RegisteredAgent]:
    """Return the agents by unique names. An agent whose name is taken gets a number as suffix, such as `weather-2`."""
    by_name: dict[str, RegisteredAgent] = {}
    for each in agents:
        name, number = each.info.name, 1
        while name in used_names or name in by_name:
            number += 1
            name = f"{each.info.name[:58].rstrip('-_.')}-{number}"
        by_name[name] = replace(each, info=each.info.replace(name=name))
    return by_name


async def _with_new_detector(
    bound: float, detect: Callable[[Detector], Awaitable[Sequence[RegisteredAgent]]]
) -> Sequence[RegisteredAgent]:
    async with Detector(bound=bound) as detector:
        return await detect(detector)


async def _front(
    name: str, settings: AgentSettings, access: ServerAccess, detector: Detector, programs: Programs | None = None
) -> Sequence[RegisteredAgent]:
    try:
        if settings.target is not None:
            registered = await _import_agent(name, settings)
        elif settings.is_program:
            registered = _program(name, settings, {} if programs is None else programs)
        else:
            registered = await _upstream(name, settings, access, detector)
    except _Broken as error:
        registered = _stand_in(name, settings, access, error)
    return [_apply_settings(name, settings, registered)]


async def _front_started(
    server: ManagedServer | None,
    name: str,
    settings: AgentSettings,
    access: ServerAccess,
    detector: Detector,
    programs: Programs,
) -> Sequence[RegisteredAgent]:
    """Detect an agent. If the gateway starts the agent's server, wait first until the server has started."""
    if server is not None:
        await server.until_usable()
    return await _front(name, settings, access, detector, programs)


def _wait_for(name: str, settings: AgentSettings, access: ServerAccess) -> RegisteredAgent:
    """Return a placeholder for an agent whose server has not answered yet."""
    return _apply_settings(
        name, settings, _stand_in(name, settings, access, _Broken("its server has not answered yet"))
    )


def _stand_in(name: str, settings: AgentSettings, access: ServerAccess, error: "_Broken") -> RegisteredAgent:
    """Return a broken agent. It can be called if the settings give its protocol and its name."""
    if not settings.servers:
        return RegisteredAgent(AgentInfo(name=name), None, str(error), instance=error.instance)
    detect = _detect_again(name, settings, access)
    upstream = next((each for each in UPSTREAMS if each.protocol == settings.protocol), None)
    info, agent = AgentInfo(name=name), None
    if error.may_work and upstream is not None and (assumed := _assume(name, settings)) is not None:
        info = assumed
        headers = settings.sent_headers
        try:
            servers = [_server(upstream, at, info, settings, headers, access) for at in settings.servers]
            agent = server_pool(servers)
        except _Broken as wrong:
            error = wrong
    return RegisteredAgent(info, agent, str(error), instance=error.instance, detect=detect)


def _detect_again(name: str, settings: AgentSettings, access: ServerAccess) -> Detect:
    bound = settings.timeout.total or _DETECTION_TIMEOUT
    return partial(_with_new_detector, bound, partial(_front, name, settings, access))


def _with_description(registered: RegisteredAgent, described: AgentInfo) -> RegisteredAgent:
    """Return the agent with the description that its server has given later."""
    name = registered.info.name
    if registered.settings is None:
        return replace(registered, info=described.replace(name=name))
    return _apply_settings(name, registered.settings, replace(registered, info=described))


def _apply_settings(name: str, settings: AgentSettings, registered: RegisteredAgent) -> RegisteredAgent:
    update = {
        "name": name,
        "continuable": settings.continuable or registered.info.continuable,
        "ai_sdk": settings.ai_sdk or registered.info.ai_sdk,
    }
    if settings.description is not None:
        update["description"] = settings.description
    return replace(
        registered,
        info=registered.info.replace(**update),
        concurrency=settings.concurrency,
        timeout=settings.timeout,
        idempotent=settings.idempotent,
        forward=settings.forwarded_names - {name.lower() for name in settings.sent_headers},
        replay=settings.replay,
        settings=settings,
        described=registered.info,
    )


async def _front_all(url: str, headers: Mapping[str, str], detector: Detector) -> Sequence[RegisteredAgent]:
    try:
        detected = await _detect_agents(detector, url, headers, None)
    except _Broken as error:
        return [_stand_in_for_all(url, headers, error)]
    log.info("%s", detected.summary)
    plain = AgentSettings(url=url)
    return [
        RegisteredAgent(
            info,
            server_pool([_server(detected.upstream, at, info, plain, headers, ServerAccess())]),
            instance=detected.instance,
            detection=detected.summary,
            server=url,
            describe=_describe_later(detected, at, info, headers) if len(detected.agents) <= _MAX_DESCRIBED else None,
        )
        for info, at in detected.agents
    ]


def _wait_for_all(url: str, headers: Mapping[str, str]) -> RegisteredAgent:
    return _stand_in_for_all(url, headers, _Broken("its server has not answered yet"))


def _stand_in_for_all(url: str, headers: Mapping[str, str], error: "_Broken") -> RegisteredAgent:
    info = AgentInfo(name=legal_name(urlsplit(url).netloc))
    detect = partial(_with_new_detector, _DETECTION_TIMEOUT, partial(_front_all, url, headers))
    return RegisteredAgent(info, None, str(error), instance=error.instance, server=url, detect=detect)


class _Broken(Exception):
    """Error that an agent is not available. The message is the reason, in one line."""

    def __init__(self, reason: str, instance: str | None = None, *, may_work: bool = True) -> None:
        """Create the exception.

        `instance` is the id of the Babelgate that the server is, if it is one. `may_work` is false if its server is
        known not to have the agent.
        """
        super().__init__(" ".join(reason.split())[:500])
        self.instance = instance
        self.may_work = may_work


# In this process


async def _import_agent(name: str, settings: AgentSettings) -> RegisteredAgent:
    assert settings.target is not None
    if settings.process:
        return await _start_agent(name, settings, settings.target)
    is_graph = settings.graph is not None
    try:
        return RegisteredAgent(*await import_agent(settings.target, name, is_graph=is_graph, replay=settings.replay))
    except TargetError as error:
        raise _Broken(str(error)) from None


async def _start_agent(name: str, settings: AgentSettings, target: str) -> RegisteredAgent:
    """Return an agent in Python, or a graph, that runs in a separate process."""
    process = ProcessAgent(
        target,
        name,
        is_graph=settings.graph is not None,
        replay=settings.replay,
        patience=settings.start_timeout,
        memory=settings.memory,
    )
    try:
        info = await process.open()
    except Unstartable as error:
        raise _Broken(str(error)) from None
    return RegisteredAgent(info, GraphProcess(process) if process.is_graph else process)


def _program(name: str, settings: AgentSettings, programs: Programs) -> RegisteredAgent:
    """Return an agent whose program the gateway starts with its first run. `programs` has the starters of the agents
    before it: agents with the same command share one, if their protocol has several agents in a program."""
    spec = ProgramSpec.of(settings)
    if (problem := spec.find_problem()) is not None:
        raise _Broken(problem)
    upstream = next(each for each in UPSTREAMS if each.protocol == settings.protocol)
    if upstream.program is None or upstream.assume is None:
        raise _Broken(f"protocol: agents of {upstream.title} are not started as programs")
    _check_options(upstream, settings)
    host = ProgramProcesses(name, spec) if upstream.alone else programs.setdefault(spec, ProgramProcesses(name, spec))
    agent = upstream.program(name, host, rules_of(settings))
    describe = agent.describe if isinstance(agent, SelfDescribing) else None
    return RegisteredAgent(upstream.assume(settings.agent or name), agent, describe=describe)


# Behind a URL


async def _upstream(name: str, settings: AgentSettings, access: ServerAccess, detector: Detector) -> RegisteredAgent:
    if settings.tls is not None:
        try:
            check_files(settings.tls)
        except CertificateError as error:
            raise _Broken(f"tls.{error.key}: {error}") from None
    headers, reach = settings.sent_headers, Reach.of(settings, access.discovery)
    by_url: dict[str, tuple[AgentInfo, str, Detected]] = {}
    missing: _Broken | None = None
    servers_to_call = list(settings.servers)
    for url in settings.servers:
        try:
            server = await _detect_named(name, detector, url, headers, settings, reach, access)
            by_url[url] = (*_pick_agent(name, settings.agent, url, server), server)
        except _Broken as error:
            missing = error
            if access.is_card_required and not error.may_work:
                servers_to_call.remove(url)  # its card is refused
    if not by_url:
        raise missing or _Broken("it has no URL")
    if missing is not None:  # a server without the agent may have it later
        log.warning("server of an agent not usable agent=%s reason=%s", name, missing)
    info, first, detected = next(iter(by_url.values()))
    servers: list[FailoverServer] = []
    for url in servers_to_call:
        server_info, at, server = by_url.get(url, (info, url, detected))
        servers.append(_server(server.upstream, at, server_info, settings, headers, access))
    log.info("protocol detected agent=%s reason=%s", name, detected.summary)
    return RegisteredAgent(
        info,
        server_pool(servers),
        instance=detected.instance,
        detection=detected.summary,
        describe=_describe_later(detected, first, info, headers, reach),
    )


def _describe_later(
    detected: Detected, url: str, info: AgentInfo, headers: Mapping[str, str], reach: Reach = ANYWHERE
) -> Describe | None:
    fetch = detected.upstream.describe
    if fetch is None:
        return None

    async def describe() -> AgentInfo:
        async with open_client(reach.networks, _DESCRIPTION_TIMEOUT, tls=reach.tls, make=reach.make) as http:
            return info.replace(schemas=await fetch(url, http, headers, info))

    return describe


async def _detect_named(
    name: str,
    detector: Detector,
    url: str,
    headers: Mapping[str, str],
    settings: AgentSettings,
    reach: Reach,
    access: ServerAccess,
) -> Detected:
    """Detect the agents of a server. If it lists none, assume the agent that the settings name with its protocol.

    Raises _Broken if the detection fails and nothing can be assumed.
    """
    try:
        return await detector.detect(url, headers, settings.protocol, reach, access.trust)
    except Undetected as error:
        if error.answers and access.is_card_required:  # without a verified one, nothing is assumed
            raise _Broken(str(error), error.instance, may_work=False) from None
        upstream = next((each for each in UPSTREAMS if each.protocol == settings.protocol), None)
        if not error.answers or (info := _assume(name, settings)) is None or upstream is None:
            raise _Broken(str(error), error.instance) from None
        because = f"{upstream.title} at {url}: {info.name}, which the server does not describe ({error})"
        return Detected(upstream, [(info, url)], because, error.instance)


def _assume(name: str, settings: AgentSettings) -> AgentInfo | None:
    """Return a description of the agent without asking its server, or None if the settings do not suffice.

    The settings must give the protocol, and the agent's name if a server of this protocol can have several agents.
    """
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
    upstream: Upstream,
    url: str,
    info: AgentInfo,
    settings: AgentSettings,
    headers: Mapping[str, str],
    access: ServerAccess,
) -> FailoverServer:
    """Return a server of an agent. Raises _Broken if the settings have invalid options."""
    _check_options(upstream, settings)
    timeout = httpx.Timeout(connect=settings.timeout.connect, read=settings.timeout.read, write=60.0, pool=None)
    reach = Reach.of(settings, access.calls)
    http = None if reach == ANYWHERE else open_client(reach.networks, tls=reach.tls, make=access.calls)
    connection: dict[str, Any] = {"headers": headers, "timeout": timeout} | ({} if http is None else {"http": http})
    connection |= {} if access.trust is None else {"trust": access.trust}
    client = upstream.client(url, upstream.name_of(info), **connection, **settings.options)
    return FailoverServer(url, client, protocol=upstream.protocol, http=http, tls=reach.tls)


def _check_options(upstream: Upstream, settings: AgentSettings) -> None:
    """Check the options of an agent. Raises _Broken if its protocol does not have them."""
    for option, value in settings.options.items():
        allowed = upstream.options.get(option)
        if allowed is None:
            names = ", ".join(upstream.options) or "none"
            raise _Broken(f"options: {upstream.title} has no {option}; it has {names}")
        if value not in allowed:
            raise _Broken(f"options.{option}: allowed are {', '.join(map(str, allowed))}")


def _pick_agent(name: str, agent: str | None, url: str, detected: Detected) -> tuple[AgentInfo, str]:
    """Return the agent of a server that the settings mean, and its URL.

    `agent` is the configured name of the agent on the server; without it, `name` is compared. If no agent has the name,
    the only agent of the server is returned. Raises _Broken if no agent matches.
    """
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
