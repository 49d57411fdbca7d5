"""Console API for agents: their descriptions, the states of their servers, and how many runs they have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.console.gate import is_operator
from babelgate.gateway.console.parameters import Parameters, encode_page
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.storage.administration import DisabledAgent
from babelgate.gateway.storage.run_summaries import RunCount

_DAY: Final = 86_400_000_000
"""Length of a day, in microseconds."""
_GRAPHS: Final = "babelgate.gateway.agents.langgraph."
"""Prefix of the modules whose classes are agents that are graphs. They are recognized by name, so that LangGraph need
not be imported."""
_UNAVAILABLE: Final = "The agent cannot be called. The log of the gateway has the reason."

Checks = Callable[[str], Sequence[JsonObject]]
"""Function that returns the newest finished checks of an agent by its name, as the API shows them."""


@dataclass(frozen=True, slots=True)
class _Activity:
    """Numbers of runs of all agents in the last day, for one caller."""

    counts: Mapping[str, RunCount]
    is_partial: bool
    """True if there are too many runs to count them all."""
    is_operator: bool
    """True if the caller is an operator, who may see URLs and the reasons of failures."""


class AgentOverviewHandlers(Handlers):
    """HTTP handlers of the console for agents."""

    def __init__(
        self, hub: GatewayHub, guarded_hub: GuardedHub, checks: Checks = lambda _: (), clock: Clock | None = None
    ) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._checks = checks
        self._clock = clock or Clock()

    async def list_agents(self, request: AnyRequest) -> Response[Any]:
        """List the agents that the caller can discover. Below `/agent/{name}`, list only the agent of this name. Raises
        forbidden if the policy does not allow it, and invalid for a query parameter."""
        Parameters(request)
        who = caller(request)
        names = [info.name for info in self._guarded_hub.agents(who.principal)]
        if who.has_single_agent:
            names = [name for name in names if name == who.agent]
        activity = await self._read_activity(request)
        items = [self._encode(self._hub.registry.get(name), activity) for name in names]
        return json_response(encode_page(items, None))

    async def get_agent(self, request: AnyRequest, name: FromPath[str]) -> Response[Any]:
        """Return one agent. Raises forbidden if the policy does not allow it, and not_found for an unknown agent."""
        info = self._guarded_hub.agent(caller(request).principal, name)
        return json_response(self._encode(self._hub.registry.get(info.name), await self._read_activity(request)))

    async def _read_activity(self, request: AnyRequest) -> _Activity:
        """Count the runs of the last day by agent: those of the caller, or those of all owners for an operator."""
        since, operates = self._clock.now() - _DAY, is_operator(request)
        if operates:
            counts, is_partial = await self._hub.overview.count_runs(None, since)
        else:
            counts, is_partial = await self._guarded_hub.overview.count_runs(caller(request).principal, since)
        return _Activity(counts, is_partial, operates)

    def _encode(self, registered: RegisteredAgent, activity: _Activity) -> JsonObject:
        info, agent = registered.info, registered.agent
        queue, count = self._hub.engine.slots.queue_of(info.name), activity.counts.get(info.name, RunCount())
        servers = agent.list_servers() if isinstance(agent, ServerPool) else ()
        body: JsonObject = {
            "name": info.name,
            "description": info.description,
            "version": info.version,
            "kind": _kind_of(registered),
            "protocol": _protocol_of(registered),
            "skills": [
                {
                    "id": skill.id,
                    "name": skill.name,
                    "description": skill.description,
                    "tags": list(skill.tags),
                    "examples": list(skill.examples),
                }
                for skill in info.skills
            ],
            "schemas": {name: info.schemas.get(name) for name in ("input", "output", "config")},
            "modes": {"input": list(info.input_types), "output": list(info.output_types)},
            "slots": {
                "limit": registered.concurrency,
                "used": queue.used,
                "waiting": queue.waiting,
            },
            "servers": [
                {
                    **({"url": server.url} if activity.is_operator else {}),
                    "state": server.state,
                    **({"retry_in_seconds": round(server.retry_in, 3)} if server.retry_in else {}),
                }
                for server in servers
            ],
            "last24h": {"runs": count.runs, "failed": count.failed, "is_partial": activity.is_partial},
            "checks": list(self._checks(info.name)),
            "is_default": self._hub.registry.default == info.name,
        }
        if registered.broken is not None:
            body["broken"] = registered.broken if activity.is_operator else _UNAVAILABLE
        if activity.is_operator:
            body |= {"url": servers[0].url if servers else registered.server, "because": registered.detection}
        disabled = self._hub.switches.find(info.name)
        if disabled is not None:
            body["disabled"] = _encode_switch(disabled, has_name=activity.is_operator)
        return body


def _kind_of(registered: RegisteredAgent) -> str:
    """Return the kind of an agent: `server` behind a URL, `program` in child processes, or `graph` or `python` in this
    process."""
    agent, settings = registered.agent, registered.settings
    if isinstance(agent, ServerPool) or registered.detect is not None or registered.server is not None:
        return "server"
    if settings is not None and settings.is_program:
        return "program"
    if type(agent).__module__.startswith(_GRAPHS) or (settings is not None and settings.graph is not None):
        return "graph"
    return "python"


def _protocol_of(registered: RegisteredAgent) -> str | None:
    """Return the protocol names of an agent's servers, separated by commas. Return None for an agent in this process,
    and if the protocol is not known."""
    agent, settings = registered.agent, registered.settings
    if isinstance(agent, ServerPool) and agent.protocols:
        return ", ".join(agent.protocols)
    return None if settings is None else settings.protocol


def _encode_switch(disabled: DisabledAgent, *, has_name: bool) -> JsonObject:
    body = {"reason": disabled.reason, "running": disabled.running, "at": format_time(disabled.changed_at)}
    return {**body, "by": disabled.changed_by} if has_name else body
