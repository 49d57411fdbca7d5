"""gRPC transport against real gRPC servers: headers, streams, errors, certificates, and refused addresses."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest

from babelgate.adapters.kit.client.calls import open_http
from babelgate.adapters.kit.client.exchanges import RECORDER, ExchangeRecorder
from babelgate.adapters.kit.client.rpc import CODEC, RpcCodec
from babelgate.adapters.kit.client.tls import ClientTls
from tests.authority import Authority, Pair

UNARY = RpcCodec(
    streams=False,
    encode=bytes.upper,
    decode=bytes.lower,
    decode_error=lambda status, name, text, details: f"{status} {name} {text} {details}".encode(),
)
STREAM = RpcCodec(streams=True, encode=UNARY.encode, decode=UNARY.decode, decode_error=UNARY.decode_error)


async def echo(message: bytes, context: Any) -> bytes:
    await context.send_initial_metadata((("seen", dict(context.invocation_metadata()).get("x-mine", "")),))
    return message


async def count(message: bytes, context: Any) -> AsyncGenerator[bytes]:
    for number in range(3):
        yield b"%b %d" % (message, number)


async def broken(message: bytes, context: Any) -> AsyncGenerator[bytes]:
    yield message
    context.set_trailing_metadata((("grpc-status-details-bin", b"details"),))
    await context.abort(grpc.StatusCode.INTERNAL, "in the middle")


async def refuse(message: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode[message.decode()], "no")
    return b""


async def large(message: bytes, context: Any) -> bytes:
    return b"x" * (65 * 1024 * 1024)


HANDLERS: dict[str, Any] = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Broken": grpc.unary_stream_rpc_method_handler(broken),
    "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    "Large": grpc.unary_unary_rpc_method_handler(large),
}


@asynccontextmanager
async def rpc_server(pair: Pair | None = None, roots: bytes | None = None) -> AsyncGenerator[str]:
    """Serve the handlers, and yield the URL. With `roots`, clients need a certificate of one of these CAs."""
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Service", HANDLERS),))
    if pair is None:
        port, scheme = server.add_insecure_port("127.0.0.1:0"), "grpc"
    else:
        keys = [(pair.key.read_bytes(), pair.cert.read_bytes())]
        credentials = grpc.ssl_server_credentials(keys, roots, require_client_auth=roots is not None)
        port, scheme = server.add_secure_port("127.0.0.1:0", credentials), "grpcs"
    await server.start()
    try:
        yield f"{scheme}://127.0.0.1:{port}/demo.Service"
    finally:
        await server.stop(0)


async def call(http: httpx.AsyncClient, url: str, body: bytes = b"hi", codec: RpcCodec = UNARY) -> httpx.Response:
    headers = {"X-Mine": "yes", "Accept": "application/json"}
    return await http.post(url, content=body, headers=headers, extensions={CODEC: codec})


async def test_headers_and_messages_pass_in_both_directions() -> None:
    async with rpc_server() as url, open_http() as http:
        response = await call(http, f"{url}/Echo", b"Hi")
        assert (response.status_code, response.content, response.headers["seen"]) == (200, b"hi", "yes")
        assert response.headers["content-type"] == "application/json"
        streamed = await call(http, f"{url}/Count", codec=STREAM)
    assert streamed.headers["content-type"] == "text/event-stream"
    assert streamed.content == b"data: hi 0\n\ndata: hi 1\n\ndata: hi 2\n\n"


@pytest.mark.parametrize(
    ("name", "status"),
    [("NOT_FOUND", 404), ("UNIMPLEMENTED", 501), ("RESOURCE_EXHAUSTED", 429), ("DATA_LOSS", 500), ("ABORTED", 409)],
)
async def test_errors_have_the_http_status_of_their_grpc_status(name: str, status: int) -> None:
    async with rpc_server() as url, open_http() as http:
        response = await call(http, f"{url}/Refuse", name.encode())
    assert (response.status_code, response.content) == (status, f"{status} {name} no None".encode())


async def test_an_error_in_a_stream_is_its_last_event() -> None:
    async with rpc_server() as url, open_http() as http:
        response = await call(http, f"{url}/Broken", codec=STREAM)
    assert response.content == b"data: hi\n\ndata: 500 INTERNAL in the middle b'details'\n\n"


async def test_a_response_above_the_limit_is_no_rate_limit() -> None:
    async with rpc_server() as url, open_http() as http:
        assert (await call(http, f"{url}/Large")).status_code == 413


async def test_lost_and_missing_connections_are_transport_errors() -> None:
    async with open_http() as http:
        async with rpc_server() as url:
            with pytest.raises(httpx.ReadError):
                await call(http, f"{url}/Refuse", b"UNAVAILABLE")
        with pytest.raises(httpx.TransportError):
            await call(http, f"{url}/Echo")
        with pytest.raises(httpx.ConnectError):
            await call(http, "grpc://unknown.invalid:1/demo.Service/Echo")


async def test_refused_addresses_are_not_connected_to() -> None:
    def check(address: str) -> None:
        raise PermissionError(13, f"refused {address}")

    async with rpc_server() as url, open_http(check) as http:
        with pytest.raises(httpx.ConnectError, match=r"refused 127\.0\.0\.1"):
            await call(http, f"{url}/Echo")


def _no_tls(authority: Authority, client: Pair) -> ClientTls | None:
    return None


def _with_ca(authority: Authority, client: Pair) -> ClientTls | None:
    return ClientTls(authority.path)


def _with_client(authority: Authority, client: Pair) -> ClientTls | None:
    return ClientTls(authority.path, client.cert, client.key)


@pytest.mark.parametrize(
    ("make", "needs_client", "is_accepted"),
    [
        (_no_tls, False, False),
        (_with_ca, False, True),
        (_with_ca, True, False),
        (_with_client, True, True),
    ],
)
async def test_certificates_are_checked_on_both_sides(
    tmp_path: Path, make: Callable[[Authority, Pair], ClientTls | None], needs_client: bool, is_accepted: bool
) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue("server", "127.0.0.1"), authority.issue("client", "me@example.com")
    async with (
        rpc_server(server, authority.certificate if needs_client else None) as url,
        open_http(tls=make(authority, client)) as http,
    ):
        if is_accepted:
            assert (await call(http, f"{url}/Echo")).content == b"hi"
        else:
            with pytest.raises(httpx.TransportError):
                await call(http, f"{url}/Echo")


async def test_exchanges_are_recorded_as_json() -> None:
    recorder = ExchangeRecorder(lambda: 0, lambda _, size: None)
    token = RECORDER.set(recorder)
    try:
        async with rpc_server() as url, open_http() as http:
            await call(http, f"{url}/Count", codec=STREAM)
            await call(http, f"{url}/Refuse", b"NOT_FOUND")
    finally:
        RECORDER.reset(token)
    counted, refused = recorder.exchanges
    assert (counted.url, counted.status, counted.has_ended) == (f"{url}/Count", 200, True)
    request, response = counted.bodies()
    assert [piece for _, piece in request] == [b"hi"]
    assert b"".join(piece for _, piece in response) == b"data: hi 0\n\ndata: hi 1\n\ndata: hi 2\n\n"
    assert (refused.status, refused.has_failed) == (404, True)
