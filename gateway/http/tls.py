"""TLS of the gateway's own ports, with certificates that are renewed while connections are open."""

import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.certificates import (
    CertificateError,
    check_files,
    describe_end,
    load_authorities,
    load_pair,
)
from babelgate.gateway.settings.tls import TlsSettings

log = logging.getLogger("babelgate.tls")

HANDSHAKE_TIMEOUT: Final = 10.0
"""Maximum duration of a handshake, in seconds. Chosen: it takes three round trips at most."""
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2, all with forward secrecy and authenticated encryption (RFC 9325, section 4.2). TLS 1.3 has no
others."""
_WARN_EVERY: Final = 86_400.0
"""Seconds between two warnings about a certificate that will expire soon. Chosen."""
_MODES: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class _Context(ssl.SSLContext):
    """TLS context with the certificate files as they were when it was created."""

    trust: bytes = b""
    """Digest of the CAs by which client certificates are verified; empty if they are not."""


class LiveContext(ssl.SSLContext):
    """TLS context of a server that passes each new connection to its `current` context.

    A context that is in use cannot be changed safely: a certificate whose key does not match would stay in it, and a CA
    cannot be removed. So a renewal of the certificates replaces `current`.
    """

    current: ssl.SSLContext

    def __new__(cls, current: ssl.SSLContext) -> "LiveContext":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, current: ssl.SSLContext) -> None:
        """Create the context. `current` is the context for the first connections."""
        super().__init__()
        self.current = current

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Return the TLS object of a new connection that the event loop accepts."""
        return self.current.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Return the TLS socket of a new connection that a thread accepts."""
        return self.current.wrap_socket(*args, **options)


class ServerTls:
    """Certificate of the gateway's ports, and the CAs by which client certificates are verified."""

    def __init__(
        self,
        settings: TlsSettings,
        observer: GatewayObserver = NO_OBSERVER,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Read the certificate files in the settings. `now` returns the time in seconds since 1970. Raises
        CertificateError if a file cannot be used."""
        self._observer = observer
        self._now = now
        self._settings = settings
        self.expires_at = 0.0
        """Time at which the certificate ends, in seconds since 1970."""
        self._warned_at = float("-inf")
        self.context = LiveContext(self._read(settings))
        """Context for the servers of the event loop and of threads. It stays the same when certificates are renewed."""
        self._report()

    @property
    def settings(self) -> TlsSettings:
        """Settings whose certificate files are in use."""
        return self._settings

    @property
    def trust(self) -> bytes:
        """Digest of the CAs by which client certificates are verified; empty if they are not."""
        return trust_of(self._settings)

    def renew(self, settings: TlsSettings) -> bool:
        """Use the certificate files for new connections, if their content or the settings have changed.

        Return True if open connections must verify their client certificates again. Files that cannot be used are
        logged, and change nothing.
        """
        before, trust = self._settings, self.trust
        if before == settings:
            return False
        try:
            context = self._read(settings)
        except CertificateError as error:
            log.error("certificate not renewed: tls.%s: %s", error.key, error)
            return False
        self._settings, self.context.current = settings, context
        self._warned_at = float("-inf")
        self._report()
        return self.trust != trust

    def check_expiry(self) -> None:
        """Log a warning, once a day, if the certificate has expired or soon will."""
        now = self._now()
        if now - self._warned_at < _WARN_EVERY:
            return
        self._warned_at = now
        if (text := describe_end(self.expires_at, now)) is not None:
            log.warning("tls.cert: %s", text)

    def _read(self, settings: TlsSettings) -> ssl.SSLContext:
        """Return a context with the certificate files as they are now. Raises CertificateError if a file cannot be
        used."""
        expires_at = check_files(settings)
        assert expires_at is not None
        context = _Context(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        load_pair(context, settings.cert, settings.key)
        if settings.client_ca is not None:
            load_authorities(context, "client_ca", settings.client_ca)
            context.verify_mode = _MODES[settings.client]
            # A resumed session would not verify the client certificate again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        context.trust = trust_of(settings)
        self.expires_at = expires_at
        return context

    def _report(self) -> None:
        day = time.strftime("%Y-%m-%d", time.gmtime(self.expires_at))
        log.info("certificate in use file=%s expires=%s client=%s", self._settings.cert, day, self._settings.client)
        self._observer.note_certificate(self.expires_at)


def trust_of(settings: TlsSettings | None) -> bytes:
    """Return the digest of the CAs by which client certificates are verified; empty if they are not."""
    if settings is None or not settings.has_client_certificates:
        return b""
    return settings.digests.get("client_ca", b"unknown")
