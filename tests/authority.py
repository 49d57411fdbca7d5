"""Private certificate authorities for servers and clients on loopback."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """Files of a certificate and its key."""

    cert: Path
    key: Path

    @property
    def serial(self) -> int:
        """Serial number of the certificate."""
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).serial_number

    @staticmethod
    def serial_in(content: bytes) -> int:
        """Return the serial number of a certificate in DER form."""
        return x509.load_der_x509_certificate(content).serial_number


class Authority:
    """A CA with its file in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.path = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.path)

    @property
    def certificate(self) -> bytes:
        """Certificate of the CA in PEM form."""
        return self._ca.cert_pem.bytes()

    def issue(
        self, name: str, *identities: str, common_name: str | None = None, days: float = 30, folder: Path | None = None
    ) -> Pair:
        """Write a certificate for host names, addresses or e-mail addresses, and its key, and return both files. The
        certificate expires in `days` days."""
        now = datetime.now(UTC)
        leaf = self._ca.issue_cert(
            *identities, common_name=common_name, not_before=now - timedelta(days=60), not_after=now + timedelta(days)
        )
        pair = self._pair(name, folder)
        leaf.private_key_pem.write_to_path(pair.key)
        leaf.cert_chain_pems[0].write_to_path(pair.cert)
        return pair

    def issue_for_uris(self, name: str, *uris: str) -> Pair:
        """Write a certificate for URIs, such as a SPIFFE ID, and its key, and return both files."""
        now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
        authority = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ignored")]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName("other.example"), *map(x509.UniformResourceIdentifier, uris)]
                ),
                critical=False,
            )
            .sign(load_pem_private_key(self._ca.private_key_pem.bytes(), None), hashes.SHA256())  # type: ignore[arg-type]
        )
        pair = self._pair(name, None)
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        pair.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        return pair

    def _pair(self, name: str, folder: Path | None) -> Pair:
        folder = folder or self._folder
        return Pair(folder / f"{name}.crt", folder / f"{name}.key")


def serving_options(context: ssl.SSLContext) -> dict[str, Any]:
    """Return the options of uvicorn for a server with this context."""

    def make(config: Any, default: Any) -> ssl.SSLContext:
        return context

    return {"ssl_context_factory": make}
