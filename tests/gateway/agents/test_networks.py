"""Connections of agents from the administration API: only to addresses in `admin.agent_networks`."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, Request, Response, get, post

from babelgate.gateway.agents.networks import check_address, open_client
from tests.gateway.admin.administering import OPS, administered
from tests.serving import serving

NAME = "planner.example"
ALLOWED, FORBIDDEN = "127.0.0.1", "127.0.0.2"
ADMIN = {"agents": True, "agent_networks": [f"{ALLOWED}/32"]}
CLOSE = {"connection": "close"}
"""Headers of responses, so that each request needs a new connection."""


class Resolver:
    """The system's resolver, with one more name whose address can change."""

    def __init__(self) -> None:
        self.address = ALLOWED
        self._lookup = socket.getaddrinfo

    def getaddrinfo(self, host: Any, port: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return self._lookup(self.address if name == NAME else host, port, *args, **more)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    return resolver


@asynccontextmanager
async def servers(card: dict[str, Any] | None = None) -> AsyncGenerator[tuple[int, list[str]]]:
    """Serve an agent at the allowed address, and count the connections to the same port of the forbidden one."""
    connections: list[str] = []

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append("connected")
        writer.close()

    def respond(body: Any) -> Response[bytes]:
        return Response(json.dumps(body).encode(), media_type="application/json", headers=CLOSE)

    @get("/v1/models")
    async def models() -> Response[bytes]:
        return respond({"object": "list", "data": [{"id": "m", "object": "model"}]})

    @post("/v1/chat/completions", status_code=200)
    async def complete(request: Request[Any, Any, Any]) -> Response[bytes]:
        return respond({"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]})

    @get("/.well-known/agent-card.json")
    async def agent_card(request: Request[Any, Any, Any]) -> Response[bytes]:
        url = f"http://{FORBIDDEN}:{request.base_url.port}"
        return respond(
            {**(card or {}), "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC"}], "url": url}
        )

    @get("/moved")
    async def moved(request: Request[Any, Any, Any]) -> Response[bytes]:
        location = f"http://{FORBIDDEN}:{request.base_url.port}/"
        return Response(b"", status_code=307, headers={**CLOSE, "location": location})

    handlers = [models, complete, agent_card, moved]
    async with serving(Litestar(handlers, openapi_config=None, logging_config=None)) as url:
        port = httpx.URL(url).port
        assert port is not None
        async with await asyncio.start_server(note, FORBIDDEN, port):
            yield port, connections


async def test_a_rebound_name_is_refused_at_each_connection(
    tmp_path: Path, resolver: Resolver, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers() as (port, connections), administered(tmp_path, admin=ADMIN) as gateway:
        spec = {"url": f"http://{NAME}:{port}/v1", "protocol": "openai", "options": {"api": "chat"}}
        put = await gateway.http.put("/admin/agents/planner", json=spec, headers=OPS)
        assert put.json()["status"] == "ok", put.text
        body = {"assistant_id": "planner", "input": "hello"}
        answer = await gateway.http.post("/runs/wait", json=body, headers=OPS)
        assert answer.json()["messages"][-1]["content"] == "Hi"
        resolver.address = FORBIDDEN
        failed = await gateway.http.post("/runs/wait", json=body, headers=OPS)
        assert "Hi" not in failed.text
        assert FORBIDDEN not in failed.text, "callers see no addresses"
        job = {"kind": "check", "agents": ["planner"], "at": "server"}
        refused = await gateway.http.post("/console/api/v1/jobs", json=job, headers=OPS)
        assert refused.status_code == 400, "a job is another process, which would not check the address"
        assert "use at: gateway" in refused.json()["error"]["message"]
        probe = (await gateway.http.post("/admin/agents/planner/probe", headers=OPS)).json()
        assert not probe["ok"]
        assert f"the address {FORBIDDEN} is not in admin.agent_networks" in caplog.text
        assert connections == []


async def test_narrower_networks_of_a_reload_apply_to_agents(tmp_path: Path) -> None:
    async with servers() as (port, _), administered(tmp_path, admin=ADMIN) as gateway:
        spec = {"url": f"http://{ALLOWED}:{port}/v1", "protocol": "openai", "options": {"api": "chat"}}
        assert (await gateway.http.put("/admin/agents/planner", json=spec, headers=OPS)).json()["status"] == "ok"
        narrower = gateway.settings.admin.model_copy(update={"agent_networks": (ip_network("10.0.0.0/8"),)})
        await gateway.generations.apply(gateway.settings.model_copy(update={"admin": narrower}))
        agent = (await gateway.http.get("/admin/agents/planner", headers=OPS)).json()
        assert (agent["status"], "cannot be reached" in agent["reason"]) == ("broken", True)


async def test_other_hosts_that_a_server_names_are_refused(tmp_path: Path) -> None:
    card: dict[str, Any] = {
        "name": "x",
        "description": "x",
        "version": "1",
        "capabilities": {},
        "skills": [],
        "protocolVersion": "0.3",
    }
    modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
    async with servers({**card, **modes}) as (port, connections), administered(tmp_path, admin=ADMIN) as gateway:
        spec = {"url": f"http://{ALLOWED}:{port}", "protocol": "a2a"}
        await gateway.http.put("/admin/agents/planner", json=spec, headers=OPS)
        await gateway.http.post("/runs/wait", json={"assistant_id": "planner", "input": "hello"}, headers=OPS)
        async with open_client((ip_network(f"{ALLOWED}/32"),)) as http:
            http.follow_redirects = True
            with pytest.raises(httpx.ConnectError, match=r"not in admin\.agent_networks"):
                await http.get(f"http://{ALLOWED}:{port}/moved")
        assert connections == []


@pytest.mark.parametrize(
    ("address", "networks", "is_allowed"),
    [
        ("10.1.2.3", ["10.0.0.0/8"], True),
        ("::ffff:10.1.2.3", ["10.0.0.0/8"], True),
        ("::ffff:169.254.169.254", ["10.0.0.0/8", "::/0"], False),
        ("fe80::1%eth0", ["fe80::/10"], True),
        ("11.0.0.1", ["10.0.0.0/8"], False),
        ("10.1.2.3", [], False),
    ],
)
def test_an_address_must_be_in_a_network(address: str, networks: list[str], is_allowed: bool) -> None:
    parsed = tuple(map(ip_network, networks))
    if is_allowed:
        check_address(address, parsed)
        return
    with pytest.raises(PermissionError, match="which allows"):
        check_address(address, parsed)
