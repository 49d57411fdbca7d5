"""Key pairs that sign agent cards, as files and as values."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from babelgate.gateway.signing_keys import SigningKey, read_signing_key


@dataclass(frozen=True)
class KeyPair:
    """A key pair, whose private key is in a PEM file."""

    file: Path
    key: SigningKey

    @property
    def pem(self) -> str:
        return self.file.read_text()

    @property
    def header(self) -> dict[str, Any]:
        return {"alg": self.key.algorithm, "typ": "JOSE", "kid": self.key.kid}

    def write_key_set(self) -> str:
        """Write the public key as a key set, and return the path of the file."""
        file = self.file.with_suffix(".jwks.json")
        file.write_text(json.dumps({"keys": [self.key.jwk]}))
        return str(file)

    def write_public_pem(self) -> str:
        """Write the public key in PEM, and return the path of the file."""
        file = self.file.with_suffix(".pub")
        public_key = self.key.private_key.public_key()
        file.write_bytes(public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return str(file)


def make_pair(folder: Path, name: str = "key", algorithm: str = "ES256") -> KeyPair:
    """Create a key pair, with its private key in `folder`."""
    file = folder / f"{name}.pem"
    file.write_bytes(to_pem(make_private_key(algorithm)))
    return KeyPair(file, read_signing_key(file))


def make_private_key(algorithm: str) -> Any:
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def to_pem(private_key: Any, encryption: Any = None) -> bytes:
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
