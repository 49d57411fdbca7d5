"""Proxy in front of a server of several protocols that changes the answers of one of them."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from tests import loopback
from tests.bridge import read_body
from tests.serving import serving

Bend = Callable[[str, str, Any], Any]
"""Function of the protocol, the path and the JSON of an answer or event. Returns the new JSON, or DROPPED to omit the
event."""

DROPPED: Final = object()


def protocol_of(path: str, headers: Mapping[str, str]) -> str:
    if path.startswith("/a2a/"):
        return f"a2a-{headers.get('a2a-version', '0.3')}"
    if "/ap/v1/" in path:
        return "aief"
    if path.startswith("/v1/"):
        return "openai-chat"
    first = path.split("/")[1]
    return first if first in ("acp", "agent-protocol", "mcp") else "langgraph"


@asynccontextmanager
async def bending(
    url: str, bend: Bend, *, drops: frozenset[str] = frozenset(), only: str = "/", authorization: str = ""
) -> AsyncGenerator[str]:
    """Run the proxy and yield its URL.

    `drops`: names of answer headers to remove, in lower case. `only`: prefix of the paths that exist. `authorization`:
    required Authorization header of requests.
    """
    async with (
        loopback.client(base_url=url, timeout=httpx.Timeout(30)) as http,
        serving(_Proxy(http, bend, drops, only, authorization)) as at,
    ):
        yield at


class _Proxy:
    def __init__(
        self, http: httpx.AsyncClient, bend: Bend, drops: frozenset[str], only: str, authorization: str
    ) -> None:
        self.http = http
        self.authorization = authorization
        self.only = only
        self.bend = bend
        self.drops = drops

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        content = await read_body(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["path"]
        is_stranger = self.authorization and headers.pop("authorization", "") != self.authorization
        if is_stranger or not path.startswith(self.only):
            await send({"type": "http.response.start", "status": 401 if is_stranger else 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        query = scope["query_string"].decode()
        request = self.http.build_request(
            scope["method"], f"{path}?{query}" if query else path, content=content, headers=headers
        )
        response = await self.http.send(request, stream=True)
        try:
            await self._answer(response, protocol_of(path, headers), path, send)
        finally:
            await response.aclose()

    async def _answer(self, response: httpx.Response, protocol: str, path: str, send: Any) -> None:
        skipped = {"content-length", "transfer-encoding", "date", "server", *self.drops}
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        sent = [(name, value) for name, value in headers if name.decode() not in skipped]
        await send({"type": "http.response.start", "status": response.status_code, "headers": sent})
        kind = response.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            async for event in self._events(response, protocol, path):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            content = b""
        else:
            content = await response.aread()
            if kind.startswith("application/json") and content:
                content = json.dumps(self.bend(protocol, path, json.loads(content))).encode()
            elif content:
                content = self.bend(protocol, path, content)
        await send({"type": "http.response.body", "body": content, "more_body": False})

    async def _events(self, response: httpx.Response, protocol: str, path: str) -> AsyncGenerator[bytes]:
        event: list[str] = []
        async for line in response.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                is_json = name == "data" and value != "[DONE]"
                bent = self.bend(protocol, path, json.loads(value)) if is_json else None
                event.append(line if not is_json else "" if bent is DROPPED else f"data: {json.dumps(bent)}")
                continue
            if all(event):
                yield ("\n".join(event) + "\n\n").encode()
            event = []
