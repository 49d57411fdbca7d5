"""The official MCP client with its OAuth client: a scripted browser logs in as a user of the identity provider.

Options: base_url, username, and `tokens` from an earlier login.
"""

import asyncio
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx2
from lines import answer_calls, options
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel

REDIRECT = "http://127.0.0.1:9/callback"
"""URL at which no server listens: the browser reads the code from the last redirect."""


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Form(HTMLParser):
    """The first form of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._is_over = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = attributes.get("action") or ""
        elif tag == "input" and self.action is not None and not self._is_over and attributes.get("name"):
            self.fields[attributes["name"] or ""] = attributes.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        self._is_over = self._is_over or (tag == "form" and self.action is not None)


class Browser:
    """A browser whose user fills in each form with their name, and consents."""

    def __init__(self, username: str) -> None:
        self._username = username
        self._landed = ""

    async def visit(self, url: str) -> None:
        """Open the login page, and follow it to the redirect of the client."""
        async with httpx2.AsyncClient() as http:
            response = await http.get(url)
            while True:
                if response.has_redirect_location:
                    url = urljoin(str(response.url), response.headers["location"])
                    if url.startswith(REDIRECT):
                        self._landed = url
                        return
                    response = await http.get(url)
                    continue
                response.raise_for_status()
                form = Form(response.text)
                for name in form.fields:
                    if re.fullmatch("username|login", name):
                        form.fields[name] = self._username
                    elif name == "password":
                        form.fields[name] = "password"
                target = urljoin(str(response.url), form.action or str(response.url))
                response = await http.post(target, data=form.fields)

    async def result(self) -> AuthorizationCodeResult:
        """Return the parameters of the redirect."""
        query = dict(parse_qsl(urlsplit(self._landed).query))
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


class Storage:
    """Tokens and registration, in memory."""

    def __init__(self, tokens: OAuthToken | None) -> None:
        self._tokens = tokens
        self._info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._info = client_info


class Calls:
    """Calls of the test, one method each."""

    def __init__(self, base_url: str, username: str, tokens: OAuthToken | None) -> None:
        self._url = f"{base_url}/mcp"
        self._requests: list[str] = []
        self._storage = Storage(tokens)
        browser = Browser(username)
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="test")
        self._auth = OAuthClientProvider(self._url, metadata, self._storage, browser.visit, browser.result)

    async def _note(self, response: httpx2.Response) -> None:
        form = dict(parse_qsl(response.request.content.decode(errors="replace")))
        grant = f" {form['grant_type']}" if "grant_type" in form else ""
        url = response.request.url
        self._requests.append(f"{response.request.method} {url.path}{grant} {response.status_code}")

    async def call(self, name: str, **arguments: Any) -> Any:
        """Call a tool on a new connection. Tokens are kept from call to call."""
        async with create_mcp_http_client(auth=self._auth) as http:
            http.event_hooks["response"].append(self._note)
            async with Client(streamable_http_client(self._url, http_client=http)) as client:
                return dump(await client.call_tool(name, arguments))

    async def log(self) -> list[str]:
        """Return the requests so far, and forget them."""
        requests, self._requests = self._requests, []
        return requests

    async def scope(self) -> str | None:
        """Return the scope of the current token."""
        tokens = await self._storage.get_tokens()
        return tokens.scope if tokens is not None else None


async def main() -> None:
    settings = options()
    tokens = OAuthToken.model_validate(settings["tokens"]) if "tokens" in settings else None
    calls = Calls(settings["base_url"], settings["username"], tokens)
    methods = {name: getattr(calls, name) for name in ("call", "log", "scope")}
    await answer_calls(methods, lambda error: error.code if isinstance(error, MCPError) else None)


if __name__ == "__main__":
    asyncio.run(main())
