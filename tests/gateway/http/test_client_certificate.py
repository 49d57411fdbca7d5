"""Tests of client certificates: names, modes, precedence of keys, rules, WebSockets, browsers and changed CAs."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from babelgate.canonical import Principal
from babelgate.gateway.http.client_certificate import CertificateGroups, name_of
from babelgate.gateway.http.connection import protocol_options
from babelgate.gateway.http.tls import ServerTls
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.tls import TlsSettings
from tests.authority import Authority, Pair, serving_options
from tests.opened import Opened, opened
from tests.serving import serving

KEY = "bob-0123456789abcdef"
SPIFFE = "spiffe://example.org/agent/planner"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@dataclass(frozen=True, slots=True)
class Secure:
    url: str
    authority: Authority
    gateway: Opened

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.path)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def client(self, pair: Pair | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, verify=self.context(pair), timeout=30)


@asynccontextmanager
async def secure(
    folder: Path, authority: Authority, mode: str, groups: Mapping[str, list[str]] = {}, **settings: Any
) -> AsyncGenerator[Secure]:
    """Serve a gateway in this process with TLS and client certificates of the authority, whose callers have groups."""
    server = authority.issue("server", "127.0.0.1")
    tls = {**server._asdict(), "client_ca": authority.path, "client": mode, "client_groups": groups}
    async with opened(folder, tls=tls, **settings) as gateway:
        assert gateway.settings.tls is not None
        context = ServerTls(gateway.settings.tls).context
        options = protocol_options(gateway.settings)
        async with serving(gateway.app, **serving_options(context), **options) as url:
            yield Secure(url.replace("http:", "https:"), authority, gateway)
            gateway.hub.close_readers()


@pytest.mark.parametrize(
    ("names", "subject", "expected"),
    [
        ([("DNS", "a.example"), ("URI", SPIFFE)], "cn", SPIFFE),
        ([("DNS", "a.example"), ("URI", "https://x.example/1"), ("URI", "urn:2")], "cn", "https://x.example/1"),
        ([("URI", SPIFFE), ("URI", "https://x.example/1")], "cn", ""),  # X509-SVID: exactly one URI
        ([("email", "a@example.com"), ("DNS", "a.example"), ("DNS", "b.example")], "cn", "a.example"),
        ([("email", "a@example.com"), ("IP Address", "10.0.0.1")], "cn", "a@example.com"),
        ([("IP Address", "10.0.0.1")], "cn", "cn"),
        ([], "cn", "cn"),
        ([], "", ""),
        ([("DNS", "a\x00.example")], "cn", ""),
        ([("DNS", "a" * 124)], "cn", ""),
    ],
)
def test_the_name_of_a_caller_follows_an_order(names: list[tuple[str, str]], subject: str, expected: str) -> None:
    described = {"subject": ((("commonName", subject),),) if subject else (), "subjectAltName": tuple(names)}
    assert name_of(described) == expected


async def test_each_mode_accepts_its_callers(tmp_path: Path, authority: Authority) -> None:
    """Compare the statuses by mode and caller. None means that the connection is closed."""
    stranger = Authority(tmp_path, "stranger").issue("eve", "eve.example.com")
    callers = {"nobody": None, "alice": authority.issue("alice", "alice.example.com"), "eve": stranger}
    expired = authority.issue("late", "late.example.com", days=-1)
    statuses: dict[str, list[int | None]] = {}
    for mode in ("optional", "required"):
        (tmp_path / mode).mkdir()
        async with secure(tmp_path / mode, authority, mode) as gateway:
            for caller in (*callers.values(), expired):
                async with gateway.client(caller) as http:
                    try:
                        status = (await http.get("/acp/agents")).status_code
                    except httpx.TransportError:
                        status = None
                    statuses.setdefault(mode, []).append(status)
            if mode == "optional":
                async with gateway.client() as http:
                    response = await http.get("/acp/agents")
                    assert (await http.get("/healthz")).status_code == 200
                assert response.json()["message"].startswith("A client certificate is needed")
    assert statuses == {"optional": [401, 200, None, None], "required": [None, 200, None, None]}


async def owner_of(http: httpx.AsyncClient, **headers: str) -> str:
    response = await http.get("/console/api/v1/me", headers=headers)
    return response.json()["owner"] if response.status_code == 200 else response.json()["error"]["message"]


async def test_a_key_wins_over_the_certificate(tmp_path: Path, authority: Authority) -> None:
    alice = authority.issue("alice", "alice.example.com")
    async with secure(tmp_path, authority, "optional", keys={"bob": KEY}) as gateway, gateway.client(alice) as http:
        assert await owner_of(http) == "mtls:alice.example.com"
        assert await owner_of(http, **{"X-Api-Key": KEY}) == "bob"
        assert await owner_of(http, Authorization=f"Bearer {KEY}") == "bob"
        assert await owner_of(http, Authorization="Basic eDp5") == "mtls:alice.example.com"
        words = await owner_of(http, **{"X-Api-Key": "wrong"})
        assert words.startswith("An API key is needed") and words.endswith("or use a client certificate.")


async def test_rules_apply_to_the_name_of_the_certificate(tmp_path: Path, authority: Authority) -> None:
    planner = authority.issue_for_uris("planner", SPIFFE)
    rules = [{"who": f"user:mtls:{SPIFFE}", "agents": ["echo"], "allow": ["discover", "run", "read"]}]
    body = {"input": [{"role": "user", "parts": [{"content": "Hi"}]}]}
    async with secure(tmp_path, authority, "optional", access=rules) as gateway:
        async with gateway.client(planner) as http:
            agents = (await http.get("/acp/agents")).json()["agents"]
            assert [each["name"] for each in agents] == ["echo"]
            assert (await http.post("/acp/runs", json={**body, "agent_name": "echo"})).status_code == 200
        async with gateway.client(authority.issue("bob", "bob.example.com")) as http:
            assert (await http.get("/acp/agents")).json()["agents"] == []


@pytest.mark.parametrize(
    ("names", "is_member"),
    [
        ([SPIFFE], True),
        (["spiffe://example.org/*"], True),
        (["*/planner"], True),
        (["spiffe://example.org/agent"], False),
        (["spiffe://example-org/*"], False),
        (["spiffe://example.org/[a]*"], False),
        ([], False),
    ],
)
def test_a_group_lists_the_names_of_certificates(tmp_path: Path, names: list[str], is_member: bool) -> None:
    tls = TlsSettings(
        cert=tmp_path, key=tmp_path, client_ca=tmp_path, client="optional", client_groups={"a": tuple(names)}
    )
    principal = Principal(subject=f"user:mtls:{SPIFFE}", owner=f"mtls:{SPIFFE}")
    assert CertificateGroups(tls).add_to(principal).groups == (frozenset({"a"}) if is_member else frozenset())


async def test_rules_apply_to_groups_of_certificates(tmp_path: Path, authority: Authority) -> None:
    planner, bob = authority.issue_for_uris("planner", SPIFFE), authority.issue("bob", "bob.example.com")
    rules = [{"who": "group:agents", "allow": ["discover", "run", "read"]}]
    groups = {"agents": ["spiffe://example.org/agent/*"]}
    async with (
        secure(tmp_path, authority, "optional", access=rules, groups=groups) as gateway,
        gateway.client(planner) as http,
        gateway.client(bob) as other,
    ):
        assert (await http.get("/acp/agents")).json()["agents"] != []
        assert (await other.get("/acp/agents")).json()["agents"] == []
        settings = gateway.gateway.settings
        values = settings.model_dump()
        values["tls"]["client_groups"] = {"agents": ["bob.example.com"]}
        changed = Settings.model_validate({**values, "agents": settings.agents})
        report = await gateway.gateway.generations.apply(changed)
        assert report.applied == ("tls.client_groups",)
        assert (await http.get("/acp/agents")).json()["agents"] == []
        assert (await other.get("/acp/agents")).json()["agents"] != []


async def test_websockets_have_the_certificate_too(tmp_path: Path, authority: Authority) -> None:
    alice = authority.issue("alice", "alice.example.com")
    async with secure(tmp_path, authority, "optional") as gateway:
        url = gateway.url.replace("https:", "wss:") + "/v1/responses"
        async with connect(url, ssl=gateway.context(alice), proxy=None) as socket:
            await socket.send('{"type": "response.create", "model": "echo", "input": "Hi"}')
            assert '"response.created"' in str(await socket.recv())
        with pytest.raises(InvalidStatus) as raised:
            await connect(url, ssl=gateway.context(), proxy=None)
        assert raised.value.response.status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://attacker.example"}, 401),
        ({"Origin": "https://attacker.example", "X-Api-Key": KEY}, 200),
        ({"Origin": "SELF"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({}, 200),
    ],
)
async def test_pages_cannot_use_the_certificate_of_a_browser(
    tmp_path: Path, authority: Authority, headers: Mapping[str, str], status: int
) -> None:
    """Send what a browser sends: it presents its certificate also for a page of another origin."""
    alice = authority.issue("alice", "alice.example.com")
    async with secure(tmp_path, authority, "optional", keys={"bob": KEY}) as gateway, gateway.client(alice) as http:
        sent = {name: value.replace("SELF", gateway.url) for name, value in headers.items()}
        assert (await http.get("/acp/agents", headers=sent)).status_code == status


async def test_another_ca_revokes_certificates_on_open_connections(tmp_path: Path, authority: Authority) -> None:
    alice = authority.issue("alice", "alice.example.com")
    async with secure(tmp_path, authority, "optional") as gateway, gateway.client(alice) as http:
        body = {"agent_name": "ask", "input": [{"role": "user", "parts": [{"content": "Hi"}]}], "mode": "stream"}
        assert (await http.get("/acp/agents")).status_code == 200
        settings = gateway.gateway.settings
        changed = Settings.model_validate({**settings.model_dump(), "agents": settings.agents})
        assert changed.tls is not None
        changed.tls.note_files()  # now the files are known, so they differ
        async with http.stream("POST", "/acp/runs", json={**body, "agent_name": "slow"}) as response:
            lines = response.aiter_lines()
            await anext(lines)
            report = await gateway.gateway.generations.apply(changed)
            assert "tls.client_ca" in report.applied
            with pytest.raises(httpx.RemoteProtocolError):
                _ = [line async for line in lines]
        response = await http.get("/acp/agents")
        assert "it was verified with earlier settings of tls" in response.json()["message"]
