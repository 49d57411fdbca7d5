"""Tests of the application: API keys, origins, base URLs, paths of a single agent, errors, the log line."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.extension import URI as EXTENSION
from babelgate.gateway.agents.registry import Registry, connect
from babelgate.gateway.demo import files
from babelgate.gateway.http.app import create_app
from babelgate.gateway.http.generations import Generations
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Settings
from tests.bridge import Bridge
from tests.gateway.route import UNOPENED_HUB
from tests.opened import opened

KEYS: dict[str, Any] = {"keys": {"alice": "a-key", "bob": "b-key"}}
CARD = "/a2a/echo/.well-known/agent-card.json"
RUN = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}

Client = httpx.AsyncClient


async def shout(text: str) -> str:
    """Convert the text to capitals."""
    return text.upper()


AGENTS: Mapping[str, object] = {"echo": shout, "other": shout}


@asynccontextmanager
async def gateway(
    folder: Path,
    agents: Mapping[str, object] | None = AGENTS,
    *,
    peer: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncGenerator[Client]:
    """Yield a client of a gateway at 127.0.0.1:8000. `peer` is the address of the client."""
    address = "http://127.0.0.1:8000"
    async with (
        opened(folder, agents, **settings) as running,
        Client(
            transport=Bridge(running.app, peer=(peer, 50000)), base_url=address, headers=headers, timeout=None
        ) as http,
    ):
        yield http


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    """Client of a gateway with API keys, shared by tests that do not change it."""
    async with gateway(tmp_path_factory.mktemp("keyed"), **KEYS) as http:
        yield http


on_keyed = pytest.mark.asyncio(loop_scope="module")


async def card_url(http: Client, path: str = CARD, **headers: str) -> str:
    response = await http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert response.status_code == 200, response.text
    return response.json()["url"]


# Keys


@on_keyed
@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer a-key"}, {"authorization": "bearer  a-key"}, {"X-Api-Key": "a-key"}]
)
async def test_a_key_grants_access_to_every_path(keyed: Client, headers: Mapping[str, str]) -> None:
    assert (await keyed.get("/acp/agents", headers=headers)).status_code == 200
    assert (await keyed.post("/acp/runs", json=RUN, headers=headers)).status_code == 200


@on_keyed
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic a-key"}, {"Authorization": "a-key"},
     {"X-Api-Key": ""}, {"X-Api-Key": "a-key "[:-2]}, {"Authorization": "Bearer "}],
)  # fmt: skip
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/acp/agents", {"code": "invalid_input"}),
        ("/agent/echo/acp/agents", {"code": "invalid_input"}),
        ("/agent/nobody/acp/agents", {"code": "invalid_input"}),
        ("/nowhere", {"error": {"code": "unauthenticated"}}),
        ("/", {"error": {"code": "unauthenticated"}}),
    ],
)
async def test_a_wrong_key_is_401_in_the_protocols_format(
    keyed: Client, headers: Mapping[str, str], path: str, body: Mapping[str, Any]
) -> None:
    response = await keyed.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    body_of_response = response.json()
    inner, expected = (body_of_response["error"], body["error"]) if "error" in body else (body_of_response, body)
    assert {name: inner[name] for name in expected} == expected


@on_keyed
async def test_every_protocol_has_a_401_in_its_format(keyed: Client) -> None:
    for adapter in ADAPTERS:
        response = await keyed.post(f"{adapter.prefixes[0]}/echo", json={})
        assert response.status_code == 401, adapter.name
        assert response.headers["www-authenticate"] == "Bearer", adapter.name


@on_keyed
@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/acp/ping", CARD, "/.well-known/agent-card.json", "/agent/echo/acp/ping"]
)
async def test_public_paths_ignore_keys(keyed: Client, path: str) -> None:
    assert (await keyed.get(path)).status_code == 200
    assert (await keyed.get(path, headers={"X-Api-Key": "wrong"})).status_code == 200


# The base URL


async def test_urls_begin_with_the_configured_public_url(tmp_path: Path) -> None:
    public = "https://agents.example.com/gate/"
    async with gateway(tmp_path, public_url=public, trusted_proxies=["127.0.0.1"], hosts=["*"]) as http:
        assert await card_url(http, Host="evil.example") == "https://agents.example.com/gate/a2a/echo"
        assert await card_url(http, X_Forwarded_Host="evil.example") == "https://agents.example.com/gate/a2a/echo"
        alone = await card_url(http, "/agent/echo/.well-known/agent-card.json")
        assert alone == "https://agents.example.com/gate/agent/echo/a2a/echo"


FORWARDED = {"X_Forwarded_Proto": "https", "X_Forwarded_Host": "agents.example.com", "X_Forwarded_Prefix": "/gate/"}


async def test_a_trusted_proxy_reports_the_callers_url(tmp_path: Path) -> None:
    async with gateway(tmp_path, peer="10.1.2.3", trusted_proxies=["10.0.0.0/8"], hosts=["*"]) as http:
        assert await card_url(http, **FORWARDED) == "https://agents.example.com/gate/a2a/echo"
        assert await card_url(http, X_Forwarded_Proto="https", Host="proxied.example") == (
            "https://proxied.example/a2a/echo"
        )


@pytest.mark.parametrize("prefix", ["", "/agent/other"])
async def test_a_forged_host_is_in_no_answer(tmp_path: Path, prefix: str) -> None:
    """Ignore untrusted addresses: others read cards, sessions, files and the table of URLs, and follow their links."""
    strange = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.example"}
    strange |= {"Host": "evil.example:8000", "X-Forwarded-Prefix": "/evil.example", "X-Original-URL": "//evil.example"}
    part = {"raw": "aGVsbG8gdGhlcmU=", "filename": "a.txt", "mediaType": "text/plain"}
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [part]}
    agents = {"echo": shout, "other": files}
    async with gateway(tmp_path, agents, headers=strange, limits={"inline": 4}, hosts=["*"]) as http:
        run = await http.post(f"{prefix}/acp/runs", json={**RUN, "agent_name": "other"})
        sent = await http.post(
            f"{prefix}/a2a/other/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}
        )
        answers = [run, sent]
        answers += [
            await http.get(f"{prefix}{path}", headers={"A2A-Version": version})
            for version in ("", "0.3", "1.0")
            for path in (
                "/",
                "/acp/agents",
                f"/acp/sessions/{run.json()['session_id']}",
                f"/acp/runs/{run.json()['run_id']}",
                "/.well-known/agent-card.json",
                "/.well-known/agent.json",
                "/a2a/other",
                "/a2a/other/.well-known/agent-card.json",
                "/a2a/other/tasks",
                "/nowhere",
            )
        ]
        urls = {url for answer in answers for url in re.findall(r"https?://[^\"'\s\\]+", answer.text)}
        urls.discard(EXTENSION)  # an identifier in cards that no client opens
        assert f"http://127.0.0.1:8000{prefix}/a2a/other/files/" in sent.text, "a file is given by URL"
        assert any("/acp/resources/" in url for url in urls)
    assert all(f"{url}/".startswith(f"http://127.0.0.1:8000{prefix}/") for url in urls), urls
    assert not any("evil" in f"{answer.headers} {answer.text}" for answer in answers)


# A single agent


async def test_below_agent_name_only_that_agent_is_visible(tmp_path: Path) -> None:
    async with gateway(tmp_path, default_agent="echo") as http:
        agents = (await http.get("/agent/other/acp/agents")).json()["agents"]
        assert [agent["name"] for agent in agents] == ["other"]
        card = (await http.get("/agent/other/.well-known/agent-card.json")).json()
        assert (card["name"], card["url"]) == ("other", "http://127.0.0.1:8000/agent/other/a2a/other")
        index = (await http.get("/agent/other/")).json()
        assert index["agents"] == ["other"]
        assert (await http.get("/agent/other")).json() == index
        run = await http.post("/agent/other/acp/runs", json={**RUN, "agent_name": "other"})
        assert run.json()["output"][0]["parts"][0]["content"] == "HELLO"


async def test_every_protocol_calls_the_agent_below_its_name(tmp_path: Path) -> None:
    """Follow the card at the root to all other URLs, like clients that expect one agent per host."""
    root = "http://127.0.0.1:8000/agent/other"
    async with gateway(tmp_path, default_agent="echo") as http:
        message = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "Hello"}]}
        request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
        card = (await http.get(f"{root}/.well-known/agent-card.json")).json()
        assert card["url"] == f"{root}/a2a/other"
        task = (await http.post(card["url"], json=request)).json()["result"]
        assert task["artifacts"][0]["parts"][0]["text"] == "HELLO"
        interfaces = {each["protocolBinding"]: each["url"] for each in reversed(card["supportedInterfaces"])}
        response = await http.get(f"{interfaces['HTTP+JSON']}/tasks/{task['id']}", headers={"A2A-Version": "1.0"})
        assert response.json()["id"] == task["id"]
        run = (await http.post(f"{root}/acp/runs", json={**RUN, "agent_name": "other"})).json()
        history = (await http.get(f"{root}/acp/sessions/{run['session_id']}")).json()["history"]
        assert [url.startswith(f"{root}/acp/resources/") for url in history] == [True, True]
        contents = [(await http.get(url)).json()["parts"][0]["content"] for url in history]
        assert contents == ["Hello", "HELLO"]


async def test_errors_below_an_agent_have_the_protocols_format(tmp_path: Path) -> None:
    async with gateway(tmp_path) as http:
        assert (await http.get("/agent/nobody/acp/agents")).json()["code"] == "not_found"
        assert (await http.get("/agent/echo/acp/nowhere")).json()["code"] == "not_found"
        for path in ("/agent//acp/agents", "/agent/echo//agent/x"):
            assert (await http.get(path)).status_code == 404


# Paths of the gateway itself


async def test_the_index_shows_a_call_of_every_protocol(tmp_path: Path) -> None:
    async with gateway(tmp_path) as http:
        index = (await http.get("/")).json()
    assert index["agents"] == ["echo", "other"]
    labels = [each["protocol"] for each in index["protocols"]]
    assert len(labels) >= len(ADAPTERS)
    for each in index["protocols"]:
        assert f"{each['url']}/".startswith("http://127.0.0.1:8000/")
        assert each["example"].startswith(("curl ", "babelgate "))
        assert each["url"] in each["example"] or each["example"].startswith("babelgate acp ")


async def test_readyz_lists_broken_agents(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"agents": {"good": {"python": "babelgate.gateway.demo:echo"}, "bad": {"python": "no.such.module:agent"}}}
    )
    registry = await connect(settings)
    async with gateway(tmp_path, None, registry=registry) as http:
        ready = await http.get("/readyz")
        assert ready.status_code == 200, "the others serve"
        assert ready.json()["agents"]["good"] == "ok"
        assert ready.json()["agents"]["bad"].startswith("broken: cannot import no.such.module")
        called = await http.post("/acp/runs", json={**RUN, "agent_name": "bad"})
        assert called.status_code == 502
    async with gateway(tmp_path, None, registry=registry, **KEYS) as http:
        assert (await http.get("/readyz")).json()["agents"]["bad"] == "broken", "the reason must not be public"
        with_key = await http.get("/readyz", headers={"X-Api-Key": "a-key"})
        assert "no.such.module" in with_key.json()["agents"]["bad"]


async def test_every_answer_names_the_instance_also_after_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as http:
        banners = {(await http.get(path)).headers["babelgate"] for path in ("/", "/healthz", "/nowhere", "/acp/agents")}
    async with gateway(tmp_path) as http:
        banners.add((await http.get("/")).headers["babelgate"])
    (banner,) = banners
    assert banner.partition("; instance=")[0].count(".") == 2
    assert len(banner.partition("; instance=")[2]) == 36


@pytest.mark.parametrize("path", ["/", "/healthz", "/acp/agents", CARD])
async def test_head_answers_like_get_without_a_body(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path) as http:
        full, head = await http.get(path), await http.head(path)
    assert head.status_code == full.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == full.headers["content-length"]


async def test_an_internal_error_is_only_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agents(_: GatewayHub) -> Any:
        raise RuntimeError("secret detail")

    async with gateway(tmp_path) as http:
        monkeypatch.setattr(GatewayHub, "agents", agents)
        response = await http.get("/acp/agents")
    assert response.status_code == 500
    assert response.json()["code"] == "server_error"
    assert "secret detail" not in response.text
    assert "secret detail" in caplog.text
    assert "Traceback" in caplog.text


def test_post_answers_200_unless_the_protocol_defines_another_status() -> None:
    settings = Settings()
    app = create_app(Generations(settings, Registry([])), UNOPENED_HUB)
    for route in app.app.routes:
        for handler in getattr(route, "route_handlers", ()):
            if "POST" in getattr(handler, "http_methods", ()):
                codes = (200, 201, 202, 204) if route.path == "/admin/keys" else (200, 202, 204)
                assert handler.status_code in codes, f"{route.path}: {handler.status_code}"


def test_the_frameworks_documentation_is_disabled() -> None:
    app = create_app(Generations(Settings(), Registry([])), UNOPENED_HUB)
    assert not any(route.path.startswith("/schema") for route in app.app.routes)


CHECKED: list[tuple[str, str, str | None, int]] = [
    ("GET", "/healthz", None, 200),  # an open path
    ("GET", CARD, None, 200),
    ("GET", "/console/0123456789abcdef/main.js", None, 404),  # an open path of the console
    ("GET", "/console/api/v1/me", None, 401),
    ("GET", "/console/api/v1/me", "https://app.example.com", 401),  # the console grants nothing to this origin
    ("POST", "/mcp", "https://evil.example", 403),  # MCP checks the origin also of requests with a key
    ("GET", "/acp/nothing", None, 401),  # the error has the form of its protocol
    ("GET", "/a2a/echo/nothing", None, 401),
    ("GET", "/v1/models", None, 401),
    ("GET", "/agent/nobody/acp/agents", None, 401),
]
"""Method, path, origin, and the status without a key."""


async def test_empty_segments_of_a_path_change_no_check(tmp_path: Path) -> None:
    async with gateway(tmp_path, cors=["https://app.example.com"], **KEYS) as http:

        async def answer(method: str, path: str, headers: Mapping[str, str]) -> tuple[Any, ...]:
            response = await http.request(method, f"http://127.0.0.1:8000{path}", headers=headers)
            return response.status_code, response.text, response.headers.get("access-control-allow-origin")

        for method, path, origin, status in CHECKED:
            from_page = {} if origin is None else {"Origin": origin}
            assert (await answer(method, path, from_page))[0] == status, path
            for headers in (from_page, {**from_page, "X-Api-Key": "a-key"}):
                for normal in (path, f"/agent/echo{path}"):
                    expected = await answer(method, normal, headers)
                    for spelling in (f"/{normal}", f"{normal}/", normal.replace("/", "//")):
                        assert await answer(method, spelling, headers) == expected, spelling
