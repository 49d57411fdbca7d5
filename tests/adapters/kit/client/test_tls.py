"""Tests of TLS to servers: the certificates of a client, and the words for a handshake that failed."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.adapters.kit.client.calls import Calls, open_http
from babelgate.adapters.kit.client.tls import EXTRA_CA, ClientTls, explain_failure, has_dropped_client
from babelgate.canonical import FaultError
from tests.authority import Authority, Pair, serving_options
from tests.serving import serving


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


@asynccontextmanager
async def server(pair: Pair | None, client_ca: Path | None = None) -> AsyncGenerator[str]:
    """Serve with a certificate, or without TLS, and yield the https URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if pair is not None:
        context.load_cert_chain(*pair)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    options: dict[str, Any] = {} if pair is None else serving_options(context)
    async with serving(answer, **options) as url:
        yield url.replace("http:", "https:")


async def outcome(url: str, tls: ClientTls | None) -> str:
    """Return the reason why a call failed, or "ok"."""
    async with open_http(tls=tls) as http:
        try:
            async with Calls(url, http=http).request("GET", "/", {}):
                return "ok"
        except FaultError as error:
            assert "tls" not in error.fault.message  # callers learn nothing about hosts and files
            reason = explain_failure(error, url, tls)
            return "dropped" if reason is None and has_dropped_client(error) else str(reason)


async def test_each_failed_handshake_has_its_reason(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    good = authority.issue("good", "127.0.0.1")
    late, elsewhere = authority.issue("late", "127.0.0.1", days=-1), authority.issue("name", "b.example")
    client = authority.issue("client", "alice.example.com")
    trusting, mistaken = ClientTls(authority.path), ClientTls(other.path)
    mutual = ClientTls(authority.path, *client)
    foreign = ClientTls(authority.path, *other.issue("eve", "eve.example"))
    cases = [
        (good, None, trusting, "ok"),
        (good, authority.path, mutual, "ok"),
        (good, None, None, "tls: the certificate of PLACE is not signed by a CA of this system: set tls.ca"),
        (good, None, mistaken, f"tls: the certificate of PLACE is not signed by a CA in {other.path}"),
        (late, None, trusting, "tls: the certificate of PLACE has expired"),
        (elsewhere, None, trusting, "tls: the certificate of PLACE is for another host"),
        (None, None, trusting, "tls: PLACE does not speak TLS: its URL may begin with http://"),
        (good, authority.path, trusting, "dropped"),
        (good, authority.path, foreign, "dropped"),
    ]
    for pair, client_ca, tls, expected in cases:
        async with server(pair, client_ca) as url:
            words = await outcome(url, tls)
            if expected == "dropped" and words != "dropped":  # the alert of the server came first
                assert words.startswith(f"tls: {url} ") and "client certificate" in words
            else:
                assert words == expected.replace("PLACE", url)


async def test_a_file_that_cannot_be_used_fails_the_call(tmp_path: Path) -> None:
    async with open_http(tls=ClientTls(tmp_path / "none")) as http:
        with pytest.raises(httpx.ConnectError, match="A file of certificates cannot be used: "):
            await http.get("https://127.0.0.1:9")


@pytest.mark.parametrize("trusted", ["ca.pem", "good.crt"])
async def test_an_extra_file_is_trusted_in_its_context(tmp_path: Path, trusted: str) -> None:
    good = Authority(tmp_path).issue("good", "127.0.0.1")

    async def call(url: str) -> str:
        EXTRA_CA.set(tmp_path / trusted)
        return await outcome(url, None)

    async with server(good) as url:
        assert await asyncio.ensure_future(call(url)) == "ok"
        assert "is not signed by" in await outcome(url, None)
