"""Limit on the number of JSON values in a text. They are counted before the text is parsed, because each becomes an
object many times its size."""

import re
from typing import Final

_QUOTE: Final = ord('"')
_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""Pattern of the rest of a JSON string up to its closing quote, matched without backtracking (possessive
quantifiers)."""
_PIECE: Final = 64 * 1024
"""Maximum number of bytes of a string that are matched in one call, because a regular expression holds the interpreter
lock until it ends. Chosen."""


def count_values(raw: bytes, most: int) -> int:
    """Return the number of objects, lists and their members in the JSON text `raw`, which need not be valid. If there
    are more than `most`, return any number above `most`. The time is linear in the size, and the memory constant."""
    count = 1 + _marks(raw, 0, len(raw))
    if count <= most:  # The count includes marks inside strings, so it is an upper bound.
        return count
    count, texts, at = 1, 0, 0
    while (quote := raw.find(b'"', at)) >= 0:
        count += _marks(raw, at, quote)
        texts += 1
        if count > most or texts > 2 * most:  # each object member has two strings, a name and a value
            return most + 1
        at = _end_of_text(raw, quote + 1)
    return count + _marks(raw, at, len(raw))


def _marks(raw: bytes, start: int, end: int) -> int:
    """Return the number of commas, opening brackets and opening braces between two positions. At most one JSON value
    begins after each of them."""
    return raw.count(b",", start, end) + raw.count(b"[", start, end) + raw.count(b"{", start, end)


def _end_of_text(raw: bytes, at: int) -> int:
    """Return the position after the closing quote of a JSON string. `at` is a position inside the string. Return the
    length of `raw` if the string does not end."""
    while at < len(raw):
        match = _TEXT.match(raw, at, at + _PIECE)
        end = at if match is None else match.end()
        if end < len(raw) and raw[end] == _QUOTE:
            return end + 1
        if end == at:  # the last byte is a backslash
            break
        at = end
    return len(raw)
