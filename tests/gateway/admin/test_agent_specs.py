"""Agents over the administration API: created, changed and deleted, on one node and on two."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.admin.administering import ALICE, OPS, administered, becomes, two_nodes
from tests.gateway.agents.tokens.provider import scripted_provider
from tests.gateway.http.issuing import Issuing
from tests.running import Running, running

ON = {"agents": True, "agent_networks": ["127.0.0.0/8"], "agent_secrets": ["PLANNER_TOKEN"]}


async def answering(text: str) -> str:
    return f"You said {text}"


async def put(gateway: Running, name: str, body: Any, **headers: str) -> httpx.Response:
    return await gateway.http.put(f"/admin/agents/{name}", json=body, headers={**OPS, **headers})


async def ask(gateway: Running, name: str, headers: Mapping[str, str] = ALICE) -> httpx.Response:
    body = {"agent_name": name, "input": [{"parts": [{"content": "Hi"}]}], "mode": "sync"}
    return await gateway.http.post("/acp/runs", json=body, headers=headers)


def spec_of(upstream: Running) -> dict[str, Any]:
    return {"url": f"{upstream.url}/acp", "agent": "far"}


async def test_an_agent_is_served_until_it_is_deleted(tmp_path: Path, database: dict[str, Any]) -> None:
    home = tmp_path / "upstream"
    home.mkdir()
    async with running(home, {"far": answering}) as upstream:
        async with administered(tmp_path, admin=ON, **database) as gateway:
            created = await put(gateway, "far", spec_of(upstream))
            assert created.status_code == 200, created.text
            assert created.json()["status"] == "ok", created.text
            assert created.json()["settings"] == spec_of(upstream)
            assert "You said Hi" in (await ask(gateway, "far")).text
            assert (await ask(gateway, "echo")).status_code == 200
            sources = (await gateway.http.get("/admin/config", headers=OPS)).json()["sources"]
            assert sources["agents.far"] == "administration API"
        async with administered(tmp_path, admin=ON, **database) as gateway:  # a restart
            assert "You said Hi" in (await ask(gateway, "far")).text
            deleted = await gateway.http.delete("/admin/agents/far", headers=OPS)
            assert deleted.status_code == 204
            assert (await ask(gateway, "far")).status_code == 404
            assert (await ask(gateway, "echo")).status_code == 200


async def test_a_stale_etag_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "upstream"
    home.mkdir()
    async with running(home, {"far": answering}) as upstream, administered(tmp_path, admin=ON) as gateway:
        spec = spec_of(upstream)
        first = (await put(gateway, "far", spec, **{"If-None-Match": "*"})).headers["etag"]
        assert (await put(gateway, "far", spec, **{"If-None-Match": "*"})).status_code == 412
        second = (await put(gateway, "far", {**spec, "concurrency": 2}, **{"If-Match": first})).headers["etag"]
        refused = await put(gateway, "far", {**spec, "concurrency": 3}, **{"If-Match": first})
        assert (refused.status_code, "Read it again" in refused.text) == (412, True), refused.text
        current = await gateway.http.get("/admin/agents/far", headers=OPS)
        assert (current.headers["etag"], current.json()["settings"]["concurrency"]) == (second, 2)
        stale = await gateway.http.delete("/admin/agents/far", headers={**OPS, "If-Match": first})
        assert stale.status_code == 412
        assert (await put(gateway, "far", spec, **{"If-Match": "three"})).status_code == 400
        deleted = await gateway.http.delete("/admin/agents/far", headers={**OPS, "If-Match": second})
        assert deleted.status_code == 204
        third = (await put(gateway, "far", spec)).headers["etag"]
        assert len({first, second, third}) == 3


async def test_an_agent_is_served_by_all_nodes(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "upstream"
    home.mkdir()
    async with running(home, {"far": answering}) as upstream, two_nodes(tmp_path, postgres_url, admin=ON) as (a, b):
        assert (await put(a, "far", spec_of(upstream))).status_code == 200
        assert "You said Hi" in (await becomes(lambda: ask(b, "far"), 200)).text
        assert (await b.http.delete("/admin/agents/far", headers=OPS)).status_code == 204
        await becomes(lambda: ask(a, "far"), 404)


async def test_a_header_refers_to_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_TOKEN", "key-of-alice")
    home = tmp_path / "upstream"
    home.mkdir()
    async with (
        running(home, {"far": answering}, keys={"alice": "key-of-alice"}) as upstream,
        administered(tmp_path, admin=ON) as gateway,
    ):
        spec = {**spec_of(upstream), "headers": {"Authorization": "Bearer ${PLANNER_TOKEN}"}}
        assert (await put(gateway, "far", spec)).status_code == 200
        assert "You said Hi" in (await ask(gateway, "far")).text
        for path in ("/admin/agents/far", "/admin/config", "/admin/audit"):
            assert "key-of-alice" not in (await gateway.http.get(path, headers=OPS)).text


async def test_auth_gets_tokens_with_a_secret_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_TOKEN", "hush-hush-variable")
    secret, home, issuing = tmp_path / "secret", tmp_path / "upstream", Issuing()
    secret.write_text("hush-hush-file\n")
    home.mkdir()
    async with scripted_provider() as provider, running(home, {"far": answering}, **issuers(issuing)) as upstream:
        provider.answer = lambda form: (200, {"access_token": issuing.token(sub=form["grant_type"]), "expires_in": 300})
        admin = {
            **ON,
            "agent_secrets": ["PLANNER_TOKEN", f"file:{secret}"],
            "agent_providers": [provider.url.removesuffix("/token")],
        }
        async with administered(tmp_path, admin=admin, **issuers(issuing)) as gateway:
            alice = {"Authorization": f"Bearer {issuing.token(sub='alice')}"}
            for kind, reference in (("client_credentials", f"${{file:{secret}}}"), ("exchange", "${PLANNER_TOKEN}")):
                request = {"token_url": provider.url, "client_id": "babelgate", "client_secret": reference}
                spec = {**spec_of(upstream), "auth": {kind: request}}
                created = await put(gateway, "far", spec)
                assert (created.status_code, created.json()["settings"]) == (200, spec), created.text
                assert "You said Hi" in (await ask(gateway, "far", alice)).text
            assert {client for _, client in provider.clients} == {"hush-hush-file", "hush-hush-variable"}
            for path in ("/admin/agents/far", "/admin/config", "/admin/audit"):
                assert "hush-hush" not in (await gateway.http.get(path, headers=OPS)).text
            secret.unlink()
            refused = await put(gateway, "far", {**spec, "headers": {"X-Key": f"${{file:{secret}}}"}})
            assert "headers.X-Key: the file" in refused.text and "cannot be read" in refused.text


def issuers(issuing: Issuing) -> dict[str, Any]:
    return {"issuers": {"corp": issuing.inline()}}


def auth(kind: str = "exchange", **members: Any) -> dict[str, Any]:
    """Return the settings of an agent that gets tokens. `members` replace those of the request."""
    request = {"token_url": "https://id.example.com/token", "client_id": "a", "client_secret": "${PLANNER_TOKEN}"}
    return {"url": "http://127.0.0.1:1", "auth": {kind: {**request, **members}}}


CONSENT = {"authorize_url": "https://evil.example.com/auth"}
REFUSED: list[tuple[Any, int, str]] = [
    (auth(client_secret="hush-hush"), 400, "auth.exchange.client_secret: expected a reference to a variable or a file"),
    (auth(client_secret="Bearer ${PLANNER_TOKEN}"), 400, "auth.exchange.client_secret: expected a reference"),
    (auth(client_secret="${file:/etc/shadow}"), 400, "the file /etc/shadow is not in admin.agent_secrets"),
    (auth("client_credentials", token_url="https://evil.example.com/token"), 400, "token_url: its origin is not in"),
    (auth("client_credentials", token_url="https://id.example.com:444/"), 400, "token_url: its origin is not in"),
    (auth(consent=CONSENT), 400, "consent.authorize_url: its origin is not in admin.agent_providers"),
    (auth(), 400, "auth: exchange needs issuers, whose tokens it exchanges"),
    (auth(color="red"), 400, "auth.exchange.color: there is no such key; there are token_url, client_id"),
    ({"url": "http://127.0.0.1", "auth": {"headers": {"X-Key": "hush-hush"}}}, 400, "auth.headers.X-Key: expected"),
    ({"url": "http://127.0.0.1", "auth": {"headers": {}, "forward": []}}, 400, "auth: one of headers, forward"),
    ({"url": "http://127.0.0.1", "auth": "hush-hush"}, 400, "auth: "),
    ({"python": "os:system"}, 400, "the name of a module would execute code"),
    ({"url": "http://127.0.0.1:1", "command": ["id"]}, 400, "would execute a program on the gateway's machine"),
    ({"graph": "./x.py:graph"}, 400, "the name of a module would execute code"),
    (
        {"url": "http://127.0.0.1:1", "card": {"verify": "audit", "keys": ["/etc/passwd"]}},
        400,
        "card.keys: an agent of the administration API has URLs of key sets, because files are the operator's",
    ),
    ({"url": "http://192.0.2.1/acp"}, 400, "the address 192.0.2.1 is not in admin.agent_networks"),
    ({"url": "ftp://127.0.0.1"}, 400, "url: an http:// or https:// URL"),
    ({"url": "http://127.0.0.1:1", "color": "red"}, 400, "color: there is no such key"),
    ({"url": "http://127.0.0.1:1", "headers": {"X-Key": "secret"}}, 400, "A secret itself would be stored"),
    ({"url": "http://127.0.0.1:1", "headers": {"X-Key": "${HOME}"}}, 400, "HOME is not in admin.agent_secrets"),
    ([], 400, "The body is an object"),
]


@pytest.mark.parametrize(("body", "status", "words"), REFUSED)
async def test_settings_that_allow_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: Any, status: int, words: str
) -> None:
    monkeypatch.setenv("PLANNER_TOKEN", "hush-hush")
    admin = {**ON, "agent_providers": ["https://id.example.com"]}
    async with administered(tmp_path, admin=admin) as gateway:
        response = await put(gateway, "far", body)
        assert (response.status_code, words in response.text) == (status, True), response.text
        assert "hush-hush" not in response.text


async def test_the_names_of_the_configuration_win(tmp_path: Path) -> None:
    async with administered(tmp_path, admin=ON) as gateway:
        for response in (
            await put(gateway, "echo", {"url": "http://127.0.0.1:1"}),
            await gateway.http.delete("/admin/agents/echo", headers=OPS),
        ):
            assert response.status_code == 409
            assert "The configuration has the agent echo" in response.text
        assert (await put(gateway, "-", {"url": "http://127.0.0.1:1"})).status_code == 400
        assert (await gateway.http.delete("/admin/agents/nobody", headers=OPS)).status_code == 404


async def test_agents_cannot_be_changed_unless_it_is_enabled(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        response = await put(gateway, "far", {"url": "http://127.0.0.1:1"})
        assert (response.status_code, "set admin.agents: true" in response.text) == (403, True), response.text
