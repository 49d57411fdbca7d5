"""Text of agents, servers and callers in a place that has room for one short line: a header, a log line, a field of an
SSE event, a file name."""

from typing import Final

_CUT: Final = "..."


def one_line(text: str) -> str:
    """Escape control characters, line separators and marks of direction as Python does: `\\n`, `\\x1b`, `\\u2028`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def printable(text: str, limit: int, *, is_ascii: bool = False) -> str:
    """Return at most `limit` characters of a text, on one line, with `...` at the end of what was cut.

    `is_ascii` escapes the letters beyond ASCII, too.
    """
    shown = text[: limit + 1]  # first: the text may be huge
    escaped = one_line(shown)
    if is_ascii and not escaped.isascii():
        escaped = "".join(each if each.isascii() else _escape(each) for each in escaped)
    if len(escaped) <= limit:
        return escaped
    return escaped[: limit - len(_CUT)] + _CUT


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
