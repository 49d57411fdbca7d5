"""The bridge and the server of the tests: they pass an app's bytes on at once, and report a disconnect to the app."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from litestar import Litestar, get
from litestar.response import Stream

from tests import loopback
from tests.bridge import client
from tests.serving import serving

BOUND = 30


class Site:
    """An app that emits one half and waits until the reader disconnects."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

        @get("/halves")
        async def halves() -> Stream:
            return Stream(self.say())

        self.app = Litestar([halves], openapi_config=None, logging_config=None)

    async def say(self) -> AsyncIterator[bytes]:
        try:
            yield b"one "
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@asynccontextmanager
async def bridged(site: Site) -> AsyncGenerator[httpx.AsyncClient]:
    async with client(site.app) as http:
        yield http


@asynccontextmanager
async def over_sockets(site: Site) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(site.app) as url, loopback.client(base_url=url) as http:
        yield http


each_way = pytest.mark.parametrize("way", [bridged, over_sockets])


@each_way
async def test_a_disconnect_of_the_reader_is_detected(way: Any) -> None:
    site = Site()
    async with asyncio.timeout(BOUND), way(site) as http:
        async with http.stream("GET", "/halves") as response:
            assert await anext(response.aiter_raw()) == b"one "
        await site.closed.wait()


async def test_an_exception_of_an_app_reaches_the_test() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise LookupError("broken")

    async with client(app) as http:
        for path in ("/", "/late"):
            with pytest.raises(LookupError):
                await http.get(path)


async def test_a_response_without_an_end_is_an_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async with client(app) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/")


async def test_a_server_cuts_open_connections_at_its_end() -> None:
    site = Site()
    async with asyncio.timeout(BOUND), loopback.client() as http:
        async with serving(site.app, lifespan=True) as url:
            response = await http.send(http.build_request("GET", f"{url}/halves"), stream=True)
            body = response.aiter_raw()
            assert await anext(body) == b"one "
        assert site.closed.is_set()
        with pytest.raises(httpx.HTTPError):
            await anext(body)
        await response.aclose()
        with pytest.raises(httpx.ConnectError):
            await http.get(url)
