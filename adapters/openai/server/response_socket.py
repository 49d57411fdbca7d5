"""WebSocket of /v1/responses. Each message of the client requests a response, and the server sends the events of one
response after the other (Open Responses 2026-04-24, WebSocket; SPEC/responses/responses_client_event.py)."""

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from typing import Any, Final, cast
from uuid import uuid4

from litestar import WebSocket

from babelgate.adapters.kit.json import most_bytes, most_values, parse, validate
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, finish
from babelgate.adapters.kit.server.encoding import as_bytes, encode
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.websocket import (
    FAILED,
    GOING_AWAY,
    RESTART,
    Disconnected,
    detect_disconnect,
    release,
)
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.adapters.openai.codec.names import RESPONSE, encode_id
from babelgate.adapters.openai.errors.encode import encode_error_message
from babelgate.adapters.openai.server.compact import expand_body
from babelgate.adapters.openai.server.create_response import Begun, CreateResponse
from babelgate.adapters.openai.server.socket_memory import PreparedInputs, SocketInputs, SocketMemory
from babelgate.adapters.openai.server.text_questions import can_receive_question_calls
from babelgate.adapters.openai.wire import responses as w
from babelgate.adapters.openai.write.prepared import encode_prepared
from babelgate.canonical import Fault, FaultCode, FaultError, Hub
from babelgate.canonical.value import JsonObject

log = logging.getLogger("babelgate.openai")

_LIFETIME: Final = 3600.0
"""Maximum age of a connection, in seconds. Same as OpenAI's server, after which clients open a new connection."""
_WAITING: Final = 16
"""Maximum number of messages queued behind the current response of a connection. Chosen."""
_STEER: Final = "response.steer"

_OVER: Final = Fault(
    code=FaultCode.INVALID,
    message="The connection is an hour old and ends: open another.",
    details={"openai": {"code": "websocket_connection_limit_reached"}},
)
_TOO_MANY: Final = Fault(
    code=FaultCode.QUEUE_FULL,
    message="Too many requests are queued on this connection: send this again after a response has ended.",
)
_INTERNAL: Final = Fault(code=FaultCode.INTERNAL, message="The gateway failed to answer this.")


class ResponseSocket(Handlers):
    """Handler of the WebSocket route."""

    def __init__(self, hub: Hub, create: CreateResponse) -> None:
        self._hub = hub
        self._create = create
        self._prepared = PreparedInputs()

    async def talk(self, socket: WebSocket[Any, Any, Any]) -> None:
        """Accept a WebSocket and serve it until it is closed."""
        with release(socket):
            await self._serve(socket)

    async def _serve(self, socket: WebSocket[Any, Any, Any]) -> None:
        await socket.accept(headers=dict(confirm(active=is_activated(socket))))
        inputs = SocketInputs(self._prepared)
        try:
            async with asyncio.TaskGroup() as tasks:
                memory = SocketMemory(self._hub, caller(socket).principal, tasks)
                await _Talk(self._create, socket, memory, inputs).run(tasks)
        except Exception:  # no caller of this function logs it
            log.exception("a WebSocket failed")
            with suppress(Disconnected), detect_disconnect():
                await socket.close(FAILED, "The gateway failed.")
        finally:
            inputs.close()


class _Talk:
    """One WebSocket connection.

    Messages are received while a response is sent. Otherwise the gateway would not notice that the client disconnected,
    and would not answer pings.
    """

    def __init__(
        self, create: CreateResponse, socket: WebSocket[Any, Any, Any], memory: SocketMemory, inputs: SocketInputs
    ) -> None:
        self._create = create
        self._socket = socket
        self._memory = memory
        self._inputs = inputs
        self._who = caller(socket)
        self._extended = is_activated(socket)
        self._by_calls = can_receive_question_calls(socket)
        self._bytes, self._values = most_bytes(socket), most_values(socket)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0
        """Total size of the queued messages, in bytes."""
        self._until = asyncio.get_running_loop().time() + _LIFETIME

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Receive messages and answer them until the client disconnects or the connection expires."""
        turns = tasks.create_task(self._take_turns())
        try:
            with suppress(Disconnected):
                await self._listen()
        finally:
            turns.cancel()
            self._memory.close()

    async def _listen(self) -> None:
        """Receive messages and queue them until the client disconnects. A message that exceeds the limits of the queue
        is refused."""
        while (members := await self._receive())["type"] != "websocket.disconnect":
            raw: bytes = members.get("bytes") or (members.get("text") or "").encode()
            if _STEER.encode() in raw and await self._refuse_to_steer(raw):
                continue
            if self._waiting.qsize() == _WAITING or self._size + len(raw) > self._bytes:
                await self._send_event(encode_error_message(_TOO_MANY))
            else:
                self._size += len(raw)
                self._waiting.put_nowait(raw)

    async def _receive(self) -> dict[str, Any]:
        with detect_disconnect():
            return cast("dict[str, Any]", await self._socket.receive())

    async def _refuse_to_steer(self, raw: bytes) -> bool:
        """Refuse a `response.steer` message, without queueing it, because it concerns the response that is being sent.
        Return True if the message was one."""
        try:
            raw_message = await parse(raw, self._values)
        except FaultError:
            return False
        if not isinstance(raw_message, dict) or raw_message.get("type") != _STEER:
            return False
        words = "A response in progress cannot be changed: send this as the input of the next response."
        error: JsonObject = {"type": "invalid_request_error", "code": "steering_not_supported", "message": words}
        steer = {name: raw_message.get(name) for name in ("input", "previous_response_id")}
        await self._send_event({"type": f"{_STEER}.failed", "sequence_number": 0, "steer": steer, "error": error})
        return True

    # Turns

    async def _take_turns(self) -> None:
        """Answer queued messages, one after the other, until the connection expires."""
        with suppress(Disconnected):
            while (raw := await self._next()) is not None:
                await self._take_turn(raw)
            await self._send_event(encode_error_message(_OVER))
            await self._close(GOING_AWAY, "The connection is an hour old.")

    async def _next(self) -> bytes | None:
        """Return the next queued message, or None if the connection has expired. A response that has begun is not
        interrupted by the expiry."""
        if asyncio.get_running_loop().time() >= self._until:
            return None
        try:
            async with asyncio.timeout_at(self._until):
                raw = await self._waiting.get()
        except TimeoutError:
            return None
        self._size -= len(raw)
        return raw

    async def _take_turn(self, raw: bytes) -> None:
        """Answer one message with the events of a response. Faults are sent as error events."""
        raw_message: object = None
        try:
            raw_message = await parse(raw, self._values)
            message = validate(w.ResponseMessage, raw_message)
            if message.background:
                refuse("background", "A response over a WebSocket cannot be in the background.")
            await self._respond(await self._join(cast("JsonObject", raw_message), len(raw)), message)
            return
        except FaultError as error:
            fault = error.fault
        except Disconnected:
            raise
        except Exception:  # the counterpart of a 500 over HTTP: the connection stays open
            log.exception("a response over a WebSocket failed")
            fault = _INTERNAL
        self._forget(_text_in(raw_message, "previous_response_id"))
        stream_id = _text_in(raw_message, "stream_id")
        is_lane = stream_id is not None and len(stream_id) <= w.STREAM_ID
        await self._send_event(encode_error_message(fault) | _lane(stream_id if is_lane else None))

    def _forget(self, response_id: str | None) -> None:
        """Remove an unstored response or prewarmed input from the memory of the connection. None does nothing.

        Open Responses, WebSocket: a failed response evicts the one that it continued, so that a retry sends the whole
        input.
        """
        if response_id is not None:
            self._memory.forget(response_id)
            self._inputs.drop(response_id)

    async def _join(self, raw_message: JsonObject, size: int) -> JsonObject:
        """Return the message's body. If it continues a prewarmed input, put that input before the message's own. Raises
        invalid for a malformed message, and too_large if both inputs together exceed the limits of one."""
        body = {name: value for name, value in raw_message.items() if name not in w.ENVELOPE}
        prewarmed = self._inputs.get(body.get("previous_response_id"))
        if prewarmed is None:
            return body
        if len(prewarmed) + size > self._bytes:
            words = f"The input is larger than {self._bytes} bytes, including the input that was sent ahead of it."
            raise FaultError(FaultCode.TOO_LARGE, words, limit=self._bytes)
        if body.get("conversation") is not None:
            refuse("conversation", "Give either conversation or previous_response_id, not both.")
        prewarmed_body = cast("JsonObject", await parse(prewarmed, self._values))
        return {**body, **prewarmed_body, "input": [*prewarmed_body["input"], *_items_of(body.get("input"))]}

    async def _respond(self, body: JsonObject, message: w.ResponseMessage) -> None:
        """Start the run for one message, and send its events until it ends. Raises Disconnected, and the faults of
        `CreateResponse.begin`."""
        lane, previous = _lane(message.stream_id), message.previous_response_id
        whole = await expand_body(body, self._socket)
        if not message.is_generating:
            await self._prepare(body, whole, previous, lane)
            return
        begun = await finish(
            self._create.begin(
                self._who,
                whole,
                extended=self._extended,
                by_calls=self._by_calls,
                unstored_ids=self._memory,
                previous_id=previous,
            ),
            _leave,
        )
        response_id = encode_id(RESPONSE, begun.receipt.run_id)
        if not begun.is_stored:
            self._memory.remember(response_id, begun.receipt.thread_id)
        messages = DisconnectNotifier(begun.reading.messages(lane), begun.on_disconnect)
        async with aclosing(messages):
            async for each in messages:
                await self._send(each)
        if not begun.reading.writer.has_ended:
            await self._close(RESTART, "The gateway stops.")
            raise Disconnected
        if begun.reading.writer.status == "failed":
            self._forget(previous)
            self._forget(response_id)

    async def _prepare(self, body: JsonObject, whole: object, previous: str | None, lane: JsonObject) -> None:
        """Store a prewarmed input (`generate: false`), and send the events of an empty response. `previous` is the id
        of the response that it continues, or None. Raises invalid for a malformed body, not_found for an unknown model,
        and too_large if the connection's memory cannot hold the input."""
        checked = await self._create.check(self._who, whole, unstored_ids=self._memory, previous_id=previous)
        response_id = encode_id(RESPONSE, str(uuid4()))
        members = {name: body.get(name) for name in ("previous_response_id", "conversation")}
        raw_input = await as_bytes(encode({**members, "input": _items_of(body.get("input"))}))
        self._inputs.put(response_id, raw_input)
        for event in encode_prepared(response_id, checked.body, checked.agent.name, previous, int(time.time())):
            await self._send_event(event | lane)

    # Sending

    async def _send_event(self, event: JsonObject) -> None:
        await self._send(await as_bytes(encode(event)))

    async def _send(self, message: bytes) -> None:
        with detect_disconnect():
            await self._socket.send_data(message.decode())

    async def _close(self, code: int, why: str) -> None:
        with detect_disconnect():
            await self._socket.close(code, why)


async def _leave(begun: Begun) -> None:
    begun.on_disconnect()


def _lane(stream_id: str | None) -> JsonObject:
    """Return `{"stream_id": …}`, which every event for a message repeats, or {} if the message has no `stream_id`."""
    return {} if stream_id is None else {"stream_id": stream_id}


def _text_in(raw_message: object, name: str) -> str | None:
    value: object = cast("JsonObject", raw_message).get(name) if isinstance(raw_message, dict) else None
    return value if isinstance(value, str) else None


def _items_of(request_input: str | list[Any] | None) -> list[Any]:
    return [{"role": "user", "content": request_input}] if isinstance(request_input, str) else request_input or []
