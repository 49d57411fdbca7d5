"""JSON Web Signatures (RFC 7515) over a payload that both sides have: the signature travels without it."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from jwt.algorithms import get_default_algorithms

from babelgate.canonical.value import JsonObject

ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Algorithms of signatures that are verified. A party that can verify a symmetric one can forge it."""
_MAX_HEADER: Final = 4096
"""Maximum length of an encoded header, in characters. Chosen: a real one has about 200."""


class PayloadSigner(Protocol):
    """Private keys of the gateway."""

    def sign(self, payload: bytes) -> Sequence[Mapping[str, str]]:
        """Return a signature by each key, in the order of the settings. Each has the members `protected` and
        `signature`."""
        ...

    def find_signed(self, digest: bytes, make: Callable[[], JsonObject]) -> JsonObject:
        """Return the signed document for a digest of the unsigned one. It is made once, as long as the keys stay."""
        ...


class JwsHeader(NamedTuple):
    """Protected header of a signature, as far as it selects the key."""

    algorithm: str
    kid: str | None


def encode_base64url(content: bytes) -> str:
    """Return base64url without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode_base64url(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def encode_protected(header: JsonObject) -> str:
    """Return a header as the member `protected` of a signature."""
    return encode_base64url(json.dumps(header, separators=(",", ":")).encode())


def signing_input(protected: str, payload: bytes) -> bytes:
    """Return the bytes that a signature covers (RFC 7515, 5.1)."""
    return f"{protected}.{encode_base64url(payload)}".encode()


def read_header(protected: object) -> JwsHeader | None:
    """Return the header of a signature, or None if it is malformed, or needs what is not supported."""
    if not isinstance(protected, str) or len(protected) > _MAX_HEADER:
        return None
    content = _decode_base64url(protected)
    try:
        header: Any = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    members = cast("JsonObject", header)
    algorithm, kid = members.get("alg"), members.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not (kid is None or isinstance(kid, str)):
        return None
    if "crit" in members or "b64" in members:  # RFC 7515, 4.1.11: extensions that are not understood
        return None
    return JwsHeader(algorithm, kid)


def is_signed(payload: bytes, protected: str, signature: object, algorithm: str, key: Any) -> bool:
    """Return True if a signature matches a payload. The key is prepared for the algorithm."""
    content = _decode_base64url(signature) if isinstance(signature, str) else None
    if content is None:
        return False
    method: Any = get_default_algorithms()[algorithm]
    return bool(method.verify(signing_input(protected, payload), key, content))
