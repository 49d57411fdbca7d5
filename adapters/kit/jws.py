"""Detached JSON Web Signatures (RFC 7515): the recipient already has the payload, so a signature is sent without it."""

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
"""Algorithms of signatures that the gateway verifies. All are asymmetric: with a symmetric algorithm, everybody who can
verify a signature can also forge one."""
_MAX_HEADER: Final = 4096
"""Maximum length of an encoded header, in characters. Chosen: a real one has about 200."""


class PayloadSigner(Protocol):
    """Signer with the private keys of the gateway."""

    def sign(self, payload: bytes) -> Sequence[Mapping[str, str]]:
        """Return one signature of the payload for each key, in the order of the settings. Each signature has the
        members `protected` and `signature`."""
        ...

    def find_signed(self, digest: bytes, make: Callable[[], JsonObject]) -> JsonObject:
        """Return a signed document from a cache. `digest` is that of the unsigned document. If the cache does not have
        it, `make` creates it."""
        ...


class JwsHeader(NamedTuple):
    """Members of a signature's protected header that select the key: the algorithm, and the id of the key, if there is
    one."""

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
    """Return a header as the text of the member `protected` of a signature: JSON in base64url."""
    return encode_base64url(json.dumps(header, separators=(",", ":")).encode())


def signing_input(protected: str, payload: bytes) -> bytes:
    """Return the bytes that a signature covers (RFC 7515, 5.1)."""
    return f"{protected}.{encode_base64url(payload)}".encode()


def read_header(protected: object) -> JwsHeader | None:
    """Return the decoded header of a signature. Return None if the header is malformed, or names an algorithm or an
    extension that is not supported."""
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
    """Return True if `signature` is a valid signature of `payload` by `key`. `key` is a public key in the form that
    PyJWT needs for `algorithm`."""
    content = _decode_base64url(signature) if isinstance(signature, str) else None
    if content is None:
        return False
    method: Any = get_default_algorithms()[algorithm]
    return bool(method.verify(signing_input(protected, payload), key, content))
