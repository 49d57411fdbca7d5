"""HTTPX transport that streams from an ASGI app in this process.

`httpx.ASGITransport` collects the whole body before it returns, so a server that waits until its client has read the
first event would wait forever. Here the response begins with the app's first message, and closing it is a disconnect.

async with client(app) as http, http.stream("GET", "/events") as response: ...
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

import httpx
from litestar.types import ASGIApp

BOUND: Final = 30.0
"""Timeout for the beginning of a response, and for the end of the app after a disconnect, in seconds."""

Event = MutableMapping[str, Any]


class Bridge(httpx.AsyncBaseTransport):
    """A transport without lifespan: the test starts what the app needs."""

    def __init__(self, app: ASGIApp, *, peer: tuple[str, int] = ("127.0.0.1", 50000)) -> None:
        self._app = app
        self._peer = peer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(self._app, self._scope(request), request)
        start = await exchange.begin()
        return httpx.Response(start["status"], headers=list(start["headers"]), stream=exchange, request=request)

    def _scope(self, request: httpx.Request) -> dict[str, Any]:
        url = request.url
        path = url.raw_path.partition(b"?")[0]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": path,
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": self._peer,
            "server": (url.host, url.port or (443 if url.scheme == "https" else 80)),
            "extensions": {},
        }


class _Exchange(httpx.AsyncByteStream):
    """One request: the app runs in a separate task, and its queued messages are read as the body of the response."""

    def __init__(self, app: ASGIApp, scope: Any, request: httpx.Request) -> None:
        self._request = request
        # One message: an app with a slow reader waits in `send`, as on a socket.
        self._sent: asyncio.Queue[Event] = asyncio.Queue(1)
        self._gone = asyncio.Event()
        self._body = self._chunks()
        self._task = asyncio.get_running_loop().create_task(self._run(app, scope), name=str(request.url))

    async def begin(self) -> Event:
        try:
            async with asyncio.timeout(BOUND):
                start = await self._next()
        except BaseException:
            await self._end()
            raise
        assert start is not None, "the app ended without an answer"
        assert start["type"] == "http.response.start", start
        return start

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            event = await self._next()
            if event is None:
                raise httpx.RemoteProtocolError("the app ended before its answer did", request=self._request)
            more = event.get("more_body", False)
            if body := event.get("body", b""):
                yield body
        await self._task

    async def aclose(self) -> None:
        await self._end()

    async def _run(self, app: ASGIApp, scope: Any) -> None:
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        chunk = await anext(self._body, None)
        if chunk is not None:
            return chunk
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _chunks(self) -> AsyncGenerator[Event]:
        stream = self._request.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        async for chunk in stream:
            yield {"type": "http.request", "body": chunk, "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, event: Any) -> None:
        if self._gone.is_set():
            return
        putting = asyncio.ensure_future(self._sent.put(dict(event)))
        leaving = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((putting, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
            leaving.cancel()
        if event["type"] == "http.response.body" and not event.get("more_body", False):
            self._gone.set()  # servers send the same to an app that still receives after its response

    async def _next(self) -> Event | None:
        """Return the app's next message, or None when it has ended. Raise the app's exception if there was one."""
        if self._sent.empty():
            getting = asyncio.ensure_future(self._sent.get())
            try:
                await asyncio.wait((getting, self._task), return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    return getting.result()
            finally:
                getting.cancel()
        if not self._sent.empty():
            return self._sent.get_nowait()
        self._task.result()
        return None

    async def _end(self) -> None:
        """Disconnect, and wait until the app has ended. Raise its exception, if any."""
        self._gone.set()
        done, _ = await asyncio.wait((self._task,), timeout=BOUND)
        if not done:
            self._task.cancel()
            await asyncio.wait((self._task,))
            raise AssertionError("the app went on after its reader was gone")
        await self._body.aclose()
        self._task.result()


def client(app: ASGIApp, base_url: str = "http://127.0.0.1:8000", **options: Any) -> httpx.AsyncClient:
    """Return a client of an app. `base_url` contains the host that the caller addresses."""
    return httpx.AsyncClient(transport=Bridge(app), base_url=base_url, timeout=None, **options)


async def read_body(receive: Callable[[], Awaitable[Any]]) -> bytes:
    """Return the body of a request, for ASGI applications written by tests."""
    raw = b""
    while True:
        message = await receive()
        raw += message.get("body", b"")
        if not message.get("more_body"):
            return raw
