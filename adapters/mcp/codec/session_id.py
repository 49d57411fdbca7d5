"""Stateless session ids with a checksum (SHA-256, without a key): they say whose requests have ids of one count, and
whichever process has one can tell that it was given to that owner."""

from hashlib import sha256
from typing import Final
from uuid import uuid4

SESSION: Final = "mcp-session-id"
"""Name of the header that holds the session id."""
_LENGTH: Final = 32
"""Characters of the random part, and of the digest."""


def make_session_id(owner: str) -> str:
    random = uuid4().hex
    return random + _digest(random, owner)


def is_stateless(session_id: str) -> bool:
    """Whether it has the form of these; those of the SDK are shorter."""
    return len(session_id) == 2 * _LENGTH


def is_session_of(session_id: str, owner: str) -> bool:
    random, digest = session_id[:_LENGTH], session_id[_LENGTH:]
    return is_stateless(session_id) and digest == _digest(random, owner)


def _digest(random: str, owner: str) -> str:
    return sha256(f"{random} {owner}".encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
