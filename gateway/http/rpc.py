"""gRPC server (setting `grpc.listen`): each call becomes an ASGI request to the gateway's own application.

The middleware treats it as any other request: credentials, rules, limits, log line, metrics and traces. A client that
disconnects, and a deadline that passes, cancel the request and not the run.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

import grpc
import grpc.aio
from cryptography import x509
from cryptography.x509.oid import NameOID

from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.server.rpc import RpcFailure, RpcMethod, RpcService
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.gateway.exchange import SCOPE_KEY
from babelgate.gateway.http.client_certificate import CERTIFICATE_KEY, ClientCertificate, name_of
from babelgate.gateway.http.response import Message, Scope
from babelgate.gateway.http.tls import HANDSHAKE_TIMEOUT, trust_of
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.tls import TlsSettings

log = logging.getLogger("babelgate.grpc")

App = Callable[[Scope, Any, Any], Awaitable[None]]

_STREAMS: Final = 100
"""Maximum number of concurrent calls on one connection. RFC 9113, section 6.5.2, recommends at least 100."""
_KEEPALIVE: Final = 60_000
"""Milliseconds between two pings of a silent connection. Chosen."""
_KEEPALIVE_TIMEOUT: Final = 20_000
"""Milliseconds in which the client must answer a ping. Chosen."""
_METADATA_SIZE: Final = 64 * 1024
"""Maximum size of a call's metadata, in bytes. Chosen: that of the head of an HTTP request."""
_NOT_PASSED: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Metadata of a call that is not a header of the request, because it belongs to the connection or to the message."""
_OF_HTTP: Final = frozenset(
    {"cache-control", "connection", "content-length", "content-type", "date", "vary", "x-accel-buffering"}
)
"""Headers of a response that describe only HTTP. They are left out of the metadata of a gRPC response."""
_LARGE: Final = 64 * 1024
"""Size from which messages are converted in another thread, in bytes. Chosen: converting such a message takes
milliseconds."""
_END: Final = b"\n\n"
_DATA: Final = b"data: "


class RpcServer:
    """gRPC server of one gateway, in the event loop in which it is started."""

    def __init__(
        self,
        app: App,
        services: Sequence[RpcService],
        *,
        address: tuple[str, int],
        http_address: tuple[str, int],
        default_agent: Callable[[], str | None],
    ) -> None:
        """Create the server, which does not listen yet.

        - `address`: IP address and port to listen on
        - `http_address`: IP address and port of the HTTP server, for URLs in responses
        - `default_agent`: function that returns the name of the agent for calls that name none
        """
        self._app = app
        self._services = services
        self._address = address
        self._http_address = http_address
        self._default_agent = default_agent
        self._server: grpc.aio.Server | None = None
        self._ending = set[asyncio.Task[None]]()
        self._calls = 0
        self._is_stopping = False

    @property
    def active(self) -> int:
        """Number of calls that have not ended."""
        return self._calls

    async def start(self, settings: Settings) -> None:
        """Listen, with the certificates and limits in these settings. Raises OSError if the port cannot be used, or a
        file of certificates."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", settings.limits.body),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", _STREAMS),
                ("grpc.max_metadata_size", _METADATA_SIZE),
                ("grpc.absolute_max_metadata_size", _METADATA_SIZE),
                ("grpc.keepalive_time_ms", _KEEPALIVE),
                ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT),
                ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT * 1000)),
                ("grpc.so_reuseport", 1),  # the port is already bound by a socket that reserves it
            ],
            maximum_concurrent_rpcs=settings.limits.connections.total,
        )
        tls = settings.tls
        trust = trust_of(tls)
        for service in self._services:
            handlers = {name: self._handler(service, name, tls, trust) for name in service.methods}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.name, handlers),))
        host, port = self._address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                server.add_insecure_port(place)
            else:
                server.add_secure_port(place, _credentials(tls))
            await server.start()
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {place}: {error}") from error
        previous, self._server = self._server, server
        if previous is not None:
            self._end_later(previous, settings.drain)
        log.info("gRPC served address=%s tls=%s", place, "off" if tls is None else "on")

    def _end_later(self, server: grpc.aio.Server, seconds: float) -> None:
        """Stop an earlier server, whose certificates were replaced, in the background. Its calls have `seconds` to end.
        Its clients then connect to the new server."""
        ending = asyncio.ensure_future(server.stop(seconds))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def stop(self, seconds: float) -> None:
        """Accept no more calls, and wait for those that are open. After `seconds` they are cancelled."""
        self._is_stopping = True
        if self._server is not None:
            await self._server.stop(seconds)

    def _handler(self, service: RpcService, name: str, tls: TlsSettings | None, trust: bytes) -> Any:
        method = service.methods[name]
        answer = partial(self._answer, service, name, "http" if tls is None else "https", trust)
        if method.streams:

            async def stream(message: bytes, context: Any) -> None:
                await answer(message, context)

            return cast("Any", grpc).unary_stream_rpc_method_handler(stream)

        async def unary(message: bytes, context: Any) -> bytes:
            return await answer(message, context)

        return cast("Any", grpc).unary_unary_rpc_method_handler(unary)

    async def _answer(
        self, service: RpcService, name: str, scheme: str, trust: bytes, message: bytes, context: Any
    ) -> bytes:
        """Answer one call. Return the message of a method without a stream."""
        call = _Call(service.methods[name], context)
        self._calls += 1
        try:
            metadata = _headers_in(context)
            read = partial(call.method.read, message, dict(metadata), self._default_agent())
            request = await aside(read) if len(message) > _LARGE else read()
            client = _parse_peer(context.peer())
            scope: Scope = {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "2",
                "method": "POST",
                "scheme": scheme,
                "path": request.path,
                "raw_path": f"/{service.name}/{name}".encode(),  # the path of the call, which the log shows
                "root_path": "",
                "query_string": b"",
                "headers": _encode_headers([*metadata, *request.headers.items()], request.body),
                "server": self._local_address(client),
                "client": client,
                "extensions": {},
                "state": {},
                SCOPE_KEY: call.hang_up,
            }
            if trust and (certificate := _read_certificate(context, trust)) is not None:
                scope[CERTIFICATE_KEY] = certificate
            await self._app(scope, call.receiver(request.body), call.send)
            return await call.finish(is_stopping=self._is_stopping)
        except FaultError as error:
            await _abort(context, service.fail(error.fault))
        except RpcFailure as failure:
            await _abort(context, failure)
        except grpc.aio.AbortError:
            raise
        except Exception:
            log.exception("call failed method=/%s/%s", service.name, name)
            fault = Fault(code=FaultCode.INTERNAL, message="The gateway failed to answer this.")
            await _abort(context, service.fail(fault))
        finally:
            self._calls -= 1
        raise AssertionError("an aborted call does not return")

    def _local_address(self, client: tuple[str, int] | None) -> tuple[str, int]:
        """Return the address and port of the HTTP server, as the client reaches this machine.

        If the gateway listens on all addresses, it is the one from which the system sends to the client.
        """
        host, port = self._http_address
        if client is None or host not in ("0.0.0.0", "::"):
            return host, port
        family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sending:
                sending.connect(client)  # a datagram socket sends nothing to connect
                return sending.getsockname()[0], port
        except OSError:
            return host, port


class _Call:
    """One call: the ASGI functions of its request, and the conversion of what the application sends."""

    def __init__(self, method: RpcMethod, context: Any) -> None:
        self.method = method
        self._context = context
        self._message_of = method.open_writer()
        self._hung_up = asyncio.Event()
        self._status = 0
        self._is_stream = False
        self._received = bytearray()
        self._is_complete = False

    def hang_up(self) -> None:
        """End the call as if the connection was lost: the gateway stops, or the credential is no longer accepted."""
        self._hung_up.set()

    def receiver(self, body: bytes) -> Callable[[], Awaitable[Message]]:
        """Return the ASGI function that returns the request's body, and then the disconnect if the gateway hangs up. If
        the client disconnects, gRPC cancels the asyncio task of the call."""
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if pending:
                return pending.pop()
            await self._hung_up.wait()
            return {"type": "http.disconnect"}

        return receive

    async def send(self, message: Message) -> None:
        """Receive an ASGI message of the application. An event of a stream is written to the client before the next one
        is accepted, so a slow client slows the application down."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message["headers"]]
            media_type = next((value for name, value in headers if name == "content-type"), "")
            self._is_stream = media_type.startswith("text/event-stream")
            await self._context.send_initial_metadata(_metadata_of(headers))
            return
        self._received += message.get("body", b"")
        self._is_complete = not message.get("more_body", False)
        if self._is_stream:
            await self._write_events()

    async def _write_events(self) -> None:
        while (end := self._received.find(_END)) >= 0:
            event = bytes(self._received[:end])
            del self._received[: end + len(_END)]
            if event.startswith(_DATA):  # all others are heartbeats
                await self._context.write(await self._convert(event[len(_DATA) :]))

    async def _convert(self, body: bytes) -> bytes:
        """Return the message for a response or an event. Raises the errors of `RpcMethod.open_writer`."""
        if len(body) > _LARGE:
            return await aside(partial(self._message_of, body, self._status))
        return self._message_of(body, self._status)

    async def finish(self, *, is_stopping: bool) -> bytes:
        """Return the message of the response, which is empty for a stream. Raises RpcFailure for an error, and
        shutting_down or unavailable if the response is not complete."""
        if not self._is_complete or self._hung_up.is_set():
            code = FaultCode.SHUTTING_DOWN if is_stopping else FaultCode.UNAVAILABLE
            raise FaultError(code, "The response was cut off. Its run continues: subscribe to the task.")
        if self._is_stream:
            return b""
        return await self._convert(bytes(self._received))


async def _abort(context: Any, failure: RpcFailure) -> None:
    context.set_trailing_metadata((("grpc-status-details-bin", failure.details),))
    await context.abort(grpc.StatusCode[failure.code], failure.text[:1024])


def _headers_in(context: Any) -> list[tuple[str, str]]:
    """Return the metadata of a call as headers, with lower-case names. Values in bytes are left out."""
    metadata: Sequence[tuple[str, Any]] = context.invocation_metadata() or ()
    return [
        (name, value)
        for name, value in metadata
        if isinstance(value, str) and name not in _NOT_PASSED and not name.startswith(("grpc-", ":"))
    ]


def _encode_headers(headers: Sequence[tuple[str, str]], body: bytes) -> list[tuple[bytes, bytes]]:
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
    return [
        *encoded,
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]


def _metadata_of(headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers of a response as metadata, which has only printable ASCII."""
    return tuple(
        (name, value)
        for name, value in headers
        if name not in _OF_HTTP and not name.startswith("grpc-") and value.isascii() and value.isprintable()
    )


def _parse_peer(peer: str) -> tuple[str, int] | None:
    """Return the address and port of a client, such as `ipv4:127.0.0.1:1234` and `ipv6:%5B::1%5D:1234`. Return None
    for another form."""
    kind, _, place = unquote(peer).partition(":")
    host, _, port = place.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    """Return the certificates of the settings. Raises OSError if a file cannot be read.

    gRPC for Python can require client certificates or ignore them, but cannot make them optional.
    """
    is_required = tls.client == "required"
    authorities = tls.client_ca.read_bytes() if is_required and tls.client_ca is not None else None
    return grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.cert.read_bytes())],
        root_certificates=authorities,
        require_client_auth=is_required,
    )


def _read_certificate(context: Any, trust: bytes) -> ClientCertificate | None:
    """Return the client certificate of a call's connection, or None if it has none. `trust` is the digest of the CAs
    with which it was verified."""
    properties = cast("Mapping[str, Sequence[bytes]]", context.auth_context() or {})
    pem = next(iter(properties.get("x509_pem_cert", ())), None)
    if pem is None:
        return None
    certificate = x509.load_pem_x509_certificate(pem)
    return ClientCertificate(
        name=name_of(_describe(certificate)),
        credential_id=f"{certificate.serial_number:08x}"[-8:],
        expires_at=ssl.cert_time_to_seconds(certificate.not_valid_after_utc.strftime("%b %d %H:%M:%S %Y GMT")),
        trust=trust,
    )


def _describe(certificate: x509.Certificate) -> dict[str, Any]:
    """Return the names in a certificate in the form of `ssl.SSLSocket.getpeercert`."""
    names: list[tuple[str, str]] = []
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        kinds = (
            ("URI", x509.UniformResourceIdentifier),
            ("DNS", x509.DNSName),
            ("email", x509.RFC822Name),
        )
        for name, kind in kinds:
            names += [(name, value) for value in extension.get_values_for_type(kind)]
    common = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return {"subjectAltName": tuple(names), "subject": tuple((("commonName", each),) for each in common)}
