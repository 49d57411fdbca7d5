"""The official MCP client logs a user in at a real identity provider, and calls a tool with the token.

The client knows only the URL of the gateway. It finds the provider by the challenge of the gateway (RFC 9728),
registers itself (RFC 7591), logs in with an authorization code and PKCE, and renews its token.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from babelgate.canonical import TaskFilter
from babelgate.gateway.http.connection import protocol_options
from babelgate.gateway.hub import GatewayHub
from tests.interop.driver import OfficialClient, start_client, start_server
from tests.opened import opened
from tests.serving import listen, serving

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "nanoidp": {"dynamic_registration": {"enabled": True}},
    "oidc-provider": {},
}
"""Options of the providers."""


@asynccontextmanager
async def logging_in(
    folder: Path, provider: str, *, lifetime: int | None = None, scope: str | None = None, **settings: Any
) -> AsyncGenerator[tuple[GatewayHub, OfficialClient]]:
    """Start a provider, a gateway that accepts its tokens, and a client. With `scope`, the client has a token with this
    scope."""
    listener = listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    options = OPTIONS[provider] if lifetime is None else {"lifetime": lifetime}
    async with start_server(provider, audience=url, **options) as issuer:
        issuers = {"corp": {"issuer": issuer.url, "audience": [url]}}
        more = {} if scope is None else {"tokens": await client_tokens(issuer.url, scope)}
        async with (
            opened(folder, issuers=issuers, **settings) as gateway,
            serving(gateway.app, listener, **protocol_options(gateway.settings)),
            start_client("mcp", program="mcp_login_client.py", base_url=url, username="alice", **more) as client,
        ):
            yield gateway.hub, client


async def client_tokens(provider: str, scope: str) -> Any:
    """Return the response of the provider to a request for a token by client credentials."""
    async with httpx.AsyncClient() as http:
        form = {"grant_type": "client_credentials", "scope": scope}
        return (await http.post(f"{provider}/token", data=form, auth=("client", "secret"))).json()


def text_of(result: Any) -> str:
    return "".join(each["text"] for each in result["content"] if each["type"] == "text")


@pytest.mark.parametrize("provider", OPTIONS)
async def test_a_client_logs_in_and_calls_a_tool(tmp_path: Path, provider: str) -> None:
    async with logging_in(tmp_path, provider) as (hub, client):
        assert text_of(await client.call("call", name="echo", message="hello")) == "hello"
        requests = await client.call("log")
        registration = "/register" if provider == "nanoidp" else "/reg"
        assert requests[:5] == [
            "POST /mcp 401",
            "GET /.well-known/oauth-protected-resource/mcp 200",
            "GET /.well-known/oauth-authorization-server 200",
            f"POST {registration} 201",
            "POST /token authorization_code 200",
        ]
        assert set(requests[5:]) == {"POST /mcp 200"}
        assert (await hub.reads.tasks("corp:alice", TaskFilter(), limit=1)).total == 1


async def test_a_client_renews_its_token(tmp_path: Path) -> None:
    async with logging_in(tmp_path, "oidc-provider", lifetime=1) as (_, client):
        await client.call("call", name="echo", message="hello")
        await client.call("log")  # the login, which on a busy machine takes longer than the token lives
        requests: list[str] = []
        while "POST /token refresh_token 200" not in requests:
            assert text_of(await client.call("call", name="echo", message="hello")) == "hello"
            requests = await client.call("log")
        # The client renews the token by itself: the gateway never refused it.
        assert set(requests) == {"POST /token refresh_token 200", "POST /mcp 200"}


async def test_a_client_logs_in_again_for_a_missing_scope(tmp_path: Path) -> None:
    access = [
        {"who": "*", "allow": ["discover", "read"]},
        {"who": "scope:agents:run", "allow": ["run"]},
    ]
    async with logging_in(tmp_path, "oidc-provider", scope="agents:read", access=access) as (hub, client):
        assert text_of(await client.call("call", name="echo", message="hello")) == "hello"
        requests = await client.call("log")
        assert [each for each in requests if not each.startswith("GET")] == [
            "POST /mcp 200",
            "POST /mcp 403",
            "POST /reg 201",
            "POST /token authorization_code 200",
            "POST /mcp 200",
            "POST /mcp 200",
        ]
        assert (await client.call("scope") or "").split() == ["agents:read", "agents:run"]
        assert (await hub.reads.tasks("corp:alice", TaskFilter(), limit=1)).total == 1
