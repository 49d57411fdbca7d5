"""Client for a judged ACP server. It serves several agents at one base URL, and requests name the agent in the body."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from babelgate.conformance.probe import Context, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.verdict import NO_TRIGGER, Failed, NotApplicable, NotObserved
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig
from babelgate.conformance.wire.http import Receives, StreamExchange, Wire

_ERRORS: Final[Mapping[int, str]] = {4: "Error", 5: "Error"}
_RUN: Final[Mapping[int, str]] = {200: "Run", 202: "Run", **_ERRORS}
_PATHS: Final = ("/agents", "/runs", "/ping", "/session", "/sessions")
"""First path segments below a server's base URL, by which the base is found in any URL of the server."""


class AcpTarget:
    """Client for an ACP server: one method for each operation, named after its path."""

    def __init__(self, wire: Wire, base: str, name: str = "") -> None:
        self.wire = wire
        self.base = base
        """Base URL of the server, to which `/runs` is added."""
        self.name = name
        """Name of the agent that is judged if a trigger names no other."""

    def url(self, *path: str) -> str:
        return "/".join((self.base, *(quote(each, safe="") for each in path)))

    async def agents(self, **page: Any) -> Exchange:
        query = f"?{urlencode(page)}" if page else ""
        return await self._get(f"{self.base}/agents{query}", "AgentsListResponse")

    async def agent(self, name: str) -> Exchange:
        return await self._get(self.url("agents", name), "AgentManifest")

    async def create(self, body: Any, *, is_valid: bool = True, **options: Any) -> Exchange:
        sends = "createRun.request" if is_valid else None
        return await self.wire.request("POST", self.url("runs"), sends=sends, receives=_RUN, body=body, **options)

    async def resume(self, run_id: str, body: Any, *, is_valid: bool = True, **options: Any) -> Exchange:
        sends = "resumeRun.request" if is_valid else None
        url = self.url("runs", run_id)
        return await self.wire.request("POST", url, sends=sends, receives=_RUN, body=body, **options)

    @asynccontextmanager
    async def stream_run(self, sends: str, body: Any, *path: str) -> AsyncGenerator[StreamExchange]:
        """Send a POST with the mode `stream` to a path, and yield the response. `sends` names the schema of the
        body."""
        async with self.wire.stream(
            "POST", self.url(*path), sends=sends, receives=_RUN, events="Event", body={**body, "mode": "stream"}
        ) as stream:
            yield stream

    async def run(self, run_id: str, **options: Any) -> Exchange:
        return await self._get(self.url("runs", run_id), "Run", **options)

    async def events(self, run_id: str, **options: Any) -> Exchange:
        return await self._get(self.url("runs", run_id, "events"), "RunEventsListResponse", **options)

    async def cancel(self, run_id: str, **options: Any) -> Exchange:
        url = self.url("runs", run_id, "cancel")
        return await self.wire.request("POST", url, sends=None, receives=_RUN, **options)

    async def session(self, session_id: str, path: str = "sessions", **options: Any) -> Exchange:
        return await self._get(self.url(path, session_id), "Session", **options)

    async def _get(self, url: str, receives: str, **options: Any) -> Exchange:
        answers: Receives = {200: receives, **_ERRORS}
        return await self.wire.request("GET", url, sends=None, receives=answers, **options)


Ctx = Context[AcpTarget]


async def open_server(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[AcpTarget]:
    """Find an ACP server by its base URL or any URL below it, as `ProbeSuite.open` requires. If `is_requested`, the
    user named the protocol, so the server is judged even if it lists no agents. Otherwise raises NotSpoken.

    A URL below `/agents/{name}` selects that agent.
    """
    base, name = _split_url(url)
    server = AcpTarget(wire, base)
    listed = await server.agents()
    found = as_list(dig(listed.json, "agents") if as_object(listed.json) else listed.json)
    names = [each for each in (dig(one, "name") for one in found) if isinstance(each, str)]
    if not is_requested and (listed.status != 200 or not as_object(listed.json) or not names):
        raise NotSpoken(f"GET /agents lists no agents ({listed})")
    server.name = name or (names[0] if names else "agent")
    capabilities = {"second-caller"} if options.other_headers else set[str]()
    if len(names) > 1:
        capabilities.add("several-agents")
    return Opened(server, server.base, f"{listed} lists {len(names)} agents", frozenset(capabilities))


def _split_url(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    steps = parts.path.rstrip("/").split("/")
    at = next((index for index, step in enumerate(steps) if f"/{step}" in _PATHS), len(steps))
    name = unquote(steps[at + 1]) if steps[at : at + 1] == ["agents"] and len(steps) > at + 1 else ""
    return urlunsplit((parts.scheme, parts.netloc, "/".join(steps[:at]), "", "")), name


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [{"content_type": "text/plain", "content": text}]}


def trigger_of(ctx: Ctx, behaviour: str) -> dict[str, Any]:
    """Return the body of a request that triggers a behaviour, without its `mode`.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    agent never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the agent never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    return {"agent_name": trigger.agent or ctx.target.name, "input": [message(trigger.text)]}


def run_id_of(exchange: Exchange) -> str:
    """Return the id of the run in a response. Raises Failed if the response has none."""
    run_id = dig(exchange.json, "run_id")
    if not isinstance(run_id, str):
        raise Failed("a run with a run_id", exchange.json if exchange.is_json else exchange.status, exchange)
    return run_id


def unknown_id() -> str:
    return str(uuid4())
