"""HTTP recording (cassette): the HTTP exchanges of all clients during `babelgate record`, as JSON without secrets.

`connect` records the exchanges of every connection that is opened in its context. These are the exchanges with the
agent's server and, if a client of the command calls the gateway, those with the gateway.
"""

import json
import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import httpx

from babelgate.adapters.kit.client.answers import READ
from babelgate.adapters.kit.client.calls import EVENT_HOOKS
from babelgate.canonical.value import JsonObject
from babelgate.conformance.wire.credentials import hide_credentials
from babelgate.conformance.wire.exchange import Exchange, Redactor, SseFrame
from babelgate.conformance.wire.sse import SseParser

BODY: Final = 2**20
"""Maximum number of bytes that are recorded of a body, or of all events of a stream. Chosen."""
EXCHANGES: Final = 1000
"""Maximum number of recorded exchanges. Chosen: later ones are only counted."""


class WireRecorder:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._exchanges: dict[httpx.Request, _RecordedExchange] = {}
        """Recorded exchanges by request, in the order of the requests."""
        self._missed = 0

    @contextmanager
    def connect(self) -> Generator[None]:
        token = EVENT_HOOKS.set({"request": [self._record_request], "response": [self._record_response]})
        try:
            yield
        finally:
            EVENT_HOOKS.reset(token)

    async def _record_request(self, request: httpx.Request) -> None:
        if len(self._exchanges) == EXCHANGES:
            self._missed += 1
            return
        self._exchanges[request] = _RecordedExchange(request, await request.aread(), self._began)

    async def _record_response(self, response: httpx.Response) -> None:
        exchange = self._exchanges.get(response.request)
        if exchange is not None:
            exchange.begin(response)

    def as_json(self, gateway: str, hidden: Sequence[Mapping[str, str]], secrets: Iterable[str]) -> JsonObject:
        """Return the recorded exchanges as JSON. `gateway` is the URL of the command's gateway, by which its calls are
        recognized.

        The values of the headers named in `hidden`, and all `secrets`, are redacted.
        """
        secrets = list(secrets)
        # A secret may be repeated inside JSON.
        hide = _Hide({name.lower() for each in hidden for name in each}, [*secrets, *map(_escape, secrets)])
        exchanges = [
            {"side": _side(request, gateway), **exchange.as_json(hide)} for request, exchange in self._exchanges.items()
        ]
        return {"exchanges": exchanges, **({"missed": self._missed} if self._missed else {})}


def _side(request: httpx.Request, gateway: str) -> str:
    return "caller" if str(request.url).startswith(f"{gateway}/") else "agent"


def _escape(secret: str) -> str:
    return json.dumps(secret)[1:-1]


class _Hide:
    def __init__(self, headers: set[str], secrets: Sequence[str]) -> None:
        self._headers = headers
        self._redact = Redactor(secrets)
        self._longest = max(map(len, secrets), default=0)

    def headers(self, headers: Iterable[tuple[str, str]]) -> list[list[str]]:
        redacted = self._redact.headers(headers)
        return [[name, "[redacted]" if name.lower() in self._headers else value] for name, value in redacted]

    def text(self, text: str, *, is_cut: bool = False) -> str:
        """Return the text without secrets. If the text was cut (`is_cut`), its end is removed, too, because it may be
        the beginning of a secret."""
        text = self._redact.text(text)
        return text[: -self._longest or None] if is_cut else text


class _RecordedExchange:
    """Recording of one HTTP request and its response."""

    def __init__(self, request: httpx.Request, body: bytes, began: float) -> None:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        self._exchange = Exchange(0, request.method, hide_credentials(str(request.url)), headers, body[:BODY])
        self._cut = max(0, len(body) - BODY)
        self._asked = time.monotonic()
        self._at = self._asked - began
        self._events: SseParser | None = None
        self._room = BODY
        self._answer_cut = 0

    def begin(self, response: httpx.Response) -> None:
        self._exchange.status = response.status_code
        self._exchange.response_headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw
        ]
        if self._exchange.is_stream:
            self._events = SseParser()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _RecordedStream(response.stream, self)
        response.extensions.pop(READ, None)  # the body must be read through the stream

    def add_content(self, piece: bytes) -> None:
        content = piece[: self._room]
        self._room -= len(content)
        self._answer_cut += len(piece) - len(content)
        if self._events is None:
            self._exchange.content += content
            return
        try:
            self._exchange.frames += self._events.feed(content, time.monotonic() - self._asked)
        except UnicodeDecodeError:
            self._answer_cut += len(content)
            self._room = 0

    def end(self) -> None:
        self._exchange.is_ended = True

    def as_json(self, hide: _Hide) -> JsonObject:
        exchange = self._exchange
        result: JsonObject = {
            "at": _micros(self._at),
            "method": exchange.method,
            "url": hide.text(exchange.url),
            "headers": hide.headers(exchange.headers),
            "body": hide.text(_decode(exchange.body), is_cut=self._cut > 0),
        }
        if self._cut:
            result["body_cut"] = self._cut
        if exchange.status is not None:
            result["answer"] = self._answer_as_json(hide)
        return result

    def _answer_as_json(self, hide: _Hide) -> JsonObject:
        exchange = self._exchange
        result: JsonObject = {"status": exchange.status, "headers": hide.headers(exchange.response_headers)}
        if self._events is None:
            result["body"] = hide.text(_decode(exchange.content), is_cut=self._answer_cut > 0)
        else:
            result["events"] = [_event_as_json(each, hide) for each in exchange.frames]
        if self._answer_cut:
            result["cut"] = self._answer_cut
        return {**result, "is_ended": exchange.is_ended}


def _event_as_json(frame: SseFrame, hide: _Hide) -> JsonObject:
    return {"at": _micros(frame.at), "text": hide.text(frame.raw)}


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _decode(content: bytes) -> str:
    return content.decode("utf-8", errors="backslashreplace")


class _RecordedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, exchange: _RecordedExchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._exchange.add_content(piece)
            yield piece
        self._exchange.end()

    async def aclose(self) -> None:
        await self._stream.aclose()
