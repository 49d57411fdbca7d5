"""Tests of the authorization of MCP: the metadata of the protected resource, and the challenge of refused requests."""

from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from babelgate.adapters.kit.server.caller import Authentication, Issuer
from babelgate.adapters.mcp.server.authorization import METADATA_PATHS, resource_metadata
from tests.gateway.http.issuing import Issuing, public_key
from tests.opened import opened
from tests.running import running

HOST: Final = "https://agents.example.com"
CORP: Final = Issuing()
CALL: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def accepting(*audiences: str, scopes: tuple[str, ...] = ()) -> Authentication:
    discovery_url = f"{CORP.url}/.well-known/openid-configuration"
    return Authentication(issuers=(Issuer("corp", CORP.url, discovery_url, audiences),), scopes=scopes)


@pytest.mark.parametrize(
    ("audiences", "base_url", "resource"),
    [
        ((HOST,), HOST, HOST),
        ((f"{HOST}/",), HOST, f"{HOST}/"),
        (("api://babelgate", HOST), HOST, HOST),
        ((HOST,), f"{HOST}/agent/echo", HOST),
        ((f"{HOST}/mcp",), HOST, f"{HOST}/mcp"),
        ((f"{HOST}/mc",), HOST, HOST),
        (("https://other.example.com",), HOST, HOST),
        (("HTTPS://Agents.Example.com",), HOST, "HTTPS://Agents.Example.com"),
    ],
)
def test_the_resource_is_the_audience_of_accepted_tokens(
    audiences: tuple[str, ...], base_url: str, resource: str
) -> None:
    assert resource_metadata(accepting(*audiences), base_url) == {
        "resource": resource,
        "authorization_servers": [CORP.url],
        "bearer_methods_supported": ["header"],
        "resource_name": "Babelgate",
    }


def test_metadata_name_the_scopes_that_a_token_may_need() -> None:
    metadata = resource_metadata(accepting(HOST, scopes=("agents:read", "agents:run")), HOST)
    assert metadata["scopes_supported"] == ["agents:read", "agents:run"]


async def responses(folder: Path, **settings: Any) -> tuple[httpx.Response, httpx.Response, list[httpx.Response]]:
    """Return the responses to a call without a token, a call with a wrong one, and requests for the metadata."""
    async with opened(folder, public_url=HOST, **settings) as gateway:
        transport = httpx.ASGITransport(gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            without = await http.post("/mcp", json=CALL)
            token = CORP.token(aud="https://other.example.com")
            wrong = await http.post("/mcp", json=CALL, headers={"Authorization": f"Bearer {token}"})
            paths = [*METADATA_PATHS, f"/agent/echo{METADATA_PATHS[1]}"]
            return without, wrong, [await http.get(path) for path in paths]


async def test_a_refused_call_names_the_metadata(tmp_path: Path) -> None:
    without, wrong, metadata = await responses(tmp_path, issuers={"corp": CORP.inline(audience=[HOST])})
    url = f'resource_metadata="{HOST}{METADATA_PATHS[1]}"'
    assert (without.status_code, without.headers["www-authenticate"]) == (401, f"Bearer {url}")
    assert wrong.headers["www-authenticate"] == f'Bearer error="invalid_token", {url}'
    assert wrong.json()["error"]["message"] == "The token is not accepted: it is not for this gateway."
    assert [response.status_code for response in metadata] == [200, 200, 200]
    assert {response.json()["resource"] for response in metadata} == {HOST}
    assert metadata[0].headers["cache-control"] == "public, max-age=300"


async def test_a_challenge_names_all_scopes_of_the_rules(tmp_path: Path) -> None:
    issuers = {"corp": CORP.inline(audience=[HOST])}
    access = [{"who": ["scope:agents:read", "scope:agents:run"], "allow": "*"}]
    without, wrong, metadata = await responses(tmp_path, issuers=issuers, access=access)
    challenge = f'resource_metadata="{HOST}{METADATA_PATHS[1]}", scope="agents:read agents:run"'
    assert without.headers["www-authenticate"] == f"Bearer {challenge}"
    assert wrong.headers["www-authenticate"] == f'Bearer error="invalid_token", {challenge}'
    assert metadata[0].json()["scopes_supported"] == ["agents:read", "agents:run"]


async def test_without_issuers_there_are_no_metadata(tmp_path: Path) -> None:
    without, _, metadata = await responses(tmp_path, keys={"alice": "alice-0123456789"})
    assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
    assert [response.status_code for response in metadata] == [401, 401, 401]


async def test_without_credentials_there_are_no_metadata(tmp_path: Path) -> None:
    without, _, metadata = await responses(tmp_path)
    assert without.status_code == 200
    assert [response.status_code for response in metadata] == [404, 404, 404]


# Sessions


def _request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _hello(**capabilities: Any) -> dict[str, Any]:
    client = {"name": "test", "version": "1"}
    return _request("initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=client)


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["stateless", "of the SDK"])
async def test_a_session_is_bound_to_issuer_and_subject(tmp_path: Path, capabilities: dict[str, Any]) -> None:
    partner = Issuing("https://id.partner.example")
    partner.keys = [public_key(number=1)]
    issuers = {
        name: each.inline(audience=[HOST], owner="{org}") for name, each in {"corp": CORP, "partner": partner}.items()
    }
    async with running(tmp_path, issuers=issuers) as gateway:

        async def call(token: str, session_id: str | None, body: dict[str, Any]) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
            if session_id is not None:
                headers["Mcp-Session-Id"] = session_id
            return await gateway.http.post("/mcp", json=body, headers=headers)

        def token(issuer: Issuing, sub: str, **claims: Any) -> str:
            return issuer.token(number=int(issuer is partner), aud=HOST, org="acme", sub=sub, **claims)

        opened = await call(token(CORP, "alice"), None, _hello(**capabilities))
        session_id = opened.headers["mcp-session-id"]
        renewed = await call(token(CORP, "alice", jti="2"), session_id, _request("tools/list"))
        assert (renewed.status_code, "echo" in renewed.text) == (200, True)
        for other in (token(CORP, "bob"), token(partner, "alice")):
            assert (await call(other, session_id, _request("tools/list"))).status_code == 404
