"""Tokens at every path: a missing, expired or foreign token is refused in the form of the path's protocol."""

import time
from collections.abc import AsyncGenerator
from typing import Final

import pytest
import pytest_asyncio

from babelgate.adapters.mcp.server.authorization import METADATA_PATHS
from babelgate.gateway.http.front import JWKS_PATH
from babelgate.gateway.runs.consents import CALLBACK
from tests.gateway.http.issuing import Issuing
from tests.gateway.owning import unknown
from tests.gateway.route import PAGE_PATHS, ROUTES, Route, paths, protocol_of
from tests.gateway.shape import check_error
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN: Final = {"/healthz", "/readyz", CALLBACK, "/ok", "/acp/ping", JWKS_PATH, *METADATA_PATHS}
"""Paths answered without a token, in addition to the public cards."""
ISSUER: Final = Issuing()
FOREIGN: Final = Issuing("https://id.elsewhere.example")
DOWN: Final = Issuing("http://127.0.0.1:9")
"""An issuer that no one can reach."""
NEEDED: Final = "An API key or a token is needed: send Authorization: Bearer <key or token>, or X-Api-Key: <key>."


def is_open(path: str) -> bool:
    return path in OPEN | PAGE_PATHS or path.endswith((".well-known/agent-card.json", ".well-known/agent.json"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("tokens")
    issuers = {"corp": ISSUER.inline(), "down": DOWN.settings()}
    async with running(folder, issuers=issuers, keys={"ci": "ci-0123456789abcdef"}) as gateway:
        yield gateway


@pytest.mark.parametrize("route", [route for route in ROUTES if not is_open(route.path)], ids=str)
async def test_every_route_refuses_bad_tokens_in_its_form(gateway: Running, route: Route) -> None:
    path = route.at({"key_id": "unknown", **unknown().slots(protocol_of(route.path))})
    refusals = {
        "": NEEDED,
        ISSUER.token(exp=int(time.time()) - 1000): "The token is not accepted: it has expired.",
        ISSUER.token(aud="https://other.example.com"): "The token is not accepted: it is not for this gateway.",
        FOREIGN.token(): "The token is not accepted: its issuer is not trusted.",
        "wrong": NEEDED,
    }
    for token, message in refusals.items():
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = await gateway.http.request(route.method, path, json={}, headers=headers)
        assert response.status_code == 401
        assert message in response.text.encode().decode("unicode_escape", "replace")
        challenge = response.headers["www-authenticate"]
        assert challenge.startswith('Bearer error="invalid_token"' if token else "Bearer")
        assert ("resource_metadata=" in challenge) is (route.words == "mcp")
        check_error(route.words, response)


@pytest.mark.parametrize("route", [route for route in ROUTES if not is_open(route.path)], ids=str)
async def test_every_route_refuses_tokens_of_an_unreachable_issuer(gateway: Running, route: Route) -> None:
    path = route.at({"key_id": "unknown", **unknown().slots(protocol_of(route.path))})
    headers = {"Authorization": f"Bearer {DOWN.token()}"}
    response = await gateway.http.request(route.method, path, json={}, headers=headers)
    assert response.status_code == 503
    seconds = int(response.headers["retry-after"])
    assert 1 <= seconds <= 5
    message = f"The keys of the issuer down cannot be fetched now; try again in {seconds} seconds."
    assert message in response.text
    assert "www-authenticate" not in response.headers


@pytest.mark.parametrize("path", sorted(OPEN & set(paths())))
async def test_an_open_path_answers_with_any_token(gateway: Running, path: str) -> None:
    for token in ("", ISSUER.token(aud="x"), DOWN.token(), "a.b.c"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        expected = 404 if path == CALLBACK else 200  # it needs a parameter
        assert (await gateway.http.get(path, headers=headers)).status_code == expected
