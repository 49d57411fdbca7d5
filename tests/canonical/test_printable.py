"""Text shortened and escaped for one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical.printable import one_line, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Zoë", "Zoë"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("a\u2028b\u202ec", "a\\u2028b\\u202ec"), ("", "")],
)
def test_line_breaks_and_control_characters_are_escaped(text: str, expected: str) -> None:
    assert one_line(text) == expected


def test_long_text_is_cut_with_a_mark() -> None:
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 200_000, 10) == "xxxxxxx..."
    assert printable("\n" * 200_000, 10) == "\\n\\n\\n\\..."


def test_letters_beyond_ascii_are_escaped_on_request() -> None:
    assert printable("Zoë 🙂", 100, is_ascii=True) == "Zo\\xeb \\U0001f642"


@given(st.text(), st.integers(3, 50), st.booleans())
def test_any_text_fits_one_line_of_the_limit(text: str, limit: int, is_ascii: bool) -> None:
    line = printable(text, limit, is_ascii=is_ascii)
    assert len(line) <= limit
    assert line.isprintable()
    assert line.isascii() or not is_ascii
