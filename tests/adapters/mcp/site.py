"""MCP client that sends exactly what a test passes. It speaks both eras of the protocol: versions with a handshake, and
the stateless version 2026-07-28."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import httpx

Wire = dict[str, Any]

ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
MODERN: Final = "2026-07-28"
_PREFIX: Final = "io.modelcontextprotocol/"
TASKS: Final = f"{_PREFIX}tasks"


@dataclass
class Client:
    http: httpx.AsyncClient
    path: str = "/mcp"
    capabilities: Wire = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    ids: "count[int]" = field(default_factory=lambda: count(1))

    def request(self, method: str, params: Wire, request_id: int | None = None) -> Wire:
        """Return the arguments of the request for httpx."""
        body: Wire = {"jsonrpc": "2.0", "method": method, "params": params}
        body["id"] = next(self.ids) if request_id is None else request_id
        return {"method": "POST", "url": self.path, "json": body, "headers": {**ACCEPT, **self.headers}}

    async def ask(self, method: str, params: Wire | None = None) -> Wire:
        """Send a request and return the response."""
        response = await self.http.request(**self.request(method, params or {}))
        return answer_of(response)

    async def call(self, tool: str, arguments: Wire | None = None, **params: Any) -> Wire:
        """Call a tool and return the result."""
        values = {"message": "go"} if arguments is None else arguments
        response = await self.ask("tools/call", {"name": tool, "arguments": values, **params})
        assert "result" in response, response
        return response["result"]


class Modern(Client):
    def request(self, method: str, params: Wire, request_id: int | None = None) -> Wire:
        meta = {f"{_PREFIX}protocolVersion": MODERN, f"{_PREFIX}clientCapabilities": self.capabilities}
        arguments = super().request(method, {**params, "_meta": {**meta, **params.get("_meta", {})}}, request_id)
        name = params.get("name") or params.get("taskId") or params.get("uri")
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
        return {**arguments, "headers": {**arguments["headers"], **headers}}


def messages_of(response: httpx.Response) -> list[Wire]:
    if response.headers["content-type"].startswith("text/event-stream"):
        lines = response.text.splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return [response.json()]


def answer_of(response: httpx.Response) -> Wire:
    return messages_of(response)[-1]


def text_of(result: Wire) -> str:
    return "".join(each["text"] for each in result["content"] if each["type"] == "text")


async def enter(http: httpx.AsyncClient, **capabilities: Any) -> tuple[Client, httpx.Response]:
    """Return a client of a version with a handshake after its handshake, and the response to `initialize`."""
    client = Client(http, capabilities=capabilities)
    hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
    response = await http.request(**client.request("initialize", hello))
    headers = {"MCP-Protocol-Version": "2025-11-25"}
    if "mcp-session-id" in response.headers:
        headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
    client.headers = headers
    answer = await http.post(
        "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=_headers(client)
    )
    assert answer.status_code == 202
    return client, response


def _headers(client: Client) -> dict[str, str]:
    return {**ACCEPT, **client.headers}


async def say(client: Client, message: Wire) -> int:
    """Send a notification, or a response to a request of the server, and return the status."""
    response = await client.http.post(client.path, json={"jsonrpc": "2.0", **message}, headers=_headers(client))
    return response.status_code


@asynccontextmanager
async def calling(client: Client, tool: str, request_id: int = 77, **params: Any) -> AsyncGenerator["Stream"]:
    """Call a tool and yield its stream; the client disconnects when the block ends."""
    request = client.request("tools/call", {"name": tool, "arguments": {"message": "go"}, **params}, request_id)
    async with client.http.stream(**request) as response:
        yield Stream(response)


class Stream:
    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Wire | None:
        """Return the next message, or None at the end."""
        async for line in self._lines:
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        return None
