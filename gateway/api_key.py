"""API keys: their form, and their digest, which the gateway stores instead of the key."""

import base64
import hashlib
import secrets
import zlib
from typing import Final

_PREFIX: Final = "bg_"
_BYTES: Final = 32
"""Number of random bytes in a key. SHA-256 of a key is safe to store, because 256 random bits cannot be guessed."""


def make_key() -> str:
    """Return a new API key: `bg_`, 43 random characters of base64url, and 6 with their CRC-32.

    The prefix and the checksum let secret scanners recognize a key with few false alarms.
    """
    secret = _base64url(secrets.token_bytes(_BYTES))
    return f"{_PREFIX}{secret}{_base64url(zlib.crc32(secret.encode()).to_bytes(4, 'big'))}"


def digest_of(key: str) -> str:
    """Return the SHA-256 digest of a key, in hex digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
