"""HTTP calls of an agent's server: proxies and redirects."""

import asyncio

import pytest

from babelgate.adapters.kit.client.calls import Calls
from babelgate.canonical import FaultError

BOUND = 30


async def get_agents(base: str, requests: list[str]) -> None:
    """Request /agents of a server at `base` and expect [] as the answer, and one entry in `requests`."""
    calls = Calls(base)
    try:
        async with asyncio.timeout(BOUND), calls.request("GET", "/agents", {}) as response:
            assert await calls.json(response) == []
    finally:
        await calls.aclose()
    assert len(requests) == 1


@pytest.mark.parametrize("exempt", [False, True])
async def test_calls_go_through_the_proxy_of_the_environment(exempt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9" if exempt else url)
        monkeypatch.setenv("no_proxy", "127.0.0.1" if exempt else "")
        await get_agents(url if exempt else "http://agent.example", requests)
    assert requests == ["GET /agents HTTP/1.1" if exempt else "GET http://agent.example/agents HTTP/1.1"]


@pytest.mark.parametrize(
    ("method", "status", "location", "answer"),
    [
        ("POST", 307, "/there/", "POST /there/"),
        ("POST", 308, "<base>/there/", "POST /there/"),
        ("GET", 301, "there", "GET /there"),
        ("GET", 303, "/there", "GET /there"),
        ("POST", 302, "/there", "302"),
        ("POST", 307, "http://localhost:1/there", "307"),
        ("GET", 302, "http://[", "302"),
        ("GET", 302, "/start", "302"),
    ],
)
async def test_a_redirect_within_its_origin_is_followed_with_its_method(
    method: str, status: int, location: str, answer: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = await reader.readexactly(2) if head.startswith("POST") else b""
        line = head.partition(" HTTP")[0]
        if line.endswith("/start"):
            target = location.replace("<base>", base)
            writer.write(f"HTTP/1.1 {status} No\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            content = f'"{line}"'.encode()
            assert body in (b"", b"{}") and "Authorization: Bearer key" in head
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(content))
            writer.write(b"Connection: close\r\n\r\n" + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        calls = Calls(base, headers={"Authorization": "Bearer key"})
        try:
            async with asyncio.timeout(BOUND):
                body = b"{}" if method == "POST" else None
                try:
                    async with calls.request(method, "/start", {}, body=body) as response:
                        result = await calls.json(response)
                except FaultError as error:
                    result = error.fault.message.removeprefix("The agent's server answered ")
        finally:
            await calls.aclose()
    assert result == answer
