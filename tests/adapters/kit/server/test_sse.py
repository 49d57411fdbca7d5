"""Encoding of Server-Sent Events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar, Request, Response, get
from pydantic_core import from_json, to_json

from babelgate.adapters.acp import wire as w
from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.sse import (
    DISCONNECT_KEY,
    HEARTBEAT,
    LargeFrame,
    LastPiece,
    TextFrames,
    event_stream,
    frame,
    frame_of,
    frames,
    pieces_of,
)
from babelgate.canonical import FaultCode, FaultError
from tests import loopback
from tests.bridge import client
from tests.serving import serving

BOUND = 30


def test_a_frame_has_only_data_by_default() -> None:
    assert frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert frame(b"x", id="7-0", event="values") == b"event: values\nid: 7-0\ndata: x\n\n"


@given(st.lists(st.text(), min_size=1), st.none() | st.sampled_from(("values", "a\nb")), st.booleans())
def test_frames_of_texts_equal_single_frames(texts: list[str], event: str | None, has_ids: bool) -> None:
    def make(text: str) -> Any:
        return {"before": "\u2028", "text": text, "after": [1]}

    alone = [
        frame_of(encode(make(text)), id=f"{n}-1" if has_ids else None, event=event) for n, text in enumerate(texts)
    ]
    ids = [f"{n}-1" for n in range(len(texts))] if has_ids else None
    assert TextFrames(make).write(texts, ids=ids, event=event) == alone


@given(st.lists(st.text(), min_size=1))
def test_frames_with_prefix_and_suffix_equal_single_frames(texts: list[str]) -> None:
    data = list(map(to_json, texts))
    assert frames(data, before=b"[", after=b"]") == b"".join(frame(b"[%b]" % each) for each in data)


def test_data_with_line_breaks_becomes_several_data_lines() -> None:
    assert frame(b"a\nb\r\nc") == b"data: a\ndata: b\ndata: c\n\n"


@pytest.mark.parametrize("break_", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_no_client_finds_a_line_break_inside_the_data(break_: str) -> None:
    """Escape all line breaks of `str.splitlines`, at which httpx's `aiter_lines` splits, and so A2A and ACP clients."""
    value = {f"name{break_}": f"{break_}a{break_}b{break_}"}
    written = frame(to_json(value)).decode()
    assert [line for line in written.splitlines() if line] == [written.removesuffix("\n\n")]
    [read] = Frames().all([written.encode()])
    assert from_json(read.data) == value


def test_an_id_cannot_break_out_of_its_line() -> None:
    assert frame(b"x", id="1\ndata: evil") == b"id: 1\\ndata: evil\ndata: x\n\n"


def test_the_name_of_an_event_is_one_short_line() -> None:
    assert frame(b"x", event="a\r\nid: 7\u2028") == b"event: a\\r\\nid: 7\\u2028\ndata: x\n\n"
    assert len(frame(b"x", event="a" * 200_000)) < 5_000


class Source:
    """Endless stream that records when it was closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            yield frame(b"1")
            await asyncio.Event().wait()
        finally:
            self.closed.set()


def app(frames: Any, ping: float | None = None) -> Litestar:
    @get("/")
    async def stream(request: Request[Any, Any, Any]) -> Response[Any]:
        return event_stream(frames(), ping=ping, headers={"Babelgate-Run": "r"})

    return Litestar([stream], openapi_config=None)


async def three() -> AsyncIterator[bytes]:
    for number in range(3):
        yield frame(str(number).encode())


async def test_a_stream_has_its_bytes_and_headers() -> None:
    async with client(app(three)) as http:
        answer = await http.get("/")
    assert answer.content == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["babelgate-run"] == "r"


async def test_a_stream_of_an_erased_thread_ends() -> None:
    async def erased() -> AsyncIterator[bytes]:
        yield frame(b"1")
        raise FaultError(FaultCode.NOT_FOUND, "Thread 1 not found")

    async with client(app(erased)) as http:
        response = await http.get("/")
    assert (response.status_code, response.content) == (200, b"data: 1\n\n")


@pytest.mark.parametrize("transport", ["bridge", "socket"])
async def test_the_iterator_is_closed_when_the_client_disconnects(transport: str) -> None:
    source = Source()

    async def leave(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", "/") as response:
            assert await anext(response.aiter_bytes()) == b"data: 1\n\n"
        async with asyncio.timeout(BOUND):
            await source.closed.wait()

    if transport == "bridge":
        async with client(app(source.frames)) as http:
            await leave(http)
        return
    async with serving(app(source.frames)) as url, loopback.client(base_url=url) as http:
        await leave(http)


async def test_a_silent_stream_sends_heartbeats_if_configured() -> None:
    source = Source()
    async with client(app(source.frames, ping=0.01)) as http, http.stream("GET", "/") as response:
        chunks = response.aiter_bytes()
        async with asyncio.timeout(BOUND):
            assert [await anext(chunks) for _ in range(3)] == [b"data: 1\n\n", HEARTBEAT, HEARTBEAT]


LARGE: Final[Any] = {"a": ["é\u2028\x85" * 200_000, {"b": [1] * 20_000}], "c": "x" * 300_000}


async def test_pieces_of_a_large_frame_equal_the_frame() -> None:
    whole = frame(to_json(LARGE), id="1-2", event="values")
    large = frame_of(encode(LARGE), id="1-2", event="values")
    assert isinstance(large, LargeFrame)
    small = frame_of(encode([1]), event="a")
    assert isinstance(small, bytes) and small == frame(b"[1]", event="a")
    pieces = [piece async for piece in pieces_of([small, small, large, small])]
    assert b"".join(pieces) == small + small + whole + small
    assert len(pieces) > 4
    assert max(map(len, pieces)) < len(whole)


async def test_pieces_of_a_large_model_equal_its_frame() -> None:
    part = w.MessagePart.model_validate({"content": "é\u2028" * 200_000, "own": [1.5, 1e300, -0.0, None, {"a": True}]})
    message = w.Message(role="agent", parts=[part, w.MessagePart(content='{"a": 1.0}')])
    run = w.Run(agent_name="a", run_id="r", session_id="s", status="completed", output=[message] * 3, created_at="now")
    event = w.RunEvent(type="run.completed", run=run)
    large = frame_of(encode(event))
    assert isinstance(large, LargeFrame)
    assert b"".join([piece async for piece in large.pieces()]) == frame(event.model_dump_json().encode())
    small = w.MessageEvent(type="message.created", message=w.Message(role="agent", parts=[]))
    assert encode(small) == small.model_dump_json().encode()


async def test_no_heartbeat_is_sent_inside_a_frame() -> None:
    beaten = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'data: "a'
        await beaten.wait()
        yield b'b"\n\n'
        await asyncio.Event().wait()

    async def read_frame() -> bytes:
        """Read up to the heartbeat after the frame."""
        async with http.stream("GET", "/") as response:
            content = b""
            async for chunk in response.aiter_raw():
                content += chunk
                if content.endswith(HEARTBEAT):
                    break
        return content

    silent = Source()
    async with client(app(slow, ping=0.01)) as http, client(app(silent.frames, ping=0.01)) as other:
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(read_frame())
            async with other.stream("GET", "/") as response:
                chunks = response.aiter_bytes()
                assert [await anext(chunks) for _ in range(6)][2:] == [
                    HEARTBEAT
                ] * 4  # the slow stream would also have sent four
            beaten.set()
        assert reader.result() == b'data: "ab"\n\n' + HEARTBEAT


async def test_the_last_piece_ends_the_body() -> None:
    async def ended() -> AsyncIterator[bytes]:
        yield frame(b"1")
        yield LastPiece(frame(b"2"))

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    registered: list[Callable[[], None]] = []

    def register(callback: Callable[[], None]) -> bool:
        registered.append(callback)
        return True

    stream = event_stream(ended(), ping=None, headers={}).to_asgi_response()
    # The server reports a disconnect by the callback, so nothing reads `receive`.
    await stream({"type": "http", DISCONNECT_KEY: register}, None, send)
    assert [(each.get("body"), each.get("more_body")) for each in sent[1:]] == [
        (b"data: 1\n\n", True),
        (b"data: 2\n\n", False),
    ]
    assert len(registered) == 1


async def test_no_task_remains_after_a_stream() -> None:
    async with client(app(three)) as http:
        await http.get("/")
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task.get_coro().__qualname__ for task in left] == []  # type: ignore[union-attr]
