"""Settings of TLS: for the gateway's own port, and for the servers of agents."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, PrivateAttr, model_validator

from babelgate.gateway.settings.fields import SettingsSection, Strings

MTLS: Final = "mtls"
"""Name that is used instead of an issuer's for a caller with a client certificate: `user:mtls:NAME` in rules of access,
and the owner `mtls:NAME`."""


class CertificateFiles(SettingsSection):
    """Section of settings whose values are paths of certificate and key files. Relative paths start from the working
    directory."""

    _digests: Mapping[str, bytes] = PrivateAttr(default_factory=dict[str, bytes])

    @property
    def paths(self) -> Mapping[str, Path]:
        """Paths of the files that are set, by the names of their settings, such as `cert`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if isinstance(value, Path)}

    @property
    def digests(self) -> Mapping[str, bytes]:
        """SHA-256 of the files when the settings were read, by the names of their settings. A file that could not be
        read counts as empty."""
        return self._digests

    def note_files(self) -> None:
        """Compute the digests of the files as they are now. Settings whose files have different contents are then
        unequal."""
        self._digests = {name: digest_file(path) for name, path in self.paths.items()}


def digest_file(path: Path) -> bytes:
    """Return the SHA-256 of a file's content. A file that cannot be read counts as empty."""
    content = b""
    with suppress(OSError):
        content = path.read_bytes()
    return hashlib.sha256(content).digest()


class TlsSettings(CertificateFiles):
    """TLS on the port of callers and on `admin.listen`. All files are in PEM form, and read again at a reload."""

    cert: Path
    """File with the certificate of the gateway, and with those of intermediate CAs after it."""
    key: Path
    """File with the private key of the certificate, without a passphrase."""
    client_ca: Path | None = None
    """File with the certificates of the CAs that sign the certificates of callers."""
    client: Literal["none", "optional", "required"] = "none"
    """Certificates of callers: `none` requests none, `optional` accepts one instead of an API key, and `required`
    closes connections without one."""
    client_groups: dict[Annotated[str, Field(min_length=1)], Strings] = {}
    """Groups of callers with certificates. Each group lists the names of its certificates, in which `*` matches any
    text, such as `spiffe://example.org/ops/*`."""

    @property
    def has_client_certificates(self) -> bool:
        """True if callers may have, or must have, a client certificate."""
        return self.client != "none"

    @model_validator(mode="after")
    def _consistent(self) -> "TlsSettings":
        if self.has_client_certificates and self.client_ca is None:
            raise ValueError(f"client: {self.client} needs client_ca, the CAs of the callers' certificates")
        if self.client_ca is not None and not self.has_client_certificates:
            raise ValueError("client_ca needs client: optional, or client: required")
        if self.client_groups and not self.has_client_certificates:
            raise ValueError("client_groups needs client: optional, or client: required")
        return self


class AgentTls(CertificateFiles):
    """TLS to the servers of one agent. All files are in PEM form, and read again at a reload."""

    ca: Path | None = None
    """File with the CAs that sign the certificate of the server. By default those of the system."""
    cert: Path | None = None
    """File with the gateway's client certificate for the server, and with those of intermediate CAs after it."""
    key: Path | None = None
    """File with the private key of the client certificate, without a passphrase."""

    @model_validator(mode="after")
    def _consistent(self) -> "AgentTls":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: set both, or neither")
        return self
