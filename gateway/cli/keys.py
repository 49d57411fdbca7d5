"""`babelgate keys`: make API keys."""

import base64
import hashlib
import json
import re
import secrets
import zlib
from typing import Final

import click

_PREFIX: Final = "bg_"
_BYTES: Final = 32
"""Number of random bytes in a key. SHA-256 of a key is safe to store, because 256 random bits cannot be guessed."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")
"""Names that are text in YAML without quotes."""


def make_key() -> str:
    """Return a new API key: `bg_`, 43 random characters of base64url, and 6 with their CRC-32.

    The prefix and the checksum let secret scanners recognize a key with few false alarms.
    """
    secret = _base64url(secrets.token_bytes(_BYTES))
    return f"{_PREFIX}{secret}{_base64url(zlib.crc32(secret.encode()).to_bytes(4, 'big'))}"


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def new_key(owner: str | None) -> None:
    """Print a new key, and the line for it in babelgate.yaml, which does not contain the key."""
    key = make_key()
    record = f'{{hash: "sha256:{hashlib.sha256(key.encode()).hexdigest()}"}}'
    click.echo("API key, which is not stored:", err=True)
    click.echo(key)
    click.echo("Record for keys in babelgate.yaml:", err=True)
    click.echo(record if owner is None else f"{_quote(owner)}: {record}")


def _quote(owner: str) -> str:
    is_word = owner.lower() in ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    return owner if _PLAIN_NAME.fullmatch(owner) and not is_word else json.dumps(owner, ensure_ascii=False)
