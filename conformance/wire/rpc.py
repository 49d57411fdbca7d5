"""gRPC client through which a check makes all its calls. It records each call as an exchange with the JSON of its
messages, its metadata and its status, and validates the messages.

Needs the extra `babelgate[grpc]`, which is imported with the first call.
"""

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from babelgate.conformance.wire.exchange import CheckedMessage, Exchange, SseFrame
from babelgate.conformance.wire.http import MAX_BODY, MAX_FRAMES, TIMED_OUT, Unanswered, Wire
from babelgate.conformance.wire.schema import Violation
from babelgate.conformance.wire.tls import CLIENT_FILES, EXTRA_CA, PINNED

if TYPE_CHECKING:
    from babelgate.conformance.wire.protobuf import ProtoService

INSTALL: Final = "pip install 'babelgate[grpc]'"
"""Command that installs what calls need."""
HTTP_STATUSES: Final[Mapping[str, int]] = {
    "OK": 200,
    "CANCELLED": 499,
    "UNKNOWN": 500,
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
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
"""HTTP status that is equivalent to a gRPC status (google/rpc/code.proto)."""
_DETAILS: Final = "grpc-status-details-bin"
_NOT_SENT: Final = frozenset({"accept", "connection", "content-length", "content-type", "host", "te"})
"""Names of headers that are not sent as metadata, because gRPC sets them itself."""


def is_installed() -> bool:
    """Return True if gRPC calls can be made: the packages of `babelgate[grpc]` are installed."""
    return find_spec("grpc") is not None and find_spec("google.protobuf") is not None


class RpcClient:
    """Client for one service of a gRPC server. `url` is `grpc://host:port`, or `grpcs://host:port` with TLS."""

    def __init__(self, wire: Wire, url: str, service: "ProtoService") -> None:
        self.wire = wire
        self.url = url
        self.service = service

    async def call(
        self,
        method: str,
        message: bytes,
        *,
        sends: str | None,
        receives: str | None,
        fails: str | None,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> Exchange:
        """Call a method without a stream and return the exchange, which may have any status.

        `sends`, `receives` and `fails` name the schemas of the request, of the response and of an error; None validates
        nothing. `is_anonymous` and `bound` are those of `Wire.request`. Raises Unanswered if the call does not end in
        time.
        """
        streaming = self.stream(
            method,
            message,
            sends=sends,
            events=None,
            fails=fails,
            headers=headers,
            is_anonymous=is_anonymous,
            bound=bound,
        )
        async with streaming as stream:
            await stream.read(receives)
        return stream.exchange

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        message: bytes,
        *,
        sends: str | None,
        events: str | None,
        fails: str | None,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> AsyncGenerator["RpcStream"]:
        """Call a method and yield its response as soon as the first message or the status has arrived. Leaving the
        block cancels the call.

        `events` names the schema of the messages, the other parameters are those of `call`. Raises Unanswered if
        nothing arrives in time, or the connection breaks.
        """
        metadata = _metadata(self.wire.headers_to_send(self.url, headers, is_anonymous=is_anonymous))
        request_json = self.service.decode_request(method, message)
        body = json.dumps(request_json, ensure_ascii=False).encode()
        path = f"/{self.service.name}/{method}"
        exchange = self.wire.begin("POST", self.url + path, body, dict(metadata))
        if sends is not None:
            self.wire.hold(exchange, sends, request_json, is_from_check=True)
        call = _channel(self.wire, self.url).unary_stream(path)(message, metadata=metadata)
        bound = self.wire.timeout if bound is None else bound
        stream = RpcStream(self, exchange, call, method, bound, events, fails)
        try:
            await stream.begin()
            yield stream
        finally:
            call.cancel()
            exchange.seconds = stream.age


class RpcStream:
    """Response of one call, which is read message by message. The timeout applies to each message."""

    def __init__(
        self,
        client: RpcClient,
        exchange: Exchange,
        call: Any,
        method: str,
        bound: float,
        events: str | None,
        fails: str | None,
    ) -> None:
        self.exchange = exchange
        self._client = client
        self._call = call
        self._method = method
        self._bound = bound
        self._events = events
        self._fails = fails
        self._started = asyncio.get_running_loop().time()
        self._first: bytes | None = None
        """First message, until it is read."""
        self._is_over = False

    @property
    def rest(self) -> str:
        """Incomplete event at the end of the stream: always empty, because gRPC delivers only complete messages."""
        return ""

    @property
    def age(self) -> float:
        """Seconds since the call began."""
        return asyncio.get_running_loop().time() - self._started

    async def begin(self) -> None:
        """Wait for the first message, or for the status of a call without one. Raises Unanswered."""
        self._first = await self._receive(self._bound)
        if self._first is not None:
            self._note_status("OK")
            self.exchange.response_headers = _texts(await self._call.initial_metadata())
        self.exchange.is_message_stream = self.exchange.rpc_status == "OK"

    async def read(self, receives: str | None) -> None:
        """Read the one message of a response without a stream, and validate it. Raises Unanswered if the call does not
        end in time."""
        exchange, content = self.exchange, self._first
        exchange.is_message_stream = False
        if content is not None:
            await self._receive(self._bound)
            text = self._decode(content, receives)
            if exchange.rpc_status == "OK":
                exchange.content = text.encode()
        elif exchange.rpc_status == "OK":
            exchange.is_ended = False
            exchange.error = "the call ended with the status OK and without a message"

    async def next(self, bound: float | None = None) -> SseFrame | None:
        """Return the next message as an event with its JSON, or None at the end of the stream. `bound` is the maximum
        wait in seconds; None means the timeout of the call. Raises Unanswered if no message arrives in this time."""
        if not self.exchange.is_message_stream:
            return None
        content, self._first = self._first, None
        if content is None:
            content = await self._receive(self._bound if bound is None else bound)
        if content is None:
            return None
        text = self._decode(content, self._events)
        frame = SseFrame(self.age, text, text)
        self.exchange.frames.append(frame)
        if len(self.exchange.frames) > MAX_FRAMES:
            self.exchange.error = f"more than {MAX_FRAMES} messages: the rest was not read"
            raise Unanswered(self.exchange.error, self.exchange)
        return frame

    async def rest_of_it(self) -> Sequence[SseFrame]:
        """Read all further messages to the end, and return all messages of the stream. Raises Unanswered if a message
        does not arrive in time, or the connection breaks."""
        while await self.next() is not None:
            pass
        return self.exchange.frames

    async def _receive(self, bound: float) -> bytes | None:
        """Return the next message, or None at the end of the call, whose status is then in the exchange. Raises
        Unanswered."""
        import grpc.aio

        if self._is_over:
            return None
        try:
            async with asyncio.timeout(bound):
                content = await self._call.read()
                if isinstance(content, bytes):
                    return content
                trailing = await self._call.trailing_metadata()
        except TimeoutError:
            self.exchange.error = f"{TIMED_OUT} {bound:g} s"
            raise Unanswered(self.exchange.error, self.exchange) from None
        except grpc.aio.AioRpcError as error:
            self._is_over = True
            self._note_failure(error)
        else:
            self._is_over = self.exchange.is_ended = True
            self._note_status("OK", *_texts(trailing))
        return None

    def _note_status(self, name: str, *metadata: tuple[str, str]) -> None:
        self.exchange.rpc_status = name
        self.exchange.status = HTTP_STATUSES[name]
        self.exchange.response_headers += metadata

    def _note_failure(self, error: Any) -> None:
        """Record the status of a failed call. Raises Unanswered if the server has not sent it."""
        exchange, name, text = self.exchange, error.code().name, error.details() or ""
        trailing: list[tuple[str, Any]] = list(error.trailing_metadata() or ())
        if name == "UNAVAILABLE" and not trailing:  # gRPC reports a lost connection so
            exchange.error = text or "the connection was lost"
            raise Unanswered(exchange.error, exchange)
        exchange.is_ended = True
        status_texts = (("grpc-status", str(error.code().value[0])), ("grpc-message", text))
        self._note_status(name, *_texts(error.initial_metadata()), *_texts(trailing), *status_texts)
        status: Any = {"code": error.code().value[0], "message": text}
        details = next((value for key, value in trailing if key == _DETAILS and isinstance(value, bytes)), None)
        if details is not None:
            try:
                status = self._client.service.decode_status(details)
            except ValueError as why:
                self._note_invalid(self._fails, str(why))
            else:
                if self._fails is not None:
                    self._client.wire.hold(exchange, self._fails, status)
        exchange.content = json.dumps(status, ensure_ascii=False).encode()

    def _decode(self, content: bytes, schema: str | None) -> str:
        """Return the JSON of a message, and validate it. Return an empty text for bytes that are no message."""
        try:
            value = self._client.service.decode_response(self._method, content)
        except ValueError as error:
            self._note_invalid(schema, str(error))
            return ""
        if schema is not None:
            self._client.wire.hold(self.exchange, schema, value)
        return json.dumps(value, ensure_ascii=False)

    def _note_invalid(self, schema: str | None, why: str) -> None:
        if schema is not None and self._client.wire.schemas is not None:
            violation = Violation((schema,), "(the whole)", f"not such a message: {why}"[:200])
            self.exchange.messages.append(CheckedMessage(False, schema, (violation,), frozenset({schema})))


def _metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return headers as metadata, whose keys are in lower case. A header without a value is not sent."""
    sent = {name.lower(): value for name, value in headers.items()}
    return tuple((name, value) for name, value in sent.items() if value and name not in _NOT_SENT)


def _texts(metadata: Any) -> list[tuple[str, str]]:
    """Return metadata as headers, with binary values in base64."""
    return [
        (str(name), base64.b64encode(value).decode() if isinstance(value, bytes) else str(value))
        for name, value in metadata or ()
    ]


def _channel(wire: Wire, url: str) -> Any:
    """Return the connection to a server, which the wire closes at the end."""
    import grpc.aio

    if url not in wire.channels:
        parts = urlsplit(url)
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),  # a message that is sent twice would start two tasks
            ("grpc.max_receive_message_length", MAX_BODY),
            ("grpc.max_send_message_length", -1),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if parts.scheme == "grpcs":
            channel = grpc.aio.secure_channel(parts.netloc, _credentials(), options)
        else:
            channel = grpc.aio.insecure_channel(parts.netloc, options)
        wire.channels[url] = channel
        wire.closers.append(channel.close)
    return wire.channels[url]


def _credentials() -> Any:
    """Return the certificates for connections with TLS: those that `tls.open_context` has for HTTP. Raises OSError if a
    file cannot be used."""
    import grpc

    pinned, extra, files = os.environ.get(PINNED), EXTRA_CA.get(), CLIENT_FILES.get()
    if pinned is not None:
        roots = Path(pinned).read_bytes()
    else:
        loaded = httpx.create_ssl_context().get_ca_certs(binary_form=True)
        roots = "".join(ssl.DER_cert_to_PEM_cert(each) for each in loaded).encode()
        roots += b"" if extra is None else b"\n" + extra.read_bytes()
    chain, key = (None, None) if files is None else (files[0].read_bytes(), (files[1] or files[0]).read_bytes())
    return grpc.ssl_channel_credentials(roots, key, chain)
