"""Agents over the administration API: their list, their kill switches, and probes of their servers."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.admin.bodies import AnyRequest, Disabling, format_time, read_body
from babelgate.gateway.agents.detection import Detector, Undetected
from babelgate.gateway.clock import Clock
from babelgate.gateway.exchange import current_origin
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import AgentSettings, Settings
from babelgate.gateway.storage import administration
from babelgate.gateway.storage.administration import DisabledAgent

_MAX_REASON: Final = 500
"""Maximum length of a reason, in characters. Chosen: it is part of every refusal."""


class AgentHandlers(Handlers):
    """Handlers of agents."""

    def __init__(self, hub: GatewayHub, settings: Callable[[], Settings], clock: Clock | None = None) -> None:
        self._hub = hub
        self._settings = settings
        self._clock = clock or Clock()

    async def list_agents(self) -> Response[Any]:
        """List all agents, with their states."""
        return Response({"agents": [self._encode(each.info.name) for each in self._hub.registry.all()]})

    async def disable(self, request: AnyRequest, name: FromPath[str]) -> Response[Any]:
        """Let an agent start no more runs, on all nodes. Raises invalid, not_found."""
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
        settings = self._settings().agents.get(registered.info.name)
        servers = [] if settings is None or settings.target is not None else await _probe_all(settings)
        is_ok = registered.broken is None and all(server["ok"] for server in servers)
        return Response({"ok": is_ok, **self._encode(registered.info.name), "servers": servers})

    def _need(self, name: str) -> str:
        """Return the name of an agent that exists or is disabled. Raises not_found."""
        if self._hub.switches.find(name) is not None:
            return name
        return self._hub.registry.get(name).info.name

    def _encode(self, name: str) -> dict[str, Any]:
        """Return an agent as responses show it."""
        registered = {each.info.name: each for each in self._hub.registry.all()}.get(name)
        body: dict[str, Any] = {"name": name, "status": "unknown" if registered is None else "ok"}
        if registered is not None and registered.broken is not None:
            body |= {"status": "broken", "reason": registered.broken}
        disabled = self._hub.switches.find(name)
        if disabled is not None:
            body["disabled"] = _encode_switch(disabled)
        return body


def _encode_switch(disabled: DisabledAgent) -> Mapping[str, Any]:
    fields = msgspec.structs.asdict(disabled)
    names = {"running": "running", "reason": "reason", "by": "changed_by"}
    return {member: fields[name] for member, name in names.items()} | {"at": format_time(disabled.changed_at)}


async def _probe_all(settings: AgentSettings) -> list[dict[str, Any]]:
    headers = {key: secret.get_secret_value() for key, secret in settings.headers.items()}
    servers: list[dict[str, Any]] = []
    async with Detector() as detector:
        for url in settings.servers:
            began = time.perf_counter()
            try:
                detail, is_ok = (await detector.detect(url, headers, settings.protocol)).summary, True
            except Undetected as error:
                detail, is_ok = str(error), False
            milliseconds = round((time.perf_counter() - began) * 1000, 1)
            servers.append({"url": url, "ok": is_ok, "detail": detail, "milliseconds": milliseconds})
    return servers
