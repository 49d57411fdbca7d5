"""Server-Sent Events, read."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from babelgate.adapters.kit.client.sse import Frame, Frames
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import FaultCode, FaultError

READINGS = {
    "lf": (b"data: a\n\ndata: b\n\n", [Frame(b"a"), Frame(b"b")]),
    "crlf": (b"data: a\r\n\r\n", [Frame(b"a")]),
    "cr": (b"data: a\r\rdata: b\r\r", [Frame(b"a"), Frame(b"b")]),
    "several data lines": (b"data: a\ndata: b\n\n", [Frame(b"a\nb")]),
    "comments": (b": ping\n\ndata: a\n\n: ping\n\n", [Frame(b"a")]),
    "event and id": (b"event: x\nid: 1\ndata: a\n\ndata: b\n\n", [Frame(b"a", "x", "1"), Frame(b"b", "message", "1")]),
    "one space is taken off": (b"data:a\n\ndata:  a\n\n", [Frame(b"a"), Frame(b" a")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Frame(b"a")]),
    "unknown fields": (b"retry: 5\nwhat: x\nnoise\ndata: a\n\n", [Frame(b"a")]),
    "an event without data": (b"event: x\n\ndata: a\n\n", [Frame(b"a")]),
    "characters at which only a text has a new line": (
        "data: a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\n\n".encode(),
        [Frame("a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i".encode())],
    ),
    "an unfinished end": (b"data: a\n\ndata: b\n", [Frame(b"a")]),
}


@pytest.mark.parametrize(("raw", "frames"), READINGS.values(), ids=READINGS)
def test_streams_are_read_as_the_specification_says(raw: bytes, frames: list[Frame]) -> None:
    assert Frames().all([raw]) == frames


@given(st.sampled_from(list(READINGS.values())), st.lists(st.integers(0, 60)))
def test_it_does_not_matter_where_a_stream_is_cut(reading: tuple[bytes, list[Frame]], cuts: list[int]) -> None:
    raw, frames = reading
    edges = [0, *sorted(cuts), len(raw)]
    assert Frames().all(raw[start:end] for start, end in pairwise(edges)) == frames


@given(st.lists(st.binary()))
def test_any_bytes_can_be_read(chunks: list[bytes]) -> None:
    Frames().all(chunks)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_what_is_written_is_read(text: str) -> None:
    [read] = Frames().all([frame(to_json(text))])
    assert from_json(read.data) == text


def test_an_event_over_the_limit_is_a_fault_of_the_agent() -> None:
    for chunks in ([b"data: " + b"a" * 100], [b"a" * 60, b"a" * 60], [b"data: aaaaaaaaa\n"] * 20):
        with pytest.raises(FaultError) as caught:
            Frames(limit=100).all(chunks)
        assert caught.value.fault.code is FaultCode.AGENT_INVALID
