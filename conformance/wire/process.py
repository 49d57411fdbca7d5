"""Client's end of a process that speaks JSON-RPC over its standard streams, one message in each line."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from babelgate.conformance.wire.exchange import Exchange, SseFrame, as_object, dig, json_or_none
from babelgate.conformance.wire.http import MAX_FRAMES, TIMED_OUT, Unanswered, Wire
from babelgate.conformance.wire.links import PROCESS, LinkLost, ProcessLink

_START: Final = 3
"""Maximum duration of a process's first answer, as a multiple of the timeout for one answer. Chosen."""
_ANSWERED: Final = 200
"""Status of an exchange that has an answer. JSON-RPC has none; reports show 200."""
_UNKNOWN_METHOD: Final = -32601
_MAX_INVALID: Final = 1000
"""Maximum number of lines that are read from one process and are not JSON objects. Chosen."""


class ProcessPeer:
    """Process under test. It records each request as an exchange, whose events are the messages that belong to it."""

    def __init__(self, wire: Wire, link: ProcessLink, address: str, schema: str) -> None:
        """Create the client of a running process. `schema` is the name of the definition of every message."""
        self._wire = wire
        self._link = link
        self._address = address
        self._schema = schema
        self._requests: dict[Any, ProcessStream] = {}
        """Requests that were sent, by their id; also those that are answered, because a process may answer twice."""
        self._tokens: dict[Any, ProcessStream] = {}
        """Requests by the token of their progress."""
        self._listeners: list[ProcessStream] = []
        self._last: ProcessStream | None = None
        self.has_answered = False
        self.end: LinkLost | None = None
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, wire: Wire, address: str, schema: str) -> "ProcessPeer":
        """Start the command of a `stdio:` address. It ends with the check. Raises Unanswered if it cannot be
        executed."""
        try:
            link = await ProcessLink.start(address.removeprefix(PROCESS))
        except LinkLost as error:
            exchange = wire.begin("start", address, b"")
            exchange.error = str(error)
            raise Unanswered(exchange.error, exchange) from None
        peer = cls(wire, link, address, schema)
        wire.closers.append(peer.aclose)
        return peer

    async def restart(self) -> "ProcessPeer":
        """Start another process of the same command. Raises Unanswered if it cannot be executed."""
        return await ProcessPeer.start(self._wire, self._address, self._schema)

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._link.aclose()

    @property
    def bound(self) -> float:
        """Timeout for the next message, in seconds. The first one may take longer, because the process starts."""
        return self._wire.timeout * (1 if self.has_answered else _START)

    async def post(self, message: Any, *, sends: str | None) -> "ProcessStream":
        """Send a request or a notification, and return the stream of its messages, which ends with the response. The
        stream of a notification is empty. `sends` is the name of the schema of the message; None validates nothing.
        Raises Unanswered if the process has ended."""
        stream = self._begin(str(dig(message, "method")), message, sends)
        request_id, token = dig(message, "id"), dig(message, "params", "_meta", "progressToken")
        stream.is_done = request_id is None
        if request_id is not None:
            self._requests[_key(request_id)] = self._last = stream
        if token is not None:
            self._tokens[_key(token)] = stream
        try:
            await self._link.send(stream.exchange.body.decode())
        except LinkLost as error:
            stream.exchange.error = str(error)
            raise Unanswered(stream.exchange.error, stream.exchange) from None
        return stream

    def listen(self) -> "ProcessStream":
        """Return a stream of the notifications that belong to no request, from now on."""
        stream = self._begin("listen", None, None)
        self._listeners.append(stream)
        return stream

    def _begin(self, method: str, message: Any, sends: str | None) -> "ProcessStream":
        body = b"" if message is None else json.dumps(message, ensure_ascii=False).encode()
        exchange = self._wire.begin(method, self._address, body)
        exchange.is_message_stream = True
        if sends is not None:
            self._wire.hold(exchange, sends, message, is_from_check=True)
        return ProcessStream(self, exchange)

    async def _read(self) -> None:
        left, left_invalid = MAX_FRAMES, _MAX_INVALID
        while left and left_invalid and (text := await self._link.receive()) is not None:
            await asyncio.sleep(0)  # A process that writes without end must not stop the timeouts.
            message = as_object(json_or_none(text))
            left, left_invalid = left - 1, left_invalid - (message is None)
            if message is not None and "method" in message and "id" in message:
                await self._answer(message)
            else:
                self._sort(text, message)
        if left and left_invalid:
            self.end = LinkLost(await self._link.describe_end())
        else:
            self.end = LinkLost("too many messages, or too many invalid ones: the rest was not read")
        for each in (*self._requests.values(), *self._listeners):
            each.wake()

    def _sort(self, text: str, message: Mapping[str, Any] | None) -> None:
        """Add a line of the process to the streams to which it belongs."""
        streams: Sequence[ProcessStream] = [self._last] if self._last is not None else []
        answered = None
        if message is not None and "method" in message:
            streams = self._streams_of(message)
        elif message is not None:
            answered = self._requests.get(_key(dig(message, "id")))
            streams = streams if answered is None else [answered]
        for each in streams:
            each.add(text)
            self._wire.hold_text(each.exchange, self._schema, text)
            if each is answered:
                self.has_answered = True
                each.exchange.status, each.exchange.is_ended, each.is_done = _ANSWERED, True, True
            each.wake()

    def _streams_of(self, notification: Mapping[str, Any]) -> "Sequence[ProcessStream]":
        """Return the stream of the request that a notification names. If it names none, return those of all open
        requests and of all listeners."""
        params = notification.get("params")
        token = dig(params, "progressToken")
        subscription = dig(params, "_meta", "io.modelcontextprotocol/subscriptionId")
        named = self._tokens.get(_key(token)) or self._requests.get(_key(subscription))
        if named is not None:
            return [named]
        return [*(each for each in self._requests.values() if not each.is_done), *self._listeners]

    async def _answer(self, request: Mapping[str, Any]) -> None:
        """Answer a request of the process: `ping`, and no other, because the check declares no capabilities."""
        answer: dict[str, Any] = {"error": {"code": _UNKNOWN_METHOD, "message": "Method not found"}}
        if request["method"] == "ping":
            answer = {"result": {}}
        try:
            await self._link.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}))
        except LinkLost:
            return


class ProcessStream:
    """Messages of a process that belong to one request, in order."""

    def __init__(self, peer: ProcessPeer, exchange: Exchange) -> None:
        self.exchange = exchange
        self.is_done = False
        """True if the response has arrived, or if none is expected."""
        self._peer = peer
        self._started = asyncio.get_running_loop().time()
        self._read = 0
        """Number of messages that were returned."""
        self._has_news = asyncio.Event()

    @property
    def rest(self) -> str:
        """Incomplete event at the end of the stream: always empty, because a message is a line."""
        return ""

    def add(self, text: str) -> None:
        self.exchange.seconds = asyncio.get_running_loop().time() - self._started
        self.exchange.frames.append(SseFrame(self.exchange.seconds, text, text))

    def wake(self) -> None:
        """Tell a waiting reader that a message has arrived, or that the process has ended."""
        self._has_news.set()

    async def next(self, bound: float | None = None) -> SseFrame | None:
        """Return the next message, or None after the response. `bound` is the maximum wait in seconds; None means the
        timeout. Raises Unanswered if no message arrives in this time, or the process has ended."""
        bound = self._peer.bound if bound is None else bound
        try:
            async with asyncio.timeout(bound):
                while self._read == len(self.exchange.frames):
                    if self.is_done:
                        return None
                    if self._peer.end is not None:
                        self.exchange.error = str(self._peer.end)
                        raise Unanswered(self.exchange.error, self.exchange)
                    self._has_news.clear()
                    await self._has_news.wait()
        except TimeoutError:
            self.exchange.error = f"{TIMED_OUT} {bound:g} s"
            raise Unanswered(self.exchange.error, self.exchange) from None
        self._read += 1
        return self.exchange.frames[self._read - 1]

    async def rest_of_it(self) -> Sequence[SseFrame]:
        """Read all further messages to the response, and return all messages. Raises Unanswered."""
        while await self.next() is not None:
            pass
        return self.exchange.frames


def _key(value: Any) -> Any:
    """Return an id or a token as a key, so that 1 and `1` differ."""
    return (type(value).__name__, value) if isinstance(value, str | int) else None
