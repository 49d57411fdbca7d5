"""Recorded exchanges: limits, and secrets that never stay in memory."""

import pytest

from babelgate.adapters.kit.client.exchanges import BODY_LIMIT, OVERHEAD, ExchangeRecorder, RecordedExchange
from babelgate.adapters.kit.client.redact import hide_headers, hide_url


def recorder() -> ExchangeRecorder:
    return ExchangeRecorder(lambda: 1, lambda recorder, size: None)


def begin(*headers: tuple[bytes, bytes], run: ExchangeRecorder | None = None) -> RecordedExchange:
    exchange = (run or recorder()).begin("GET", "http://h/x?key=abcdefghijkl", headers)
    assert exchange is not None
    return exchange


def test_a_secret_in_two_pieces_is_removed() -> None:
    run = recorder()
    exchange = begin((b"X-Key", b"abcdefghijkl"), run=run)
    exchange.note_head(200, [(b"Set-Cookie", b"a=b"), (b"Content-Type", b"text/plain")])
    for piece in (b"one abcdef", b"ghijkl two"):
        exchange.note_piece(piece)

    def shown() -> list[object]:
        body = b"".join(piece for _, piece in exchange.bodies()[1])
        return [exchange.url, exchange.headers, exchange.response_headers, body, exchange.error]

    expected = [
        "http://h/x?key=***",
        [("X-Key", "***")],
        [("Set-Cookie", "***"), ("Content-Type", "text/plain")],
        b"one *** two",
        "ValueError: abc ***",
    ]
    assert shown() == [*expected[:-1], ""]
    exchange.note_end(ValueError("abc abcdefghijkl"))
    assert shown() == expected
    run.keep()
    assert shown() == expected
    assert b"".join(piece for _, piece in exchange.response.pieces) == b"one *** two"


def test_an_exchange_that_ends_after_its_run_loses_its_secrets() -> None:
    run = recorder()
    exchange = begin((b"X-Key", b"abcdefghijkl"), run=run)
    run.keep()
    exchange.note_piece(b"abcdefghijkl")
    exchange.note_end()
    assert [piece for _, piece in exchange.response.pieces] == [b"***"]


def test_nothing_is_stored_after_the_end() -> None:
    exchange = begin()
    exchange.note_piece(b"one")
    exchange.note_end(ValueError("broken"))
    exchange.note_piece(b"two")
    exchange.note_end()
    assert [piece for _, piece in exchange.response.pieces] == [b"one"]
    assert exchange.error == "ValueError: broken" and exchange.has_failed


def test_bodies_and_pieces_are_bounded() -> None:
    exchange = begin()
    for _ in range(3):
        exchange.note_piece(b"x" * BODY_LIMIT)
    assert sum(len(piece) for _, piece in exchange.response.pieces) == BODY_LIMIT
    assert exchange.response.size == 3 * BODY_LIMIT and exchange.response.is_cut
    pieces = begin()
    for _ in range(5000):
        pieces.note_piece(b"x")
    assert len(pieces.response.pieces) == 4096 and pieces.response.is_cut


def test_exchanges_of_a_run_are_bounded() -> None:
    run = recorder()
    for _ in range(1001):
        run.begin("GET", "http://h/", [])
    assert (len(run.exchanges), run.omitted, run.size) == (1000, 1, 1000 * (OVERHEAD + len("http://h/")))
    run.drop()
    assert run.begin("GET", "http://h/", []) is None and run.exchanges == []


@pytest.mark.parametrize(
    ("url", "stored_url"),
    [
        ("http://ada:secret@h:80/x", "http://h:80/x"),
        ("https://h/x?api_key=abc&q=1&access_token=d", "https://h/x?api_key=***&q=1&access_token=***"),
        ("http://h/x?%61pi_key=abc", "http://h/x?%61pi_key=***"),
        ("http://h/x?stream_mode=values", "http://h/x?stream_mode=values"),
        ("http://[h/x", "***"),
    ],
)
def test_urls_lose_their_credentials(url: str, stored_url: str) -> None:
    assert hide_url(url) == stored_url


def test_only_values_of_harmless_headers_stay() -> None:
    headers = [("Authorization", "Bearer x"), ("X-Anything", "x"), ("Accept", "*/*"), ("Mcp-Method", "tools/list")]
    assert hide_headers([*headers, ("Location", "http://a:b@h/x?token=1")]) == [
        ("Authorization", "***"),
        ("X-Anything", "***"),
        ("Accept", "*/*"),
        ("Mcp-Method", "tools/list"),
        ("Location", "http://h/x?token=***"),
    ]
