"""gRPC transport of HTTPX: requests with JSON to `grpc://` and `grpcs://` URLs become gRPC calls.

So everything around an HTTP call also holds for gRPC: headers, tokens, timeouts, limits, traces, and the recording of
exchanges, which has the JSON. A unary response is a JSON body, and a stream an event stream. An error has the HTTP
status that belongs to its gRPC status. Needs the extra `babelgate[grpc]`, which is imported with the first call.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import httpx

from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.client.answers import ANSWER_LIMIT, READ
from babelgate.adapters.kit.client.exchanges import RECORDER, RecordedExchange
from babelgate.adapters.kit.client.tls import CLIENT_FILES, EXTRA_CA, ClientTls

CODEC: Final = "babelgate.rpc"
"""Key in the extensions of a request: the `RpcCodec` of its method."""
SCHEMES: Final = ("grpc://", "grpcs://")
_STATUS: Final = {
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "UNAUTHENTICATED": 401,
}
"""HTTP status of an error by the name of its gRPC status (google/rpc/code.proto). All others are 500."""
_DETAILS: Final = "grpc-status-details-bin"
_TOO_LARGE: Final = "larger than max"
"""Part of gRPC's own text for a message that exceeds the limit of the receiver."""
_LARGE: Final = 64 * 1024
"""Size from which messages are converted in another thread, in bytes. Chosen: converting such a message takes
milliseconds."""
_NOT_SENT: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "te"),
        *("transfer-encoding", "user-agent"),
    }
)
"""Names of a request's headers that are not sent as metadata of the call, because gRPC sets them itself."""
_KEEPALIVE: Final = 60_000
"""Milliseconds between two pings of a connection with open calls. Chosen."""
CheckAddress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RpcCodec:
    """Conversion of one method's messages. The path of the URL names the method, such as `/package.Service/Method`."""

    streams: bool
    """True if the response is a stream."""
    encode: Callable[[bytes], bytes]
    """Function that returns the message for the JSON of a request."""
    decode: Callable[[bytes], bytes]
    """Function that returns the JSON, on one line, for a message of the response. Raises agent_invalid for bytes that
    are no such message."""
    decode_error: Callable[[int, str, str, bytes | None], bytes]
    """Function that returns the JSON of an error: (HTTP status, name of the gRPC status, text, `google.rpc.Status` as
    bytes) → JSON."""


def is_installed() -> bool:
    """Return True if gRPC calls can be made: the packages of `babelgate[grpc]` are installed."""
    return find_spec("grpc") is not None and find_spec("google.protobuf") is not None


class RpcTransport(httpx.AsyncBaseTransport):
    """Transport for gRPC URLs. It has one connection for each server, without a proxy.

    - `check_address` gets each address of a server before a connection is opened, and raises OSError to refuse it.
    - `tls` has the certificates for `grpcs://`. By default the CAs of the system are trusted.
    """

    def __init__(self, check_address: CheckAddress | None = None, tls: ClientTls | None = None) -> None:
        self._check_address = check_address
        self._tls = tls
        self._channels: dict[tuple[str, str, int], Any] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a call, and return its response as soon as the first message or the error has arrived. Raises
        httpx.TransportError, as every transport of HTTPX does, and the faults of the codec."""
        recorder = RECORDER.get()
        exchange = None if recorder is None else recorder.begin(request.method, str(request.url), request.headers.raw)
        if exchange is None:
            return await self._send(request, None)
        try:
            return await self._send(request, exchange)
        except BaseException as error:
            exchange.note_end(error)
            raise

    async def _send(self, request: httpx.Request, exchange: RecordedExchange | None) -> httpx.Response:
        codec: RpcCodec = request.extensions[CODEC]
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        pieces: Any = request.stream if exchange is None else exchange.send(request.stream)
        body = b"".join([piece async for piece in pieces])
        encode = partial(codec.encode, body)
        message = await aside(encode) if len(body) > _LARGE else encode()
        channel = await self._open_channel(request.url, timeouts.get("connect"))
        call = channel.unary_stream(request.url.path)(message, metadata=_metadata(request))
        response = _Response(call, codec, timeouts.get("read"), exchange)
        try:
            return await response.begin()
        except BaseException:
            call.cancel()
            raise

    async def _open_channel(self, url: httpx.URL, seconds: float | None) -> Any:
        """Return a channel with an open connection. Raises httpx.ConnectError, and httpx.ConnectTimeout after `seconds`
        without one."""
        import grpc

        place = (url.scheme, url.host, url.port or 443)
        try:
            async with asyncio.timeout(seconds):
                channel = self._channels.get(place)
                if channel is None:
                    channel = self._channels[place] = await self._make_channel(*place)
                while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                        raise httpx.ConnectError("The gRPC server does not accept the connection")
                    await channel.wait_for_state_change(state)
        except TimeoutError as error:
            await self._forget(place)
            raise httpx.ConnectTimeout("") from error
        except httpx.ConnectError:
            await self._forget(place)
            raise
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return channel

    async def _forget(self, place: tuple[str, str, int]) -> None:
        """Close the channel of a server (scheme, host and port) that cannot connect. The next call then resolves the
        name again."""
        channel = self._channels.pop(place, None)
        if channel is not None:
            await channel.close()

    async def _make_channel(self, scheme: str, host: str, port: int) -> Any:
        """Return a channel to the addresses that a name has now. Raises OSError for an unknown name, a refused address,
        and a file of certificates that cannot be used."""
        import grpc.aio

        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family = min(found, key=lambda each: each[0] != socket.AF_INET)[0]
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found if each[0] == family))
        if self._check_address is not None:
            for address in addresses:
                self._check_address(address)
        if family == socket.AF_INET:
            target = "ipv4:" + ",".join(f"{address}:{port}" for address in addresses)
        else:
            target = "ipv6:" + ",".join(f"[{address}]:{port}" for address in addresses)
        options = [
            ("grpc.default_authority", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),  # a message that is sent twice would start two tasks
            ("grpc.keepalive_time_ms", _KEEPALIVE),
            ("grpc.max_receive_message_length", ANSWER_LIMIT),
            ("grpc.max_send_message_length", -1),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.use_local_subchannel_pool", 1),  # another agent may have another client certificate
        ]
        if scheme == "grpc":
            return grpc.aio.insecure_channel(target, options)
        options.append(("grpc.ssl_target_name_override", host))
        return grpc.aio.secure_channel(target, _credentials(self._tls), options)

    async def aclose(self) -> None:
        """Close all connections."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()


def _credentials(tls: ClientTls | None) -> Any:
    """Return the certificates of connections. Raises OSError for a file that cannot be read."""
    import grpc

    tls = tls or ClientTls()
    files = CLIENT_FILES.get() if tls.cert is None else (tls.cert, tls.key)
    key = chain = None
    if files is not None:
        cert_file, key_file = files
        chain, key = cert_file.read_bytes(), (key_file or cert_file).read_bytes()
    extra = EXTRA_CA.get()
    roots = tls.ca.read_bytes() if tls.ca is not None else _system_roots()
    if extra is not None and tls.ca is None:
        roots += b"\n" + extra.read_bytes()
    return grpc.ssl_channel_credentials(roots, key, chain)


def _system_roots() -> bytes:
    """Return the CAs that are trusted by default: those that HTTPX trusts."""
    loaded = httpx.create_ssl_context().get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in loaded).encode()


def _metadata(request: httpx.Request) -> tuple[tuple[str, str], ...]:
    """Return the headers of a request as the metadata of a call. Raises httpx.LocalProtocolError for a value that is
    not printable ASCII."""
    metadata: list[tuple[str, str]] = []
    for name, value in request.headers.items():
        if name in _NOT_SENT or name.endswith("-bin"):
            continue
        if not (value.isascii() and value.isprintable()):
            raise httpx.LocalProtocolError(f"The header {name} has characters that gRPC cannot send")
        metadata.append((name, value))
    return tuple(metadata)


class _Response:
    """Response to one call, while its messages arrive."""

    def __init__(self, call: Any, codec: RpcCodec, timeout: float | None, exchange: RecordedExchange | None) -> None:
        self._call = call
        self._codec = codec
        self._read_timeout = timeout
        self._exchange = exchange
        self._first: bytes | None = None
        """First chunk of the body, which `begin` has read."""
        self._has_ended = False

    async def begin(self) -> httpx.Response:
        """Wait for the first message or the error. Raises httpx.TransportError if the connection breaks before."""
        status, headers = 200, dict[str, str]()
        media_type = "text/event-stream" if self._codec.streams else "application/json"
        try:
            headers = await self._wait(self._read_headers())
            content = await self._wait(self._call.read())
            if not self._codec.streams:
                await self._wait(self._call.read())  # the end of the call, or its error
        except httpx.TransportError:
            raise
        except Exception as error:
            status, self._first = self._read_error(error)
            media_type = "application/json"
            self._has_ended = True
        else:
            self._first = await self._convert(content)
        headers["content-type"] = media_type
        encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        if self._exchange is not None:
            self._exchange.note_head(status, encoded)
        body = _Body(self)
        return httpx.Response(status, headers=encoded, stream=body, extensions={READ: self.read})

    async def _read_headers(self) -> dict[str, str]:
        metadata = await self._call.initial_metadata() or ()
        return {name: value for name, value in metadata if isinstance(value, str)}

    async def _wait(self, reading: Any) -> Any:
        try:
            async with asyncio.timeout(self._read_timeout):
                return await reading
        except TimeoutError as error:
            raise httpx.ReadTimeout("") from error

    async def _convert(self, content: Any) -> bytes:
        """Return a message as a chunk of the body, or no bytes at the end of the call. Raises the faults of the
        codec."""
        if not isinstance(content, bytes):  # grpc.aio.EOF
            self._has_ended = True
            return b""
        decode = partial(self._codec.decode, content)
        decoded = await aside(decode) if len(content) > _LARGE else decode()
        if self._codec.streams:
            return b"data: " + decoded + b"\n\n"
        self._has_ended = True
        return decoded

    def _read_error(self, error: Exception) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON of an error that the server has sent. Raises httpx.ReadError if the
        connection is lost."""
        import grpc.aio

        if not isinstance(error, grpc.aio.AioRpcError):
            raise error
        details = next((value for name, value in error.trailing_metadata() or () if name == _DETAILS), None)
        name, text = error.code().name, error.details() or ""
        if name == "UNAVAILABLE" and details is None:  # gRPC reports a lost connection so, too
            raise httpx.ReadError(text[:200]) from error
        status = _STATUS.get(name, 500)
        if name == "RESOURCE_EXHAUSTED" and _TOO_LARGE in text:
            status = 413
        return status, self._codec.decode_error(status, name, text, details if isinstance(details, bytes) else None)

    async def read(self) -> bytes:
        """Return the next chunk of the body, or b"" at the end. Raises httpx.TransportError if the connection is
        lost."""
        try:
            chunk = await self._next()
        except BaseException as error:
            if self._exchange is not None:
                self._exchange.note_end(error)
            raise
        if self._exchange is not None:
            if chunk:
                self._exchange.note_piece(chunk)
            else:
                self._exchange.note_end()
        return chunk

    async def _next(self) -> bytes:
        first, self._first = self._first, None
        if first is not None:
            return first
        if self._has_ended:
            return b""
        try:
            content = await self._wait(self._call.read())
        except httpx.TransportError:
            raise
        except Exception as error:
            self._has_ended = True
            return b"data: " + self._read_error(error)[1] + b"\n\n"
        return await self._convert(content)

    def close(self) -> None:
        self._call.cancel()
        if self._exchange is not None:
            self._exchange.note_end()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: _Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while chunk := await self._response.read():
            yield chunk

    async def aclose(self) -> None:
        self._response.close()
