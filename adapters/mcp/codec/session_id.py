"""Session ids that the gateway does not store. Each has a checksum (SHA-256, without a key), so that every process can
verify the caller who opened the session, called its subject. A session is the scope of its client's request ids.

The id also states whether the client can open web pages for its user (elicitation in mode `url`).
"""

from hashlib import sha256
from typing import Final
from uuid import uuid4

SESSION: Final = "mcp-session-id"
"""Name of the header that holds the session id."""
_LENGTH: Final = 32
"""Length of the random part, and of the checksum, in characters."""
_PAGES: Final = "p"
"""Last character of a session id whose client can open web pages."""


def make_session_id(subject: str, *, has_pages: bool = False) -> str:
    """Return a new session id for a subject. `has_pages` is True if the client can open web pages in its user's
    browser."""
    random, mark = uuid4().hex, _PAGES if has_pages else ""
    return random + _digest(random, subject, mark) + mark


def is_stateless(session_id: str) -> bool:
    """Return True if the id has the length of those of `make_session_id`. The ids of sessions that the SDK stores are
    shorter."""
    return len(session_id.removesuffix(_PAGES)) == 2 * _LENGTH


def is_session_of(session_id: str, subject: str) -> bool:
    """Return True if the session belongs to the subject."""
    random, digest, mark = session_id[:_LENGTH], session_id[_LENGTH : 2 * _LENGTH], session_id[2 * _LENGTH :]
    return is_stateless(session_id) and digest == _digest(random, subject, mark)


def has_pages(session_id: str) -> bool:
    """Return True if the session's client can open web pages. The id must be valid."""
    return is_stateless(session_id) and session_id.endswith(_PAGES)


def _digest(random: str, subject: str, mark: str) -> str:
    return sha256(f"{random} {subject}{mark and f' {mark}'}".encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
