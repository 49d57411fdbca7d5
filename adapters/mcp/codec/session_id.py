"""Session ids that every process can verify without stored sessions. An id consists of a random part and a digest
(SHA-256, without a key) of that part and the subject, which is the caller who opened the session.

Request ids are unique only within a session, so a cancel names its call by the session id and the request id.
"""

from hashlib import sha256
from typing import Final
from uuid import uuid4

SESSION: Final = "mcp-session-id"
"""Name of the header that holds the session id."""
_LENGTH: Final = 32
"""Length of the random part, and also of the digest, in characters."""


def make_session_id(subject: str) -> str:
    """Return a new session id that is valid for a subject only."""
    random = uuid4().hex
    return random + _digest(random, subject)


def is_stateless(session_id: str) -> bool:
    """Return True if the id has the length of one from `make_session_id`. Session ids of the SDK are shorter."""
    return len(session_id) == 2 * _LENGTH


def is_session_of(session_id: str, subject: str) -> bool:
    """Return True if `make_session_id` created the id for this subject."""
    random, digest = session_id[:_LENGTH], session_id[_LENGTH:]
    return is_stateless(session_id) and digest == _digest(random, subject)


def _digest(random: str, subject: str) -> str:
    return sha256(f"{random} {subject}".encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
