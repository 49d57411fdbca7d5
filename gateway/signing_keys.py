"""Private keys with which the gateway signs agent cards, and the public key set that it publishes."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from jwt.algorithms import get_default_algorithms

from babelgate.adapters.kit.jws import encode_base64url, encode_protected, signing_input
from babelgate.canonical.value import JsonObject

_MAX_FILE: Final = 2**16
"""Maximum size of a file with a key, in bytes. Chosen: an RSA key of 8192 bits has 6 KB."""
_RSA_BITS: Final = 2048
"""Minimum size of RSA keys, in bits (RFC 7518, 3.3)."""
_COORDINATE: Final = 32
"""Length of each of the two numbers in an ES256 signature, in bytes (RFC 7518, 3.4)."""
_THUMBPRINT: Final = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
"""Members of a public key from which its thumbprint is computed, by key type (RFC 7638, 3.2 and RFC 8037, 2)."""
_ALGORITHMS: Final[Mapping[type, str]] = {
    EllipticCurvePublicKey: "ES256",
    Ed25519PublicKey: "EdDSA",
    RSAPublicKey: "RS256",
}
"""Algorithm by which PyJWT converts each kind of public key into a JSON Web Key."""
_MAX_DOCUMENTS: Final = 1024
"""Maximum number of signed documents in the cache. Chosen: two cards per agent, of some KB each."""


class SigningKeyError(Exception):
    """File whose key cannot be used for signatures.

    The message is the reason, without the path and the content: at a wrong path there may be another secret.
    """


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Private key, with its public half as a JSON Web Key."""

    algorithm: str
    kid: str
    """Key id: the thumbprint of the public key (RFC 7638)."""
    jwk: JsonObject
    """Public key as a JSON Web Key, as the gateway publishes it."""
    private_key: Any = field(repr=False)


def read_signing_key(path: Path) -> SigningKey:
    """Return the private key in a PEM file. Raises SigningKeyError if the file has no usable key, or one with a
    password."""
    content = _read(path)
    try:
        key: Any = load_pem_private_key(content, None)
    except TypeError:
        raise SigningKeyError("the key is encrypted with a password: store it without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SigningKeyError(_describe_content(content)) from None
    algorithm = _algorithm_of(key)
    jwk = describe_public_key(key.public_key())
    kid = thumbprint(jwk)
    return SigningKey(algorithm, kid, {**jwk, "kid": kid, "use": "sig", "alg": algorithm}, key)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "its name is not valid"
        raise SigningKeyError(f"the file cannot be read: {reason}") from None


def _describe_content(content: bytes) -> str:
    """Return the reason why the content of a file cannot be read as a private key."""
    if b"-----BEGIN" not in content:
        return "the file is not PEM: expected -----BEGIN PRIVATE KEY-----"
    try:
        load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        return "the file has no private key in PEM that can be read"
    return "the file has a public key, and a private key is needed"


def _algorithm_of(key: object) -> str:
    match key:
        case EllipticCurvePrivateKey() if isinstance(key.curve, SECP256R1):
            return "ES256"
        case Ed25519PrivateKey():
            return "EdDSA"
        case RSAPrivateKey() if key.key_size >= _RSA_BITS:
            return "RS256"
        case RSAPrivateKey():
            raise SigningKeyError(
                f"the RSA key has {key.key_size} bits, and {_RSA_BITS} or more are needed: take a P-256 key"
            )
        case EllipticCurvePrivateKey():
            raise SigningKeyError(f"the curve {key.curve.name} is not supported: take a P-256 key")
        case _:
            raise SigningKeyError("keys of this kind are not supported: take a P-256, Ed25519 or RSA key")


def describe_public_key(key: Any) -> JsonObject:
    """Return a public key as a JSON Web Key (RFC 7517) without an id. Raises ValueError for an unsupported kind of
    key."""
    algorithm = next((name for kind, name in _ALGORITHMS.items() if isinstance(key, kind)), None)
    if algorithm is None:
        raise ValueError("not an RSA, EC or Ed25519 key")
    method: Any = get_default_algorithms()[algorithm]
    jwk = cast("JsonObject", json.loads(method.to_jwk(key)))
    return {name: jwk[name] for name in _THUMBPRINT[jwk["kty"]]}


def thumbprint(jwk: JsonObject) -> str:
    """Return the thumbprint of a public key in base64url (RFC 7638, 3). It is used as key id."""
    members = {name: jwk[name] for name in _THUMBPRINT[jwk["kty"]]}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return encode_base64url(hashlib.sha256(text.encode()).digest())


class SigningKeys:
    """Private keys of one generation of the settings, and a cache of the documents that they have signed."""

    def __init__(self, keys: Sequence[SigningKey], jwks_url: str | None) -> None:
        """Create the signer. `jwks_url` is the URL of the published key set, for the header `jku` of signatures; None
        if the gateway does not know its own URL."""
        self._keys = keys
        self._headers = [encode_protected(_header_of(each, jwks_url)) for each in keys]
        self._documents: OrderedDict[bytes, JsonObject] = OrderedDict()
        """Signed documents, by the digest of the unsigned document."""
        self.jwks: JsonObject = {"keys": [each.jwk for each in keys]}
        """Key set with all public keys (RFC 7517), as the gateway publishes it."""

    @property
    def kids(self) -> Sequence[str]:
        """Ids of the keys, in the order of the settings."""
        return [each.kid for each in self._keys]

    def sign(self, payload: bytes) -> Sequence[Mapping[str, str]]:
        """Return a signature of the payload by each key, in the order of the settings. The same payload always has the
        same signatures."""
        return [
            {"protected": header, "signature": encode_base64url(_sign(key, signing_input(header, payload)))}
            for key, header in zip(self._keys, self._headers, strict=True)
        ]

    def find_signed(self, digest: bytes, make: Callable[[], JsonObject]) -> JsonObject:
        """Return the signed document from the cache, by the digest of the unsigned document. If it is not cached, call
        `make` and cache its result."""
        document = self._documents.get(digest)
        if document is None:
            document = self._documents[digest] = make()
            if len(self._documents) > _MAX_DOCUMENTS:
                self._documents.popitem(last=False)
        return document


def _header_of(key: SigningKey, jwks_url: str | None) -> JsonObject:
    header: JsonObject = {"alg": key.algorithm, "typ": "JOSE", "kid": key.kid}
    return header if jwks_url is None else {**header, "jku": jwks_url}


def _sign(key: SigningKey, content: bytes) -> bytes:
    """Return the signature of a content. It is deterministic, so that all nodes serve a card with one ETag."""
    match key.algorithm:
        case "ES256":
            # RFC 6979. PyJWT 2.15.1 signs with a random number.
            der = key.private_key.sign(content, ECDSA(SHA256(), deterministic_signing=True))
            return b"".join(number.to_bytes(_COORDINATE) for number in decode_dss_signature(der))
        case "EdDSA":
            return key.private_key.sign(content)
        case _:
            return key.private_key.sign(content, PKCS1v15(), SHA256())
