"""oidc-provider as the provider of agents' tokens: client credentials, token exchange, and logins of users.

The server of the agents is another gateway, which accepts only tokens of the provider for its resource.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical import Invocation
from tests.interop.driver import ClientError, OfficialServer, start_client, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE: Final = "https://agents.example.com"
RESOURCE: Final = "https://planner.example.com"
REDIRECT: Final = "http://127.0.0.1:9/callback"
CALLBACK: Final = f"{AUDIENCE}/oauth/callback"
VERIFIER: Final = "v" * 43
CHALLENGE: Final = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


def who(call: Invocation) -> str:
    return f"You are {call.owner}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def oidc() -> AsyncGenerator[OfficialServer]:
    async with start_server("oidc-provider", audience=AUDIENCE, redirects=[REDIRECT, CALLBACK]) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream(tmp_path_factory: pytest.TempPathFactory, oidc: OfficialServer) -> AsyncGenerator[Running]:
    issuers = {"oidc": {"issuer": oidc.url, "audience": [RESOURCE]}}
    async with running(tmp_path_factory.mktemp("upstream"), {"who": who}, issuers=issuers) as gateway:
        yield gateway


@asynccontextmanager
async def front(folder: Path, oidc: OfficialServer, upstream: Running, **auth: Any) -> AsyncGenerator[Running]:
    """Serve the gateway in front of the agent, which has this `auth`."""
    client = {"token_url": f"{oidc.url}/token", "client_id": "client", "client_secret": "secret", "scope": "agents:run"}
    [(kind, members)] = auth.items()
    agent = {
        "url": f"{upstream.url}/a2a/who",
        "protocol": "a2a",
        "auth": {kind: {**client, "resource": RESOURCE, **members}},
    }
    settings: dict[str, Any] = {
        "issuers": {"oidc": {"issuer": oidc.url, "audience": [AUDIENCE]}},
        "secrets_key": "a key for tests, which is long enough",
        "public_url": AUDIENCE,
        "hosts": ["*"],
    }
    async with running(folder, configured={"planner": agent}, **settings) as gateway:
        yield gateway


class LoginForm(HTMLParser):
    """The form of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form" and not self.action:
            self.action = attributes["action"]
        elif tag == "input" and "name" in attributes:
            self.fields[attributes["name"]] = attributes.get("value", "")


async def log_in(url: str, user: str) -> str:
    """Open a page of the provider as a user who agrees, and return the URL to which it sends the browser back."""
    async with httpx.AsyncClient(follow_redirects=False) as http:
        response = await http.get(url)
        while True:
            if response.has_redirect_location:
                target = urljoin(str(response.url), response.headers["location"])
                if target.startswith((REDIRECT, CALLBACK)):
                    return target
                response = await http.get(target)
                continue
            assert response.status_code == 200, response.text
            form = LoginForm(response.text)
            entries = {"login": user, "password": "password"}
            data = {name: entries.get(name, value) for name, value in form.fields.items()}
            response = await http.post(urljoin(str(response.url), form.action), data=data)


async def token_of(oidc: OfficialServer, user: str) -> dict[str, str]:
    """Log in as a user at the provider, and return the headers with the token for the gateway."""
    query = {"response_type": "code", "client_id": "client", "redirect_uri": REDIRECT, "scope": "openid agents:run"}
    query |= {"code_challenge": CHALLENGE, "code_challenge_method": "S256", "resource": AUDIENCE}
    landed = await log_in(f"{oidc.url}/auth?{urlencode(query)}", user)
    form = {"grant_type": "authorization_code", "code": parse_qs(urlsplit(landed).query)["code"][0]}
    form |= {"redirect_uri": REDIRECT, "code_verifier": VERIFIER, "resource": AUDIENCE}
    async with httpx.AsyncClient() as http:
        answer = (await http.post(f"{oidc.url}/token", data=form, auth=("client", "secret"))).json()
    return {"Authorization": f"Bearer {answer['access_token']}"}


async def ask(gateway: Running, headers: dict[str, str]) -> dict[str, Any]:
    body = {"agent_name": "planner", "input": [{"role": "user", "parts": [{"content": "Who am I?"}]}], "mode": "sync"}
    return (await gateway.http.post("/acp/runs", json=body, headers=headers)).json()


def text_of(run: dict[str, Any]) -> str:
    return json.dumps(run["output"])


async def test_an_agent_gets_a_token_of_the_gateway(tmp_path: Path, oidc: OfficialServer, upstream: Running) -> None:
    async with front(tmp_path, oidc, upstream, client_credentials={}) as gateway:
        assert "You are oidc:client" in text_of(await ask(gateway, await token_of(oidc, "alice")))


async def test_an_agent_gets_an_exchanged_token(tmp_path: Path, oidc: OfficialServer, upstream: Running) -> None:
    async with front(tmp_path, oidc, upstream, exchange={}) as gateway:
        for user in ("alice", "bob"):
            assert f"You are oidc:{user}" in text_of(await ask(gateway, await token_of(oidc, user)))


@pytest.mark.parametrize(
    ("exchange", "user", "error"),
    [
        ({"resource": "https://unknown.example"}, "alice", "invalid_target"),
        ({"client_secret": "wrong"}, "alice", "invalid_client"),
        ({}, "carol", "invalid_grant"),
    ],
)
async def test_an_error_of_the_provider_ends_the_run(
    tmp_path: Path, oidc: OfficialServer, upstream: Running, exchange: dict[str, Any], user: str, error: str
) -> None:
    async with front(tmp_path, oidc, upstream, exchange=exchange) as gateway:
        run = await ask(gateway, await token_of(oidc, user))
        assert run["error"]["message"] == f"The identity provider issues no token for agent planner: {error}"


async def test_a_user_logs_in_and_agrees(tmp_path: Path, oidc: OfficialServer, upstream: Running) -> None:
    consent = {"authorize_url": f"{oidc.url}/auth?prompt=consent", "scope": "openid offline_access agents:run"}
    async with front(tmp_path, oidc, upstream, exchange={"consent": consent}) as gateway:
        carol = await token_of(oidc, "carol")
        waiting = [await ask(gateway, carol) for _ in range(2)]
        assert [run["status"] for run in waiting] == ["awaiting", "awaiting"]
        first_url, second_url = [await page_of(gateway, run["run_id"]) for run in waiting]
        page = await open_callback(gateway, await log_in(first_url, "mallory"))
        assert (page.status_code, "another user" in page.text) == (403, True)
        landed = await log_in(second_url, "carol")
        pages = [await open_callback(gateway, landed) for _ in range(2)]
        assert [page.status_code for page in pages] == [200, 404], "a code and its state are used once"
        async with gateway.http.stream("GET", f"/acp/runs/{waiting[1]['run_id']}/events", headers=carol):
            await gateway.hub.engine.idle()
        assert "You are oidc:carol" in text_of(await ask(gateway, carol))


async def test_the_mcp_client_opens_a_page_and_repeats_its_call(
    tmp_path: Path, oidc: OfficialServer, upstream: Running
) -> None:
    consent = {"authorize_url": f"{oidc.url}/auth?prompt=consent", "scope": "openid offline_access agents:run"}
    async with front(tmp_path, oidc, upstream, exchange={"consent": consent}) as gateway:
        options: dict[str, Any] = {"headers": await token_of(oidc, "carol")}
        options["capabilities"] = {"elicitation": {"url": {}}}
        client = start_client("mcp-conformance", program="mcp_js_client.py", base_url=f"{gateway.url}/mcp", **options)
        async with client as carol:
            with pytest.raises(ClientError) as raised:
                await carol.call("call", name="planner", message="Who am I?")
            assert (raised.value.type, raised.value.data["code"]) == ("UrlElicitationRequiredError", -32042)
            [page] = raised.value.data["elicitations"]
            after = await open_callback(gateway, await log_in(page["url"], "carol"))
            assert (after.status_code, "call the agent again" in after.text) == (200, True)
            result = await carol.call("call", name="planner", message="Who am I?")
            assert result["content"][0]["text"] == "You are oidc:carol"


async def page_of(gateway: Running, task_id: str) -> str:
    """Return the URL of the question of a task."""
    value: Any = (await gateway.hub.reads.open_interrupts("oidc:carol", task_id))[0].value
    return value["url"]


async def open_callback(gateway: Running, landed: str) -> httpx.Response:
    """Open the page of the gateway to which the provider has sent the browser."""
    return await gateway.http.get(f"/oauth/callback?{urlsplit(landed).query}")
