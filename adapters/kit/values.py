"""JSON size guard: how many values a text holds, found before it is parsed, as each becomes an object many times its
size."""

import re
from typing import Final

_QUOTE: Final = ord('"')
_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The rest of a string, without a step back (possessive quantifiers)."""
_PIECE: Final = 64 * 1024
"""Bytes of a string that are looked through at once: an expression holds the interpreter's lock until it is done."""


def count_values(raw: bytes, most: int) -> int:
    """Objects, lists, and what is in them; `raw` need not be JSON. Where there are more than `most`, this is some
    number above it. The time grows with the bytes, and memory is not needed."""
    found = 1 + _marks(raw, 0, len(raw))
    if found <= most:  # with what stands in strings, so there are no more than these
        return found
    found, texts, at = 1, 0, 0
    while (quote := raw.find(b'"', at)) >= 0:
        found += _marks(raw, at, quote)
        texts += 1
        if found > most or texts > 2 * most:  # a name and a value each
            return most + 1
        at = _end_of_text(raw, quote + 1)
    return found + _marks(raw, at, len(raw))


def _marks(raw: bytes, start: int, end: int) -> int:
    """What begins an object or a list, or another value in one."""
    return raw.count(b",", start, end) + raw.count(b"[", start, end) + raw.count(b"{", start, end)


def _end_of_text(raw: bytes, at: int) -> int:
    while at < len(raw):
        found = _TEXT.match(raw, at, at + _PIECE)
        end = at if found is None else found.end()
        if end < len(raw) and raw[end] == _QUOTE:
            return end + 1
        if end == at:  # a backslash is the last byte
            break
        at = end
    return len(raw)
