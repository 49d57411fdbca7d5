"""Escaping of text from agents, servers and callers, so that it is safe on one line: in a header, a log line, a field
of an SSE event or a file name."""

from typing import Final

_CUT: Final = "..."


def one_line(text: str) -> str:
    """Return the text with control characters, line separators and direction marks escaped as in Python's `repr`:
    `\\n`, `\\x1b`, `\\u2028`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def printable(text: str, limit: int, *, is_ascii: bool = False) -> str:
    """Return at most `limit` characters of a text on one line. A text that was cut ends with `...`.

    `is_ascii` also escapes all characters beyond ASCII.
    """
    prefix = text[: limit + 1]  # first, because the text may be huge
    escaped = one_line(prefix)
    if is_ascii and not escaped.isascii():
        escaped = "".join(each if each.isascii() else _escape(each) for each in escaped)
    if len(escaped) <= limit:
        return escaped
    return escaped[: limit - len(_CUT)] + _CUT


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
