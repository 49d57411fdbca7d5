"""Decoding of Server-Sent Events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from babelgate.adapters.kit.client.sse import Frame, Frames
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import FaultCode, FaultError

STREAMS = {
    "lf": (b"data: a\n\ndata: b\n\n", [Frame(b"a"), Frame(b"b")]),
    "crlf": (b"data: a\r\n\r\n", [Frame(b"a")]),
    "cr": (b"data: a\r\rdata: b\r\r", [Frame(b"a"), Frame(b"b")]),
    "several data lines": (b"data: a\ndata: b\n\n", [Frame(b"a\nb")]),
    "comments": (b": ping\n\ndata: a\n\n: ping\n\n", [Frame(b"a")]),
    "event and id": (b"event: x\nid: 1\ndata: a\n\ndata: b\n\n", [Frame(b"a", "x", "1"), Frame(b"b", "message", "1")]),
    "one space is removed": (b"data:a\n\ndata:  a\n\n", [Frame(b"a"), Frame(b" a")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Frame(b"a")]),
    "unknown fields": (b"retry: 5\nwhat: x\nnoise\ndata: a\n\n", [Frame(b"a")]),
    "an event without data": (b"event: x\n\ndata: a\n\n", [Frame(b"a")]),
    "characters that are line breaks only in text": (
        "data: a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\n\n".encode(),
        [Frame("a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i".encode())],
    ),
    "an unfinished end": (b"data: a\n\ndata: b\n", [Frame(b"a")]),
}


@pytest.mark.parametrize(("raw", "frames"), STREAMS.values(), ids=STREAMS)
def test_streams_are_decoded_as_the_specification_says(raw: bytes, frames: list[Frame]) -> None:
    assert Frames().all([raw]) == frames


@given(st.sampled_from(list(STREAMS.values())), st.lists(st.integers(0, 60)))
def test_frames_are_independent_of_chunk_boundaries(stream: tuple[bytes, list[Frame]], cuts: list[int]) -> None:
    raw, frames = stream
    edges = [0, *sorted(cuts), len(raw)]
    assert Frames().all(raw[start:end] for start, end in pairwise(edges)) == frames


@given(st.lists(st.binary()))
def test_any_bytes_can_be_read(chunks: list[bytes]) -> None:
    Frames().all(chunks)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_an_encoded_frame_is_decoded_unchanged(text: str) -> None:
    [read] = Frames().all([frame(to_json(text))])
    assert from_json(read.data) == text


def test_an_event_over_the_limit_is_the_agents_fault() -> None:
    for chunks in ([b"data: " + b"a" * 100], [b"a" * 60, b"a" * 60], [b"data: aaaaaaaaa\n"] * 20):
        with pytest.raises(FaultError) as caught:
            Frames(limit=100).all(chunks)
        assert caught.value.fault.code is FaultCode.AGENT_INVALID
