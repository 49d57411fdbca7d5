"""Two real identity providers: their tokens, their keys and their rotation, a provider that is down, and forged tokens.

NanoIDP signs with RS256 and has users with groups. oidc-provider signs access tokens (`at+jwt`) with ES256.
"""

import json
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from tests.gateway.http.issuing import private_key, sign
from tests.interop.driver import ClientError, OfficialServer, start_client, start_server
from tests.running import Running, running
from tests.serving import listen

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE: Final = "http://localhost"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nano() -> AsyncGenerator[OfficialServer]:
    async with start_server("nanoidp", audience=AUDIENCE) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def oidc() -> AsyncGenerator[OfficialServer]:
    async with start_server("oidc-provider", audience=AUDIENCE) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    tmp_path_factory: pytest.TempPathFactory, nano: OfficialServer, oidc: OfficialServer
) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("issuers"), issuers=issuers(nano.url, oidc.url)) as gateway:
        yield gateway


def issuers(nano: str, oidc: str) -> dict[str, Any]:
    return {
        "nano": {"issuer": nano, "audience": [AUDIENCE], "owner": "{tenant}:{sub}"},
        "oidc": {"issuer": oidc, "audience": [AUDIENCE]},
    }


async def user_token(nano: OfficialServer, user: str = "alice") -> str:
    async with httpx.AsyncClient() as http:
        return (await http.post(f"{nano.url}/api/users/{user}/token", json={})).json()["access_token"]


async def client_token(provider: OfficialServer, **form: str) -> str:
    async with httpx.AsyncClient() as http:
        discovery = (await http.get(f"{provider.url}/.well-known/openid-configuration")).json()
        form = {"grant_type": "client_credentials", **form}
        response = await http.post(discovery["token_endpoint"], data=form, auth=("client", "secret"))
        return response.json()["access_token"]


async def status(gateway: Running, token: str) -> int:
    response = await gateway.http.get("/acp/agents", headers={"Authorization": f"Bearer {token}"})
    return response.status_code


async def refusal(gateway: Running, token: str) -> str:
    response = await gateway.http.get("/acp/agents", headers={"Authorization": f"Bearer {token}"})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    return response.json()["message"].removeprefix("The token is not accepted: ")


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


async def test_tokens_of_both_providers_are_accepted(
    gateway: Running, nano: OfficialServer, oidc: OfficialServer
) -> None:
    assert await status(gateway, await user_token(nano)) == 200
    assert await status(gateway, await client_token(oidc, scope="agents:run")) == 200


async def test_each_user_has_separate_threads(gateway: Running, nano: OfficialServer) -> None:
    alice, bob = [{"Authorization": f"Bearer {await user_token(nano, user)}"} for user in ("alice", "bob")]
    run = {"agent_name": "echo", "input": [{"parts": [{"content": "Hi"}]}], "mode": "sync"}
    path = f"/acp/runs/{(await gateway.http.post('/acp/runs', json=run, headers=alice)).json()['run_id']}"
    assert (await gateway.http.get(path, headers=alice)).status_code == 200
    assert (await gateway.http.get(path, headers=bob)).status_code == 404


async def test_tokens_of_old_and_new_keys_pass_after_a_rotation(tmp_path: Path, oidc: OfficialServer) -> None:
    async with (
        start_server("nanoidp", audience=AUDIENCE) as nano,
        running(tmp_path, issuers=issuers(nano.url, oidc.url)) as gateway,
        httpx.AsyncClient() as http,
    ):
        old = await user_token(nano)
        assert (await http.post(f"{nano.url}/api/keys/rotate")).json()["success"]
        new = await user_token(nano)  # before the first request, so that no cooldown applies
        assert [await status(gateway, token) for token in (old, new)] == [200, 200]


async def test_a_provider_that_starts_late_is_unavailable_first(tmp_path: Path, oidc: OfficialServer) -> None:
    listener = listen()
    port: int = listener.getsockname()[1]
    async with running(tmp_path, issuers=issuers(f"http://127.0.0.1:{port}", oidc.url)) as gateway:
        claims = {"iss": f"http://127.0.0.1:{port}", "sub": "alice", "aud": AUDIENCE, "exp": int(time.time()) + 60}
        early = sign(claims, private_key("RS256"), "RS256", {"kid": "x"})
        listener.close()
        response = await gateway.http.get("/acp/agents", headers={"Authorization": f"Bearer {early}"})
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert response.json()["message"].startswith("The keys of the issuer nano cannot be fetched now")
        assert await status(gateway, await client_token(oidc)) == 200


# Official clients

MESSAGE: Final = {"role": "user", "content": "Hello"}
CLIENTS: Final[dict[str, tuple[str, Callable[[str], dict[str, Any]], str, dict[str, Any]]]] = {
    "openai": ("/v1", lambda token: {"key": token}, "create", {"model": "echo", "messages": [MESSAGE]}),
    "langgraph-sdk": (
        "",
        lambda token: {"headers": {"Authorization": f"Bearer {token}"}},
        "runs.wait",
        {"thread_id": None, "assistant_id": "echo", "input": {"messages": [MESSAGE]}},
    ),
    "acp": (
        "/acp",
        lambda token: {"headers": {"Authorization": f"Bearer {token}"}},
        "run_sync",
        {"agent": "echo", "input": "Hello"},
    ),
    "a2a-1.0": (
        "/a2a/echo",
        lambda token: {"credentials": {"openIdConnect-nano": token}},
        "send",
        {"text": "Hello"},
    ),
}
"""Path, options, and a call with its arguments of each official client that sends a token."""


@pytest.mark.parametrize("peer", CLIENTS)
async def test_official_clients_send_tokens(gateway: Running, nano: OfficialServer, peer: str) -> None:
    path, options, call, arguments = CLIENTS[peer]
    async with start_client(peer, base_url=f"{gateway.url}{path}", **options(await user_token(nano))) as client:
        assert "Hello" in json.dumps(await client.call(call, **arguments))
    async with start_client(peer, base_url=f"{gateway.url}{path}") as client:
        with pytest.raises(ClientError, match=r"A token is needed|401"):
            await client.call(call, **arguments)


# Forged tokens


async def _hs256(nano: OfficialServer, token: str) -> str:
    async with httpx.AsyncClient() as http:
        key = (await http.get(f"{nano.url}/.well-known/jwks.json")).json()["keys"][0]
    public: Any = RSAAlgorithm.from_jwk(key)
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return sign(claims_of(token), pem, "HS256", {"kid": key["kid"]})


def _replaced_claims(token: str) -> str:
    head, _, signature = token.split(".")
    changed = sign({**claims_of(token), "sub": "bob"}, None, "none", {}).split(".")[1]
    return ".".join((head, changed, signature))


FORGED: Final[dict[str, Callable[[str], str]]] = {
    "no algorithm": lambda token: sign(claims_of(token), None, "none", {}),
    "another key": lambda token: sign(claims_of(token), private_key("RS256"), "RS256", {"kid": "x"}),
    "changed claims": _replaced_claims,
    "no signature": lambda token: token.rpartition(".")[0] + ".",
    "a cut signature": lambda token: token[:-4],
    "swapped parts": lambda token: ".".join(reversed(token.split("."))),
}


@pytest.mark.parametrize("case", FORGED)
async def test_a_forged_token_is_refused(gateway: Running, nano: OfficialServer, case: str) -> None:
    token = FORGED[case](await user_token(nano))
    assert await refusal(gateway, token) in (
        "its signature does not match.",
        "its algorithm is not one of RS256, PS256, ES256, EdDSA.",
        "it is not a JSON Web Token.",
    )


async def test_a_token_signed_with_the_public_key_is_refused(gateway: Running, nano: OfficialServer) -> None:
    forged = await _hs256(nano, await user_token(nano))
    assert await refusal(gateway, forged) == "its algorithm is not one of RS256, PS256, ES256, EdDSA."


async def test_a_token_for_another_service_is_refused(gateway: Running, oidc: OfficialServer) -> None:
    token = await client_token(oidc, resource="https://other.example.com")
    assert await refusal(gateway, token) == "it is not for this gateway."


async def test_a_token_of_an_unknown_issuer_is_refused(gateway: Running) -> None:
    async with start_server("nanoidp", audience=AUDIENCE) as unknown:
        assert await refusal(gateway, await user_token(unknown)) == "its issuer is not trusted."


async def test_an_issuer_cannot_sign_for_another_one(gateway: Running, nano: OfficialServer) -> None:
    async with start_server("nanoidp", audience=AUDIENCE, issuer=nano.url) as impostor:
        assert await refusal(gateway, await user_token(impostor)) == "its signature does not match."
