"""Checks of the certificate and key files that the settings name."""

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from babelgate.gateway.settings.tls import CertificateFiles

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from babelgate.gateway.settings.model import Settings

SOON: Final = 14 * 86_400
"""Seconds before the end of a certificate from which on there are warnings. Chosen: ACME clients renew a certificate a
month before its end."""
_AUTHORITIES: Final = ("ca", "client_ca")
_LARGEST: Final = 2**22
"""Maximum size of a certificate or key file, in bytes. Chosen: the CAs of a system have 0.3 MiB."""


class CertificateError(Exception):
    """Error for a certificate or key file that cannot be used. The message has its path and the reason, and never its
    content."""

    def __init__(self, key: str, reason: str) -> None:
        """Create the exception. `key` is the name of the setting with the path of the file, such as `client_ca`."""
        super().__init__(reason)
        self.key = key


def sections_of(settings: "Settings") -> Iterator[tuple[tuple[str, ...], CertificateFiles]]:
    """Yield the location of each section with certificate files, such as `("agents", "planner", "tls")`, and the
    section."""
    if settings.tls is not None:
        yield ("tls",), settings.tls
    for name, agent in settings.agents.items():
        if agent.tls is not None:
            yield ("agents", name, "tls"), agent.tls


def check_files(files: CertificateFiles) -> float | None:
    """Check the files of a section, and return the time at which its certificate expires, in seconds since 1970.

    Return None if the section has no certificate. Raises CertificateError for a file that cannot be used."""
    paths = files.paths
    for name in _AUTHORITIES:
        if name in paths:
            _check_authorities(name, paths[name])
    return _check_pair(paths["cert"], paths["key"]) if "cert" in paths else None


def find_expired(settings: "Settings", now: Callable[[], float] = time.time) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield a location and a text for each certificate that has expired, or will within `SOON` seconds.

    `now` returns the time in seconds since 1970. Certificates that cannot be used for another reason are left out."""
    for location, files in sections_of(settings):
        try:
            expires_at = check_files(files)
        except CertificateError:
            continue
        if expires_at is not None and (text := describe_end(expires_at, now())) is not None:
            yield (*location, "cert"), text


def describe_end(expires_at: float, now: float) -> str | None:
    """Return a text about a certificate that has expired or will soon, or None if it is valid for longer.

    Both times are in seconds since 1970."""
    if expires_at - now > SOON:
        return None
    day = datetime.fromtimestamp(expires_at, UTC).date()
    if expires_at <= now:
        return f"the certificate has expired on {day}: renew it"
    days = int((expires_at - now) // 86_400)
    return f"the certificate expires on {day}, in {days} day{'' if days == 1 else 's'}: renew it"


def load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Load a certificate and its private key into an SSL context. Raises CertificateError if one of them cannot be
    used."""
    try:
        context.load_cert_chain(cert, key, password=_refuse_passphrase)
    except OSError as error:  # among them ssl.SSLError
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise CertificateError("cert", f"{cert}: it cannot be used: {str(reason).lower().replace('_', ' ')}") from None


def load_authorities(context: ssl.SSLContext, name: str, path: Path) -> None:
    """Add the CAs in a file to those that an SSL context trusts. Raises CertificateError if the file cannot be used.

    `name` is the name of the setting with the path of the file."""
    try:
        context.load_verify_locations(cafile=path)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise CertificateError(name, f"{path}: it cannot be used: {str(reason).lower().replace('_', ' ')}") from None


def _refuse_passphrase() -> NoReturn:
    """Raise OSError instead of returning a passphrase. Without this callback, OpenSSL would ask for one on the
    terminal."""
    raise OSError("the key has a passphrase")


def _check_pair(cert: Path, key: Path) -> float:
    """Check that a private key belongs to a certificate. Return the time at which the certificate expires, in seconds
    since 1970.

    Raises CertificateError if the key belongs to another certificate, or if a file cannot be used.
    """
    # Importing it takes time that a gateway without TLS does not need.
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    leaf = _certificates("cert", cert)[0]
    content = _read("key", key)
    try:
        private_key: Any = load_pem_private_key(content, password=None)
    except TypeError:
        reason = f"{key}: the key has a passphrase: write it without one (openssl pkey -in {key.name} -out …)"
        raise CertificateError("key", reason) from None
    except Exception:  # its kinds are not documented, and the text of some is the content
        raise CertificateError("key", f"{key}: it has no private key in PEM form") from None
    if private_key.public_key() != leaf.public_key():
        raise CertificateError("key", f"{key}: the key does not belong to the certificate in {cert}")
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)
    return leaf.not_valid_after_utc.timestamp()


def _check_authorities(name: str, path: Path) -> None:
    _certificates(name, path)
    load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), name, path)


def _certificates(name: str, path: Path) -> "list[Certificate]":
    """Return the certificates in a file, at least one. Raises CertificateError if it has none."""
    from cryptography.x509 import load_pem_x509_certificates

    content = _read(name, path)
    try:
        return load_pem_x509_certificates(content)
    except Exception:
        raise CertificateError(name, f"{path}: it has no certificate in PEM form") from None


def _read(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not valid"
        raise CertificateError(name, f"{path}: it cannot be read: {reason}") from None
    if len(content) > _LARGEST:
        raise CertificateError(name, f"{path}: it is larger than {_LARGEST} bytes")
    return content


def file_digests(settings: "Settings") -> Mapping[Path, bytes]:
    """Return the SHA-256 of each certificate or key file when the settings were read, by its path."""
    return {
        path: files.digests[name]
        for _, files in sections_of(settings)
        for name, path in files.paths.items()
        if name in files.digests
    }
