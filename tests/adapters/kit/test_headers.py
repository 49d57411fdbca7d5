"""Parsing of HTTP headers by RFC 9110."""

import pytest

from babelgate.adapters.kit.headers import (
    combine_lines,
    content_codings,
    find_repeated,
    is_accepted,
    is_preferred,
    media_type_of,
    preferences,
    read_line,
)

JSON, EVENTS = "application/json", "text/event-stream"


@pytest.mark.parametrize(
    ("accept", "json", "events", "prefers_events"),
    [
        ("", True, True, False),
        ("*/*", True, True, False),
        ("text/event-stream", False, True, True),
        ("Text/Event-Stream; charset=utf-8", False, True, True),
        ("text/*", False, True, True),
        ("application/json, text/event-stream", True, True, True),
        ("application/json, text/event-stream;q=0.5", True, True, False),
        ("text/event-stream;q=0, */*", True, False, False),
        ("text/event-stream ; Q=0.0", False, False, False),
        ("application/json;q=0.1, text/*;q=0.9", True, True, True),
        ("*/*;q=0.5, text/event-stream", True, True, True),
        ("text/event-stream-not, text/html", False, False, False),
        ("text/event-stream;q=much", False, False, False),
        ("application/xml", False, False, False),
    ],
)
def test_accept_is_parsed_as_ranges_with_weights(accept: str, json: bool, events: bool, prefers_events: bool) -> None:
    assert (is_accepted(accept, JSON), is_accepted(accept, EVENTS)) == (json, events)
    assert is_preferred(accept, EVENTS, JSON) is prefers_events


def test_lines_with_one_name_are_joined() -> None:
    lines = [(b"Accept", b" text/plain"), (b"cookie", b"a=1"), (b"accept", b"text/event-stream "), (b"cookie", b"b=2")]
    assert combine_lines(lines) == {b"accept": b"text/plain, text/event-stream", b"cookie": b"a=1; b=2"}
    assert read_line(lines, "accept") == "text/plain, text/event-stream"
    assert read_line(lines, "prefer") == ""


def test_a_repeated_single_value_header_is_found() -> None:
    assert find_repeated([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")]) == "authorization"
    assert find_repeated([(b"host", b"a"), (b"host", b"a"), (b"accept", b"a"), (b"accept", b"b")]) is None


def test_media_types_codings_and_preferences_ignore_case() -> None:
    assert media_type_of("Text/Event-Stream;charset=UTF-8") == EVENTS
    assert content_codings("Identity, GZIP , identity") == ["gzip"]
    assert content_codings("") == []
    assert preferences('respond-async, Return="Minimal"; foo=bar, return=representation') == {
        "respond-async": "",
        "return": "minimal",
    }
