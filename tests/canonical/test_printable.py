"""Text in a place that has room for one short line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical.printable import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Zoë", "Zoë"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("a\u2028b\u202ec", "a\\u2028b\\u202ec"), ("", "")],
)
def test_what_would_end_a_line_or_move_the_cursor_is_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_long_text_is_cut_and_says_so() -> None:
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 200_000, 10) == "xxxxxxx..."
    assert printable("\n" * 200_000, 10) == "\\n\\n\\n\\..."


def test_letters_beyond_ascii_are_escaped_on_request() -> None:
    assert printable("Zoë 🙂", 100, is_ascii=True) == "Zo\\xeb \\U0001f642"


@given(st.text(), st.integers(3, 50), st.booleans())
def test_any_text_fits_one_line_of_the_length(text: str, limit: int, is_ascii: bool) -> None:
    shown = printable(text, limit, is_ascii=is_ascii)
    assert len(shown) <= limit
    assert shown.isprintable()
    assert shown.isascii() or not is_ascii
