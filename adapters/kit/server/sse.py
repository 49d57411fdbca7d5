"""Writer of Server-Sent Events: streams as responses of handlers.

Frames are sent unchanged, so every byte of a frame is determined by the protocol.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, cast

from litestar import Response

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.server.encoding import LargeJson, TextTemplate, encode_text
from babelgate.adapters.kit.server.heartbeat import Monitor
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.printable import printable

HEARTBEAT: Final = b": heartbeat\n\n"
"""Comment that is sent on a silent stream."""
_PIECE: Final = 32 * 1024
"""Minimum size of a chunk of joined frames, in bytes, if enough frames are ready. Chosen."""
_FIELD_LENGTH: Final = 4096
"""Maximum length of an event's name or id, in characters. An agent may set them. Chosen: LangGraph's names hold the
path of a subgraph, about 50 characters per level."""


DISCONNECT_KEY: Final = "babelgate.disconnect"
"""Key in the ASGI scope of the function `register(callback) -> bool`, if the server has one. It calls `callback` once
when the client disconnects before the end of the response. It returns False if it cannot, because the request's body
has not been read completely. The ASGI function `receive` reports the disconnect, too, but needs a task for it."""


class LastPiece(bytes):
    """Last bytes of a stream. They are sent together with the end of the body, in one write."""


_HEADERS: Final = {"cache-control": "no-store", "connection": "keep-alive", "x-accel-buffering": "no"}
"""Headers of every stream, so that no proxy stores or buffers it. A handler may set another `Cache-Control`."""
_CONTENT_TYPE: Final = (b"content-type", b"text/event-stream; charset=utf-8")


class _Source:
    """ASGI response with the head of a stream and then its frames. One task watches for the reader's disconnect, in
    addition to the handler's task.

    The response of sse-starlette uses four tasks per stream, in groups, and a cancel scope per chunk. Measured: an idle
    stream of A2A takes 46 kB here, and 70 kB there. It would also poll permanently for the shutdown of uvicorn, and
    then cut streams at once. Here, the hub ends every subscription at shutdown, so streams end by themselves, with a
    last frame if the protocol has one.
    """

    __slots__ = ("_begin", "_frames", "_ping")

    def __init__(self, begin: Mapping[str, Any], frames: Any, ping: float | None) -> None:
        self._begin: Any = begin
        self._frames = frames
        """Frames of the stream. Held here so that they are closed even if the iteration never began."""
        self._ping = ping

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begin, self._begin = self._begin, None
        sending = _Sending(asyncio.current_task(), send, self._ping)
        # A task for each idle stream would take memory, and for each short one a tenth of its time.
        register = scope.get(DISCONNECT_KEY)
        leaving: asyncio.Task[None] | None = None
        if register is None or not register(sending.stop):
            leaving = asyncio.get_running_loop().create_task(sending.await_disconnect(receive))
        sending.monitor.open()
        try:
            async with aclosing(self._frames):
                await send(begin)
                begin = None  # release the head, because a stream may be silent for hours
                try:
                    async for data in self._frames:
                        await sending.send(data)
                except FaultError as error:
                    # The thread was erased after the response began: the stream ends, as if it had been erased during
                    # reading.
                    if error.fault.code is not FaultCode.NOT_FOUND:
                        raise
                if not sending.has_sent_last:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            # Returning without the end of the body makes the server cut the connection.
            if not sending.is_over or (sending.task is not None and sending.task.uncancel()):
                raise
        finally:
            sending.close()
            if leaving is not None:
                leaving.cancel()


class _Sending:
    """Sender of one stream's frames, until the reader disconnects or stops receiving."""

    __slots__ = ("_beating", "_is_within", "_send", "has_sent_last", "is_over", "monitor", "task")

    def __init__(self, task: "asyncio.Task[Any] | None", send: Any, ping: float | None) -> None:
        self.task = task
        self.is_over = False
        """True if the reader has disconnected, or was disconnected because it received nothing for too long."""
        self.has_sent_last = False
        """True if the end of the body was sent, together with the last frame."""
        self.monitor = Monitor(ping, self._beat, self.stop)
        self._send = send
        self._is_within = False
        """True while a frame is being sent in pieces. No heartbeat may be sent then, because it would become part of
        the frame."""
        self._beating: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        if not data:
            return
        self._is_within = not data.endswith(b"\n\n")
        self.has_sent_last = type(data) is LastPiece
        self.monitor.begin_send()
        await self._send({"type": "http.response.body", "body": data, "more_body": not self.has_sent_last})
        self.monitor.end_send()

    async def await_disconnect(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.stop()

    def close(self) -> None:
        """End the watch, and drop the references that form circles, which only the garbage collector would free."""
        self.monitor.close()
        if self._beating is not None:
            self._beating.cancel()
        self.task = None

    def stop(self) -> None:
        """End the stream, because its reader has disconnected or accepts nothing."""
        if self.task is not None and not self.is_over:
            self.is_over = True
            self.task.cancel()

    def _beat(self) -> None:
        if not self._is_within and not self.has_sent_last and (self._beating is None or self._beating.done()):
            self._beating = asyncio.get_running_loop().create_task(self._send_heartbeat())

    async def _send_heartbeat(self) -> None:
        await self._send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})


class EventStream(Response[AsyncIterator[bytes]]):
    """Litestar response with a stream of frames, so that a handler can return it or any other response."""

    def __init__(
        self, frames: AsyncIterator[bytes], *, ping: float | None, headers: Mapping[str, str], status_code: int = 200
    ) -> None:
        super().__init__(frames, status_code=status_code, media_type="text/event-stream", headers=dict(headers))
        self.frames = frames
        self.ping = ping

    def to_asgi_response(self, *_: Any, headers: Mapping[str, str] | None = None, **__: Any) -> Any:
        """Return the ASGI application that sends the stream. `headers` are those that Litestar adds."""
        texts = {**_HEADERS, **{name.lower(): text for name, text in {**(headers or {}), **self.headers}.items()}}
        encoded = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in texts.items()]
        begin = {
            "type": "http.response.start",
            "status": self.status_code or 200,
            "headers": [*encoded, _CONTENT_TYPE],
        }
        return _Source(begin, self.frames, self.ping)


def event_stream(
    frames: AsyncIterator[bytes], *, ping: float | None, headers: Mapping[str, str], status_code: int = 200
) -> EventStream:
    """Return a response with a stream of frames. `ping` is the number of seconds between heartbeat comments; None = no
    heartbeats. The iterator is closed when the reader disconnects."""
    return EventStream(frames, ping=ping, headers=headers, status_code=status_code)


_ESCAPES: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Line breaks U+0085, U+2028 and U+2029: for each, its UTF-8 bytes, and its JSON escape."""


def frame(data: bytes, *, id: str | None = None, event: str | None = None) -> bytes:
    """Return one frame of an event stream with an `id` and an `event` field, unless these are None. `data` is JSON; if
    it has line breaks, it becomes several data lines.

    Only CR and LF end a line of an event stream (https://html.spec.whatwg.org/#parsing-an-event-stream). But
    `aiter_lines` of httpx, and so the official A2A and ACP clients, split at every line break of `str.splitlines`. JSON
    already escapes the control characters among those line breaks. The other three occur only in JSON strings, and are
    escaped here.
    """
    if not data.isascii():
        data = _escape(data)
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(data.splitlines())
    head = b"data: " if id is None and event is None else _head(id, event)
    return head + data + b"\n\n"


def frames(data: Iterable[bytes], *, before: bytes = b"", after: bytes = b"") -> bytes:
    """Return one frame for each JSON text in `data`, joined. Each text must be on one line, as this gateway encodes
    JSON. `before` and `after` are added around each text."""
    between = after + b"\n\ndata: " + before
    return _escape(b"data: " + before + between.join(data) + after + b"\n\n")


class TextFrames:
    """Encoder of frames whose values differ in one text only, such as the tokens of a response."""

    __slots__ = ("_template",)

    def __init__(self, make: Callable[[str], Any]) -> None:
        """Create the template. `make` returns the value or the pydantic model for a text, and must contain the text
        exactly once."""
        self._template = TextTemplate(make)

    def write(self, texts: Sequence[str], *, ids: Iterable[str] | None = None, event: str | None = None) -> list[bytes]:
        """Return one frame for each text. The id of a frame is that at the same position of `ids`, and its event is
        `event`; None omits the field."""
        heads = repeat(_head(None, event)) if ids is None else [_head(id, event) for id in ids]
        before, after = self._template.before, self._template.after + b"\n\n"
        encoded = [head + before + encode_text(text) + after for head, text in zip(heads, texts, strict=False)]
        return encoded if all(map(bytes.isascii, encoded)) else list(map(_escape, encoded))


@dataclass(frozen=True, slots=True)
class LargeFrame:
    """A frame that is encoded while it is sent, piece by piece. Encoding it at once would block the event loop, and
    hold the JSON in memory in addition to the value."""

    head: bytes
    data: LargeJson

    def __len__(self) -> int:
        return len(self.data)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the bytes of the frame."""
        begin = self.head
        async with aclosing(self.data.pieces()) as pieces:
            async for piece in pieces:
                yield begin + _escape(piece)
                begin = b""
        yield b"\n\n"


def frame_of(data: bytes | LargeJson, *, id: str | None = None, event: str | None = None) -> bytes | LargeFrame:
    """Return a frame with the JSON `data`, as bytes, or as a `LargeFrame` if the JSON is large. Its fields `id` and
    `event` are omitted if they are None."""
    return LargeFrame(_head(id, event), data) if isinstance(data, LargeJson) else frame(data, id=id, event=event)


_JOINED: Final = 64
"""Maximum number of frames that `join_frames` joins. Chosen: more than a short answer has."""


def join_frames(frames: Sequence[bytes | LargeFrame], *, is_last: bool = False) -> bytes | None:
    """Return the bytes of a few small frames. Return None if there are many, or if one is large: `pieces_of` is for
    these. A short answer then takes one iterator less. With `is_last`, no frames follow in the stream."""
    if len(frames) > _JOINED or not all(type(each) is bytes for each in frames):
        return None
    joined = b"".join(cast("Sequence[bytes]", frames))
    return LastPiece(joined) if is_last else joined


async def pieces_of(frames: Iterable[bytes | LargeFrame]) -> AsyncGenerator[bytes]:
    """Yield the bytes of the frames. Small frames are joined to chunks."""
    time_slice = TimeSlice()
    ready: list[bytes] = []
    size = 0
    for each in frames:
        if isinstance(each, bytes):
            ready.append(each)
            size += len(each)
            if size < _PIECE:
                continue
        if ready:
            joined, size = b"".join(ready), 0
            ready.clear()
            yield joined
        if isinstance(each, bytes):
            continue
        if time_slice.is_used_up:
            await time_slice.pause()
        async with aclosing(each.pieces()) as pieces:
            async for piece in pieces:
                yield piece
    if ready:
        joined = b"".join(ready)
        ready.clear()
        yield joined


def _head(id: str | None, event: str | None) -> bytes:
    """Return the first lines of a frame, up to its data. The fields `id` and `event` are omitted if they are None."""
    head = b""
    if event is not None:
        head += b"event: " + _one_line(event) + b"\n"
    if id is not None:
        head += b"id: " + _one_line(id) + b"\n"
    return head + b"data: "


def _escape(data: bytes) -> bytes:
    """Return the JSON with the line breaks in `_ESCAPES` replaced by their escapes."""
    if data.isascii():
        return data
    for raw, escaped in _ESCAPES:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


def _one_line(text: str) -> bytes:
    """Return the name or id of an event as one printable line of limited length."""
    return printable(text, _FIELD_LENGTH).encode()
