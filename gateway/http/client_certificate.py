"""Client certificates of callers (mutual TLS): reads the certificate of a connection and derives the caller's
principal."""

import ssl
from asyncio import BaseTransport
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.fault import INVALID_TOKEN
from babelgate.gateway.settings.tls import MTLS, TlsSettings

CERTIFICATE_KEY: Final = "babelgate.client_certificate"
"""Key of the `ClientCertificate` in the ASGI scope of a request or a WebSocket."""
_NAME_LENGTH: Final = 255
"""Maximum length of the caller's name in a certificate, in characters: that of `sub` in a token."""
_OWNER_LENGTH: Final = 128
_SPIFFE: Final = "spiffe://"
_KINDS: Final = ("URI", "DNS", "email")
"""Kinds of names in subjectAltName, most preferred first."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Certificate that a client has proved to own, signed by a CA of `tls.client_ca`."""

    name: str
    """Name of the caller; empty if the certificate has no usable name."""
    credential_id: str
    """Last eight hex digits of the serial number, for logs."""
    expires_at: float
    """Time at which the certificate ends, in seconds since 1970."""
    trust: bytes
    """Digest of the CAs with which the certificate was verified. If the settings have other CAs now, it is no longer
    accepted."""

    @property
    def principal(self) -> Principal:
        """Principal of the caller. Raises unauthenticated if the certificate has no usable name."""
        if not self.name:
            raise refuse("it has no usable name: one URI, or else a DNS name, an email address or a common name")
        return Principal(
            subject=f"user:{MTLS}:{self.name}",
            owner=f"{MTLS}:{self.name}",
            issuer=MTLS,
            credential_id=self.credential_id,
            expires_at=self.expires_at,
        )


class CertificateGroups:
    """Groups of callers with client certificates, by the setting `tls.client_groups`."""

    def __init__(self, settings: TlsSettings | None) -> None:
        self._patterns = [
            (group, name.replace("[", "[[]").replace("?", "[?]"))  # only * is a wildcard
            for group, names in ({} if settings is None else settings.client_groups).items()
            for name in names
        ]

    def add_to(self, principal: Principal) -> Principal:
        """Return a copy of the principal of a client certificate, with the groups whose patterns match its name."""
        name = principal.owner.removeprefix(f"{MTLS}:")
        groups = frozenset(group for group, pattern in self._patterns if fnmatchcase(name, pattern))
        return msgspec.structs.replace(principal, groups=groups)


def refuse(reason: str) -> FaultError:
    """Return the error for a client certificate that is not accepted. `reason` is a clause of its text."""
    message = f"The client certificate is not accepted: {reason}."
    return FaultError(FaultCode.UNAUTHENTICATED, message, reason=INVALID_TOKEN)


def read_client_certificate(transport: BaseTransport) -> ClientCertificate | None:
    """Return the client certificate of a connection, or None if it has none."""
    described: Mapping[str, Any] | None = transport.get_extra_info("peercert")
    if not described:
        return None
    context = transport.get_extra_info("ssl_object").context
    return ClientCertificate(
        name=name_of(described),
        credential_id=str(described.get("serialNumber", ""))[-8:].lower(),
        expires_at=ssl.cert_time_to_seconds(described["notAfter"]),
        trust=getattr(context, "trust", b""),
    )


def name_of(described: Mapping[str, Any]) -> str:
    """Return the caller's name in a certificate, which is described as by `ssl.SSLSocket.getpeercert`. Return "" if no
    name is usable.

    A URI is preferred, then a DNS name, an email address and the common name. A certificate with a SPIFFE ID must have
    exactly one URI (X509-SVID, section 2).
    """
    names: Sequence[tuple[str, str]] = described.get("subjectAltName", ())
    by_kind = {kind: [value for each, value in names if each == kind] for kind in _KINDS}
    uris = by_kind["URI"]
    if len(uris) > 1 and any(uri.startswith(_SPIFFE) for uri in uris):
        return ""
    subject: Sequence[Sequence[tuple[str, str]]] = described.get("subject", ())
    common_names = [value for part in subject for name, value in part if name == "commonName"]
    name = next((values[0] for values in (*by_kind.values(), common_names) if values), "")
    is_usable = name.isprintable() and len(name) <= min(_NAME_LENGTH, _OWNER_LENGTH - len(MTLS) - 1)
    return name if is_usable else ""


def certificate_of(scope: MutableMapping[str, Any]) -> ClientCertificate | None:
    """Return the client certificate in the ASGI scope of a request, or None if there is none."""
    return scope.get(CERTIFICATE_KEY)
