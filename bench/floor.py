"""Simplest possible proxy: Litestar in front, httpx on aiohttp's connections behind, and bytes forwarded as they
arrive.

It stores nothing and parses nothing. Runs in an environment that has litestar, uvicorn and httpx-aiohttp.
"""

import os
from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import httpx_aiohttp
from litestar import Litestar, Request, Response, post
from litestar.response import Stream

UPSTREAM: Final = os.environ["BENCH_UPSTREAM"]
"""URL of the server to which the proxy forwards every call."""


@post("/a2a", status_code=200)
async def call(request: Request[Any, Any, Any]) -> Response[Any]:
    http: httpx.AsyncClient = request.app.state.http
    headers = {name: request.headers[name] for name in ("content-type", "a2a-version") if name in request.headers}
    sent = http.build_request("POST", UPSTREAM, content=await request.body(), headers=headers)
    answer = await http.send(sent, stream=True)
    media_type = answer.headers["content-type"]
    if media_type.startswith("text/event-stream"):
        return Stream(_chunks(answer), media_type=media_type)
    try:
        return Response(await answer.aread(), status_code=answer.status_code, media_type=media_type)
    finally:
        await answer.aclose()


async def _chunks(answer: httpx.Response) -> AsyncGenerator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()


async def _open(app: Litestar) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    app.state.http = httpx.AsyncClient(transport=httpx_aiohttp.AiohttpTransport(limits=limits), timeout=60)


app = Litestar([call], openapi_config=None, logging_config=None, on_startup=[_open])
