"""Console API for the health of the gateway: queues, streams, connections, the database, nodes and faults."""

import asyncio
from typing import Any

from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.clock import format_time
from babelgate.gateway.console.gate import is_operator
from babelgate.gateway.console.parameters import Parameters
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.storage.disk import free_space
from babelgate.gateway.storage.nodes import list_nodes
from babelgate.gateway.storage.webhook_rows import count_webhooks


class HealthHandlers(Handlers):
    """HTTP handler that reports this process's health. In a cluster, each node reports its own."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub, port: GatewayPort) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._port = port

    async def get_health(self, request: AnyRequest) -> Response[Any]:
        """Return the health: all of it for an operator, else that of the agents that the caller can discover. Raises
        invalid for a query parameter."""
        Parameters(request)
        names = {info.name for info in self._guarded_hub.agents(caller(request).principal)}
        operates = is_operator(request)
        agents = [each for each in self._hub.registry.all() if operates or each.info.name in names]
        body: JsonObject = {
            "agents": [self._encode_agent(each, has_reason=operates) for each in agents],
            "queues": [self._encode_queue(each) for each in agents],
        }
        if operates:
            body |= await self._read_operation()
        return json_response(body)

    def _encode_agent(self, registered: RegisteredAgent, *, has_reason: bool) -> JsonObject:
        states = registered.agent.health.values() if isinstance(registered.agent, ServerPool) else ()
        status = "ok"
        if self._hub.switches.find(registered.info.name) is not None:
            status = "disabled"
        elif registered.broken is not None:
            status = "broken"
        elif any(state != "ok" for state in states):
            status = "failing"
        because = {"because": registered.broken} if has_reason and registered.broken is not None else {}
        return {"name": registered.info.name, "status": status, **because}

    def _encode_queue(self, registered: RegisteredAgent) -> JsonObject:
        queue = self._hub.engine.slots.queue_of(registered.info.name)
        return {
            "agent": registered.info.name,
            "limit": registered.concurrency,
            "used": queue.used,
            "waiting": queue.waiting,
            "oldest_seconds": None if queue.oldest is None else round(queue.oldest, 3),
        }

    async def _read_operation(self) -> JsonObject:
        """Return the values that only operators see: streams, connections, the database, webhooks, nodes and faults."""
        hub = self._hub
        why = await hub.ready()
        connections = self._port.count_connections()
        faults = sorted(hub.faults.all().items(), key=lambda item: -item[1].last_at)
        return {
            "streams": self._port.count_streams(),
            "connections": None if connections is None else {"used": connections[0], "limit": connections[1]},
            "database": {
                "kind": "sqlite" if self._port.settings().database.startswith("sqlite") else "postgresql",
                "ok": why is None,
                "why": why,
                "free_bytes": await asyncio.to_thread(free_space, hub.journal.folders),
            },
            **await self._read_rows(),
            "faults": [
                {"code": code, "agent": agent, "count": fault.count, "last_at": format_time(fault.last_at)}
                for (code, agent), fault in faults
            ],
            "uptime_seconds": round(hub.uptime, 3),
        }

    async def _read_rows(self) -> JsonObject:
        """Return the numbers of webhooks, and the nodes of the cluster. Both are null if the database cannot be
        read."""
        hub = self._hub
        try:
            due, failing = await hub.journal.query(count_webhooks)
            nodes = [] if hub.cluster is None else await hub.journal.query(list_nodes)
        except FaultError:
            return {"webhooks": None, "nodes": None}
        listed = [
            {"name": node.name, "seen_at": format_time(node.seen_at), "leads": node.is_leader, "runs": node.runs}
            for node in nodes
        ]
        return {"webhooks": {"due": due, "failing": failing}, "nodes": listed}
