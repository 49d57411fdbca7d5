"""Tests of requests to URLs of callers: they reach only public addresses and those that the configuration allows."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.outbound import Fetcher
from tests.certificate import self_signed

PUBLIC = "93.184.215.14"
LOOPBACK = ("127.0.0.0/8",)
BOUND = 30

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """Server that records its requests and answers each with the same function."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[str] = []
        self.port = 0
        self.reached = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached.set()
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length")), 0
            )
            self.requests.append(head + (await reader.readexactly(length)).decode())
            await self._answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has closed the connection
        finally:
            writer.close()


def saying(text: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return answer


HELLO = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


@asynccontextmanager
async def peer(answer: Answer = HELLO, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer]:
    server = Peer(answer)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await asyncio.wait_for(listener.wait_closed(), BOUND)


class Names:
    """Resolver that returns its answers in order, and then repeats the last one."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.lookups: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def refusal(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(FaultError) as caught:
        await fetcher.check(url)
    assert caught.value.fault.code is FaultCode.INVALID
    return caught.value.fault.message


@pytest.mark.parametrize("url", ["http://example.com/", "https://example.com:8443/hook?a=b"])
async def test_a_public_address_is_allowed_and_pinned(url: str) -> None:
    names = Names([PUBLIC])
    pinned = await Fetcher(resolve=names).check(url)
    assert pinned.addresses == (PUBLIC,)
    assert names.lookups == [("example.com", 80 if url.startswith("http:") else 8443)]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "192.0.0.8",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%1",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "3fff::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2001:0:7f00:1::",
        "no address at all",
    ],
)
async def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    message = await refusal(Fetcher(resolve=Names([address])), "http://inside.example/")
    assert "not a public address: inside.example" in message
    assert address not in message, "a caller must not learn the address of an internal name"


@pytest.mark.parametrize("address", ["2606:2800:21f:cb07::1", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"])
async def test_a_public_ipv6_address_passes(address: str) -> None:
    await Fetcher(resolve=Names([address])).check("http://example.com/")


async def test_a_name_with_one_private_address_is_refused() -> None:
    await refusal(Fetcher(resolve=Names([PUBLIC, "10.0.0.1"])), "http://example.com/")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://localhost/",
        "http://0/",
    ],
)
async def test_every_spelling_of_loopback_is_refused(url: str) -> None:
    await refusal(Fetcher(), url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com/",
        "example.com",
        "",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exam ple.com/",
        "http://example.com\n/",
        "http://[fe80::1%25eth0]/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://①②⑦.0.0.1/",
        "http://" + "a" * 70_000 + "/",
    ],
)
async def test_an_invalid_url_is_refused_before_the_lookup(url: str) -> None:
    names = Names([PUBLIC])
    message = await refusal(Fetcher(resolve=names), url)
    assert names.lookups == []
    assert "secret" not in message


async def test_a_name_without_addresses_is_refused() -> None:
    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    assert "cannot be found: no.example" in await refusal(Fetcher(resolve=nowhere), "http://no.example/")
    assert "cannot be found" in await refusal(Fetcher(resolve=Names([])), "http://no.example/")
    assert "cannot be found" in await refusal(Fetcher(), "http://" + "a" * 64 + ".example/")


async def test_a_silent_resolver_times_out() -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    async with asyncio.timeout(BOUND):
        await refusal(Fetcher(resolve=silent, connect_timeout=0.01), "http://slow.example/")


async def test_loopback_can_be_allowed() -> None:
    fetcher = Fetcher(LOOPBACK)
    async with peer() as server:
        assert await fetcher.get(f"http://127.0.0.1:{server.port}/a/b?c=d") == b"hello"
    assert server.requests[0].startswith("GET /a/b?c=d HTTP/1.1\r\n")
    await refusal(fetcher, "http://10.0.0.1/")


async def test_an_allowed_network_includes_its_ipv4_mapped_form() -> None:
    await Fetcher(LOOPBACK, resolve=Names(["::ffff:127.0.0.1"])).check("http://here.example/")
    await Fetcher(("fc00::/7",), resolve=Names(["fc00::1"])).check("http://here.example/")
    await refusal(Fetcher(("10.0.0.0/8",), resolve=Names(["::ffff:127.0.0.1"])), "http://here.example/")


async def test_the_connection_uses_the_address_that_was_checked() -> None:
    names = Names(["127.0.0.1"], ["10.255.255.1"])
    fetcher = Fetcher(LOOPBACK, resolve=names)
    async with peer() as server:
        assert await fetcher.get(f"http://rebinding.example:{server.port}/") == b"hello"
        assert len(names.lookups) == 1, "the name is resolved once, so a second answer cannot differ"
        assert f"Host: rebinding.example:{server.port}\r\n" in server.requests[0]
        with pytest.raises(FaultError):
            await fetcher.get(f"http://rebinding.example:{server.port}/")
    assert len(server.requests) == 1


async def test_the_next_address_is_tried_after_a_failed_connection() -> None:
    fetcher = Fetcher(LOOPBACK, resolve=Names(["127.0.0.2", "127.0.0.1"]))
    async with peer() as server:
        assert await fetcher.get(f"http://two.example:{server.port}/") == b"hello"


async def test_a_redirect_is_not_followed() -> None:
    async with peer() as inside:
        location = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{inside.port}/\r\nContent-Length: 0\r\n\r\n"
        async with peer(saying(location.encode())) as outside:
            fetcher = Fetcher(LOOPBACK)
            url = f"http://127.0.0.1:{outside.port}/"
            assert (await fetcher.post(url, {}, b"{}")).status == 302
            with pytest.raises(FaultError, match="status 302"):
                await fetcher.get(url)
    assert inside.requests == []


async def test_a_post_sends_headers_and_body_and_returns_the_status() -> None:
    fetcher = Fetcher(LOOPBACK)
    async with peer(saying(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        headers = {"Content-Type": "application/json", "X-A2A-Notification-Token": "t", "Host": "other.example"}
        response = await fetcher.post(f"http://127.0.0.1:{server.port}/hook", headers, b'{"a": 1}')
        assert (response.status, response.retry_after) == (204, None)
    request = server.requests[0]
    assert request.startswith("POST /hook HTTP/1.1\r\n")
    assert request.endswith('\r\n\r\n{"a": 1}')
    assert "x-a2a-notification-token: t\r\n" in request.lower()
    assert "other.example" not in request


async def test_a_streamed_body_has_a_content_length() -> None:
    value = {"text": "é" * 10**6}
    body = encode(value)
    assert isinstance(body, LargeJson)
    fetcher = Fetcher(LOOPBACK)
    async with peer(saying(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        assert (await fetcher.post(f"http://127.0.0.1:{server.port}/hook", {}, body)).status == 204
    head, _, sent = server.requests[0].partition("\r\n\r\n")
    assert json.loads(sent) == value
    assert "transfer-encoding" not in head.lower()


async def test_a_disconnection_during_a_streamed_body_is_an_os_error() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, asyncio.timeout(BOUND):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(ConnectionError):
            await Fetcher(LOOPBACK).post(url, {}, encode({"texts": ["x" * 2**20] * 32}))


async def test_a_cancelled_call_closes_its_connection() -> None:
    opened, closed = 0, asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            await reader.read()
        closed.release()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    fetcher = Fetcher(LOOPBACK)
    async with server, asyncio.timeout(BOUND):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await fetcher.post(url, {}, b"{}")
        for turns in range(200):
            call = asyncio.ensure_future(fetcher.post(url, {}, b"{}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait((call,))
        for _ in range(opened):
            await closed.acquire()


async def test_cookies_are_not_sent_with_the_next_call() -> None:
    fetcher = Fetcher(LOOPBACK)
    async with peer(saying(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")) as server:
        url = f"http://127.0.0.1:{server.port}/"
        await fetcher.post(url, {}, b"")
        await fetcher.post(url, {}, b"")
    assert len(server.requests) == 2
    assert "cookie" not in server.requests[1].lower()


async def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer() as proxy, peer() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        fetcher = Fetcher(LOOPBACK)
        await fetcher.get(f"http://127.0.0.1:{server.port}/")
    assert proxy.requests == []


@pytest.mark.parametrize("head", [b"Content-Length: 100000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
async def test_an_endless_body_is_read_up_to_the_limit(head: bytes) -> None:
    chunk = b"a" * 65536
    framed = chunk if b"Length" in head else b"10000\r\n" + chunk + b"\r\n"

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head)
        while True:
            writer.write(framed)
            await writer.drain()

    fetcher = Fetcher(LOOPBACK, limit=300_000)
    async with asyncio.timeout(BOUND), peer(endless) as server:
        with pytest.raises(FaultError, match="more than 300000 bytes"):
            await fetcher.get(f"http://127.0.0.1:{server.port}/")
        assert (await fetcher.post(f"http://127.0.0.1:{server.port}/", {}, b"")).status == 200, (
            "a body that is not read"
        )


async def test_a_compressed_answer_is_refused() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na")) as server:
        fetcher = Fetcher(LOOPBACK)
        with pytest.raises(FaultError, match="content encoding"):
            await fetcher.get(f"http://127.0.0.1:{server.port}/")
    assert "accept-encoding: identity" in server.requests[0].lower()


def impatient() -> Fetcher:
    """Return a fetcher with a short timeout. Its TLS context is loaded here, because that may take longer."""
    return Fetcher(LOOPBACK, total_timeout=0.3, tls=ssl.create_default_context())


async def test_a_slow_drip_ends_at_the_total_timeout() -> None:
    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.005)

    fetcher = impatient()
    async with asyncio.timeout(BOUND), peer(dripping) as server:
        with pytest.raises(FaultError, match="no answer in time"):
            await fetcher.get(f"http://127.0.0.1:{server.port}/")
        await server.reached.wait()


async def test_a_silent_receiver_is_an_os_error() -> None:
    released = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        await released.wait()

    fetcher = impatient()
    async with asyncio.timeout(BOUND), peer(silent) as server:
        with pytest.raises(OSError, match="no answer in time"):
            await fetcher.post(f"http://127.0.0.1:{server.port}/", {}, b"")
        await server.reached.wait()
        released.set()
    with pytest.raises(ConnectionError):
        await fetcher.post(f"http://127.0.0.1:{server.port}/", {}, b"")
    with pytest.raises(FaultError, match="cannot be fetched"):
        await fetcher.get(f"http://127.0.0.1:{server.port}/")


@pytest.mark.parametrize("value", ["a\r\nEvil: yes", "é", " sesame "])
async def test_an_invalid_header_is_refused(value: str) -> None:
    fetcher = Fetcher(LOOPBACK)
    async with peer() as server:
        with pytest.raises(FaultError, match="characters that HTTP does not allow") as error:
            await fetcher.post(f"http://127.0.0.1:{server.port}/", {"Authorization": value}, b"")
    assert value.strip() not in str(error.value)
    assert server.requests == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "hooks.example")


async def test_tls_is_verified_for_the_name_in_the_url(certificate: tuple[Path, Path]) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*certificate)
    names: list[str | None] = []
    served.sni_callback = lambda _socket, name, _context: names.append(name)
    trusted = ssl.create_default_context(cafile=str(certificate[0]))
    async with peer(tls=served) as server:
        fetcher = Fetcher(LOOPBACK, resolve=Names(["127.0.0.1"]), tls=trusted)
        assert await fetcher.get(f"https://hooks.example:{server.port}/") == b"hello"
        assert names == ["hooks.example"]
        with pytest.raises(ConnectionError, match="certificate"):
            await fetcher.post(f"https://other.example:{server.port}/", {}, b"")
        stranger = Fetcher(LOOPBACK, resolve=Names(["127.0.0.1"]))
        with pytest.raises(ConnectionError, match="certificate"):
            await stranger.post(f"https://hooks.example:{server.port}/", {}, b"")
    assert len(server.requests) == 1
