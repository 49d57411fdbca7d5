"""TLS to agents' servers: the certificates that a client trusts and presents, and the reason why a handshake failed."""

import ssl
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

EXTRA_CA: Final[ContextVar[Path | None]] = ContextVar("extra_ca", default=None)
"""File with CAs that are trusted in addition to those of the system, by the connections that are opened in this
context. It may also be the certificate of a server itself."""
ClientFiles = tuple[Path, Path | None]
"""Files with a client certificate and with its private key, or with both in the first."""
CLIENT_FILES: Final[ContextVar[ClientFiles | None]] = ContextVar("client_files", default=None)
"""Client certificate of the connections that are opened in this context, unless an agent has another one."""
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21, 27})
"""Error codes of OpenSSL (`X509_V_ERR_…`) for a certificate that no trusted CA has signed."""
_EXPIRED: Final = 10
_NOT_YET: Final = 9
_WRONG_NAME: Final = frozenset({62, 64})
_REFUSED: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "needs a client certificate: {identify}",
    "TLSV1_ALERT_UNKNOWN_CA": "does not trust the CA of the client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "does not accept the client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "does not accept the client certificate: it has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "does not accept the client certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "refuses the handshake: it may need a client certificate: {identify}",
    "WRONG_VERSION_NUMBER": "does not speak TLS: its URL may begin with http://",
    "RECORD_LAYER_FAILURE": "does not speak TLS: its URL may begin with http://",
}
"""Explanations of a failed handshake for the operator, by the reason that OpenSSL reports. `{identify}` is replaced by
the advice how to set a client certificate."""
_ATTRIBUTES: Final = ("certificate_error", "os_error")


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files for the connections to one agent's servers, in PEM form."""

    ca: Path | None = None
    """File with the CAs that sign the certificates of the servers. None: the CAs of the system."""
    cert: Path | None = None
    """File with the client certificate. None: no client certificate is presented."""
    key: Path | None = None
    """File with the private key of the client certificate."""
    digests: tuple[tuple[str, bytes], ...] = ()
    """Digests of the files' contents. Because of them, two values are unequal if a file has changed between them."""

    def open_context(self) -> ssl.SSLContext:
        """Return a TLS context with these files. Raises OSError (ssl.SSLError is one) if a file cannot be used."""
        context = default_context() if self.ca is None else ssl.create_default_context(cafile=self.ca)
        if self.ca is not None:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.cert is not None:
            load_client(context, (self.cert, self.key))
        return context


def default_context() -> ssl.SSLContext:
    """Return a context that trusts the CAs of the system, or those of SSL_CERT_FILE, and `EXTRA_CA`. It has the client
    certificate in `CLIENT_FILES`. Raises OSError if a file cannot be used."""
    context = httpx.create_ssl_context()
    extra = EXTRA_CA.get()
    if extra is not None:
        context.load_verify_locations(cafile=extra)
        # A certificate in the file is trusted even if it is not that of a CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    files = CLIENT_FILES.get()
    if files is not None:
        load_client(context, files)
    return context


def load_client(context: ssl.SSLContext, files: ClientFiles) -> None:
    """Load a client certificate into a context. Raises OSError if a file cannot be used, or the key has a
    passphrase."""
    context.load_cert_chain(*files, password=_refuse_passphrase)


def _refuse_passphrase() -> str:
    """Raise OSError, because OpenSSL would ask for the passphrase on the terminal."""
    raise OSError("the key has a passphrase")


def explain_failure(
    error: BaseException,
    url: str,
    tls: ClientTls | None = None,
    *,
    remedy: str = "set tls.ca",
    identify: str = "set tls.cert and tls.key",
) -> str | None:
    """Return why the TLS to a server failed, in one line that begins with `tls:`. Return None if the error has another
    cause. The line names the URL and files, so it is for the operator. `remedy` is how another CA can be trusted, and
    `identify` how a client certificate can be presented."""
    failure = next((each for each in _causes(error) if _is_of_openssl(each)), None)
    if not isinstance(failure, ssl.SSLError):
        return None
    if not isinstance(failure, ssl.SSLCertVerificationError):
        reason = failure.reason or "unknown error"
        words = _REFUSED.get(reason) or f"cannot be reached: {reason.lower().replace('_', ' ')}"
        return f"tls: {url} {words.format(identify=identify)}"
    code = failure.verify_code
    if code in _UNTRUSTED:
        signer = f"a CA of this system: {remedy}" if tls is None or tls.ca is None else f"a CA in {tls.ca}"
        return f"tls: the certificate of {url} is not signed by {signer}"
    if code == _EXPIRED:
        return f"tls: the certificate of {url} has expired"
    if code == _NOT_YET:
        return f"tls: the certificate of {url} is not valid yet"
    if code in _WRONG_NAME:
        return f"tls: the certificate of {url} is for another host"
    return f"tls: the certificate of {url} is not accepted: {failure.verify_message}"


def has_dropped_client(error: BaseException) -> bool:
    """Return True if the server closed a connection without a response. With TLS 1.3, a client whose certificate is
    missing sees only this: its handshake ends before the server checks the certificate (RFC 8446, section 4.4.2.4)."""
    return any(isinstance(each, (httpx.RemoteProtocolError, httpx.ReadError)) for each in _causes(error))


def _is_of_openssl(error: BaseException) -> bool:
    """Return True for an error that OpenSSL itself raised. Return False for an error of aiohttp that only wraps one: it
    has the same type, but no reason."""
    return isinstance(error, ssl.SSLError) and not any(hasattr(error, name) for name in _ATTRIBUTES)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and all errors that caused it, each once."""
    visited_ids, left = set[int](), [error]
    while left:
        each = left.pop()
        if id(each) in visited_ids:
            continue
        visited_ids.add(id(each))
        yield each
        # aiohttp keeps the error of a connection in an attribute.
        inner = (each.__cause__, each.__context__, *(getattr(each, name, None) for name in _ATTRIBUTES))
        left += [cause for cause in inner if isinstance(cause, BaseException)]
