"""Agents over the administration API: their settings, their kill switches, and probes of their servers."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.json import read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.admin.agent_specs import check_name, check_spec
from babelgate.gateway.admin.bodies import MAX_BODY, Disabling, read_body
from babelgate.gateway.agents.detection import Detector, Reach, Undetected
from babelgate.gateway.agents.server_access import ServerAccess
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.exchange import current_origin
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.settings.model import AgentSettings
from babelgate.gateway.storage import administration
from babelgate.gateway.storage.administration import DisabledAgent, StoredAgent

_MAX_REASON: Final = 500
"""Maximum length of the reason for which an agent is disabled, in characters. Chosen: it is part of every refusal."""


_ETAG: Final = re.compile(r'"[0-9]{1,18}"')


class AgentHandlers(Handlers):
    """HTTP handlers of the administration API for agents."""

    def __init__(self, hub: GatewayHub, port: GatewayPort, clock: Clock | None = None) -> None:
        self._hub = hub
        self._port = port
        self._clock = clock or Clock()

    async def list_agents(self) -> Response[Any]:
        """List all agents, with their states."""
        return Response({"agents": [self._encode(each.info.name) for each in self._hub.registry.all()]})

    async def get_agent(self, name: FromPath[str]) -> Response[Any]:
        """Return an agent. For an agent that this API created, the ETag is its revision."""
        stored = self._find_stored(name)
        if stored is None:
            return Response(self._encode(self._need(name)))
        return Response(self._encode(name) | _encode_spec(stored), headers={"etag": _etag(stored)})

    async def put_agent(self, request: AnyRequest, name: FromPath[str]) -> Response[Any]:
        """Create an agent, or replace its settings. Raises forbidden if `admin.agents` is off, conflict for an agent of
        the configuration or if `If-Match` or `If-None-Match` does not hold, and invalid for wrong settings."""
        settings = self._port.settings()
        self._check_own(name)
        check_name(name)
        body = await read_json(request, limit=MAX_BODY)
        if not isinstance(body, dict):
            raise FaultError(FaultCode.INVALID, "The body is an object with the settings of an agent, such as url.")
        spec = cast("JsonObject", body)
        await check_spec(spec, settings)
        stored = await self._hub.journal.write(
            administration.put_agent,
            name,
            spec,
            caller(request).principal.subject,
            current_origin(),
            expected=_expected_revisions(request),
        )
        await self._hub.administration.refresh()
        await self._port.refresh_agents()
        return Response(self._encode(name) | _encode_spec(stored), headers={"etag": _etag(stored)})

    async def delete_agent(self, request: AnyRequest, name: FromPath[str]) -> None:
        """Delete an agent. Its active runs may continue for the time `drain`. Raises forbidden if `admin.agents` is
        off, conflict for an agent of the configuration or if `If-Match` does not hold, and not_found."""
        self._check_own(name)
        expected = _expected_revisions(request)
        await self._hub.journal.write(administration.delete_agent, name, current_origin(), expected=expected)
        await self._hub.administration.refresh()
        await self._port.refresh_agents()

    def _check_own(self, name: str) -> None:
        """Check that the administration API may change an agent. Raises forbidden if agents cannot be changed at all,
        and conflict if the agent is from the configuration."""
        settings = self._port.settings()
        if not settings.admin.agents:
            raise FaultError(
                FaultCode.FORBIDDEN,
                "Agents cannot be changed over the administration API: set admin.agents: true and admin.agent_networks "
                "in the settings.",
            )
        if name in settings.agents and name not in self._port.added_agents():
            raise FaultError(
                FaultCode.CONFLICT, f"The configuration has the agent {name}: change it there, or use another name."
            )

    def _find_stored(self, name: str) -> StoredAgent | None:
        agents = self._hub.administration.current.agents
        return next((each for each in agents if each.name == name), None)

    async def disable(self, request: AnyRequest, name: FromPath[str]) -> Response[Any]:
        """Let an agent start no more runs, on all nodes. Raises invalid if the reason in the body is missing or too
        long, and not_found for an unknown agent."""
        body = await read_body(request, Disabling)
        reason = " ".join(body.reason.split())
        if not reason or len(reason) > _MAX_REASON or not reason.isprintable():
            raise FaultError(
                FaultCode.INVALID, f"reason: expected 1 to {_MAX_REASON} printable characters, for the agent's callers"
            )
        name = self._need(name)
        disabled = DisabledAgent(
            name=name,
            running=body.running,
            reason=reason,
            changed_at=self._clock.now(),
            changed_by=caller(request).principal.subject,
        )
        await self._hub.journal.write(administration.disable_agent, disabled, current_origin())
        await self._hub.administration.refresh()
        return Response(self._encode(name))

    async def enable(self, name: FromPath[str]) -> Response[Any]:
        """Let a disabled agent start runs again, the waiting ones first."""
        name = self._need(name)
        await self._hub.journal.write(administration.enable_agent, name, current_origin())
        await self._hub.administration.refresh()
        return Response(self._encode(name))

    async def probe(self, name: FromPath[str]) -> Response[Any]:
        """Ask the servers of an agent for their agents, and reconnect to a broken one. No run is started."""
        registered = await self._hub.registry.get_reachable(self._need(name))
        settings = self._port.settings().agents.get(registered.info.name)
        servers: list[dict[str, Any]] = []
        if settings is not None and settings.target is None:
            access = ServerAccess.of(registered.info.name, settings, self._hub.registry.cards)
            servers = await _probe_all(settings, access)
        is_ok = registered.broken is None and all(server["ok"] for server in servers)
        return Response({"ok": is_ok, **self._encode(registered.info.name), "servers": servers})

    def _need(self, name: str) -> str:
        """Return the name of an agent by its name or UUID, if it exists or is disabled. Raises not_found."""
        if self._hub.switches.find(name) is not None:
            return name
        return self._hub.registry.get(name).info.name

    def _encode(self, name: str) -> dict[str, Any]:
        """Return an agent as responses show it: name, status, and how it is disabled, if it is."""
        registered = {each.info.name: each for each in self._hub.registry.all()}.get(name)
        body: dict[str, Any] = {"name": name, "status": "unknown" if registered is None else "ok"}
        if registered is not None and registered.broken is not None:
            body |= {"status": "broken", "reason": registered.broken}
        disabled = self._hub.switches.find(name)
        if disabled is not None:
            body["disabled"] = _encode_switch(disabled)
        return body


def _etag(agent: StoredAgent) -> str:
    return f'"{agent.revision}"'


def _encode_spec(agent: StoredAgent) -> dict[str, Any]:
    return {"settings": agent.spec, "changed_by": agent.changed_by, "changed_at": format_time(agent.changed_at)}


def _expected_revisions(request: AnyRequest) -> Sequence[int] | None:
    """Return the revisions of an agent with which a request may change it, from `If-Match` and `If-None-Match`.

    0 means that the agent must not exist, and -1 that it must exist. None means that there is no condition. Raises
    invalid if the header is not a list of ETags.
    """
    if request.headers.get("if-none-match", "").strip() == "*":  # RFC 9110, 13.1.2
        return (0,)
    sent = request.headers.get("if-match")
    if sent is None:
        return None
    if sent.strip() == "*":
        return (-1,)
    tags = [tag.strip() for tag in sent.split(",")]
    if not all(_ETAG.fullmatch(tag) for tag in tags):
        raise FaultError(FaultCode.INVALID, 'If-Match: expected the ETag of an earlier response, such as "3"')
    return [int(tag.strip('"')) for tag in tags]


def _encode_switch(disabled: DisabledAgent) -> Mapping[str, Any]:
    fields = msgspec.structs.asdict(disabled)
    names = {"running": "running", "reason": "reason", "by": "changed_by"}
    return {member: fields[name] for member, name in names.items()} | {"at": format_time(disabled.changed_at)}


async def _probe_all(settings: AgentSettings, access: ServerAccess) -> list[dict[str, Any]]:
    headers, reach = settings.sent_headers, Reach.of(settings, access.discovery)
    servers: list[dict[str, Any]] = []
    async with Detector() as detector:
        for url in settings.servers:
            began = time.perf_counter()
            try:
                detail, is_ok = (
                    (await detector.detect(url, headers, settings.protocol, reach)).summary,
                    True,
                )
            except Undetected as error:
                detail, is_ok = str(error), False
            milliseconds = round((time.perf_counter() - began) * 1000, 1)
            servers.append({"url": url, "ok": is_ok, "detail": detail, "milliseconds": milliseconds})
    return servers
