"""Editor's end of one connection: it sends requests, records all messages, and answers the agent's requests."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.wire.exchange import Exchange, SseFrame, as_list, as_object, dig, json_or_none
from babelgate.conformance.wire.http import TIMED_OUT, Unanswered, Wire
from babelgate.conformance.wire.links import Link, LinkLost, ProcessLink

Reply = Callable[[str, Any], Any]
"""Function that answers a request of the agent: (method, params) → result. If it returns None, the editor answers that
the method does not exist."""
UNKNOWN_METHOD: Final = -32601
_ANSWERED: Final = 200
"""Status of an exchange that has an answer. JSON-RPC has none; reports show 200."""


@dataclass(slots=True)
class _Waiting:
    exchange: Exchange
    answer: "asyncio.Future[None]"
    result: str | None
    """Name of the schema definition of the result; None validates only the envelope."""
    session_id: str


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """Request that the agent has sent."""

    method: str
    params: Any


class EditorPeer:
    def __init__(self, wire: Wire, link: Link, address: str) -> None:
        self._wire = wire
        self.link = link
        self.address = address
        self.messages: list[Any] = []
        """All messages of the agent, parsed, in order. A text that is not JSON is None."""
        self.requests: list[AgentRequest] = []
        """Requests of the agent, in order."""
        self.replies: dict[str, Reply] = {}
        """Functions that answer the agent's requests, by session id."""
        self.answered_at: dict[int, int] = {}
        """Number of messages received up to and including the answer of an exchange, by the number of the exchange."""
        self.initialized: Any = None
        """Result of the request `initialize`; None before it."""
        self._waiting: dict[Any, _Waiting] = {}
        self._next_id = 0
        self._has_request = asyncio.Event()
        self._end: LinkLost | None = None
        self._reading = asyncio.ensure_future(self._read())

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self.link.aclose()

    # Sending

    async def request(
        self, method: str, params: Any, *, receives: str | None, id: Any = None, sends: str | None = "Request.request"
    ) -> Exchange:
        """Send a request, and return its exchange with the answer and the updates before it. Raises Unanswered if no
        answer arrives in time."""
        started = await self.start(method, params, receives=receives, id=id, sends=sends)
        return await self.finish(started)

    async def start(
        self, method: str, params: Any, *, receives: str | None, id: Any = None, sends: str | None = "Request.request"
    ) -> Exchange:
        """Send a request, and return its exchange, which has no answer yet. Raises Unanswered if it cannot be sent."""
        if id is None:
            id, self._next_id = self._next_id, self._next_id + 1
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        exchange = self._begin(method, message, sends)
        session_id = dig(params, "sessionId")
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(exchange, answer, receives, session_id if isinstance(session_id, str) else "")
        self._waiting[_key(id)] = waiting
        await self._send(exchange)
        return exchange

    async def finish(self, exchange: Exchange, bound: float | None = None) -> Exchange:
        """Wait for the answer of a request that `start` has sent. Raises Unanswered if it does not arrive in time."""
        found = [each for each in self._waiting.values() if each.exchange is exchange]
        bound = self._wire.timeout if bound is None else bound
        if found:
            try:
                async with asyncio.timeout(bound):
                    await asyncio.shield(found[0].answer)
            except TimeoutError:
                exchange.error = f"{TIMED_OUT} {bound:g} s"
                raise Unanswered(exchange.error, exchange) from None
            except LinkLost as error:
                exchange.error = str(error)
                raise Unanswered(exchange.error, exchange) from None
        return exchange

    def is_answered(self, exchange: Exchange) -> bool:
        return exchange.number in self.answered_at

    async def notify(self, method: str, params: Any) -> Exchange:
        """Send a notification, and return its exchange, which never has an answer."""
        exchange = self._begin(method, {"jsonrpc": "2.0", "method": method, "params": params}, None)
        await self._send(exchange)
        return exchange

    async def wait_for_request(self, method: str, session_id: str, until: Exchange) -> AgentRequest | None:
        """Return the agent's request `method` in a session. Return None if the exchange `until` is answered first.
        Raises Unanswered if neither happens in time."""
        try:
            async with asyncio.timeout(self._wire.timeout):
                while True:
                    for each in self.requests:
                        if each.method == method and dig(each.params, "sessionId") == session_id:
                            return each
                    if self.is_answered(until):
                        return None
                    self._has_request.clear()
                    await self._has_request.wait()
        except TimeoutError:
            until.error = f"{TIMED_OUT} {self._wire.timeout:g} s"
            raise Unanswered(until.error, until) from None

    def _begin(self, method: str, message: Mapping[str, Any], sends: str | None) -> Exchange:
        exchange = self._wire.begin(method, self.address, json.dumps(message, ensure_ascii=False).encode())
        if sends is not None:
            self._wire.hold(exchange, sends, message, is_from_check=True)
        return exchange

    async def _send(self, exchange: Exchange) -> None:
        try:
            if self._end is not None:
                raise self._end
            await self.link.send(exchange.body.decode())
        except LinkLost as error:
            exchange.error = str(error)
            raise Unanswered(exchange.error, exchange) from None

    # Reading

    async def _read(self) -> None:
        while (text := await self.link.receive()) is not None:
            message = json_or_none(text)
            self.messages.append(message)
            if "method" in (as_object(message) or {}):
                await self._read_call(text, message)
            elif as_object(message) is not None:
                self._read_answer(text, message)
            self._has_request.set()
        self._end = LinkLost(await self._reason())
        for each in self._waiting.values():
            if not each.answer.done():
                each.answer.set_exception(self._end)
                each.answer.exception()  # retrieved, because no probe may wait for it
        self._has_request.set()

    async def _reason(self) -> str:
        if isinstance(self.link, ProcessLink):
            return await self.link.describe_end()
        return "the agent closed the connection"

    def _read_answer(self, text: str, message: Any) -> None:
        waiting = self._waiting.pop(_key(message.get("id")), None)
        if waiting is None:
            return
        exchange = waiting.exchange
        exchange.content, exchange.status, exchange.is_ended = text.encode(), _ANSWERED, True
        self.answered_at[exchange.number] = len(self.messages)
        self._wire.hold(exchange, "Response", message)
        if waiting.result is not None and "result" in message:
            self._wire.hold(exchange, waiting.result, message["result"])
        if not waiting.answer.done():
            waiting.answer.set_result(None)

    async def _read_call(self, text: str, message: Any) -> None:
        method, params = str(message["method"]), message.get("params")
        session_id = dig(params, "sessionId")
        waiting = [each for each in self._waiting.values() if each.session_id and each.session_id == session_id]
        for each in waiting:
            each.exchange.frames.append(SseFrame(at=0.0, raw=text, data=text, event=method))
        schema = {"session/update": "SessionNotification", "session/request_permission": "PermissionRequest"}
        if waiting and method in schema:
            self._wire.hold(waiting[0].exchange, schema[method], params)
        if "id" not in message:
            return
        self.requests.append(AgentRequest(method, params))
        reply = self.replies.get(str(session_id), _allow)(method, params)
        answer: dict[str, Any] = {"result": reply}
        if reply is None:
            answer = {"error": {"code": UNKNOWN_METHOD, "message": "Method not found"}}
        if reply is not _LATER:
            await self._answer(message["id"], answer)

    async def _answer(self, request_id: Any, answer: Mapping[str, Any]) -> None:
        try:
            await self.link.send(json.dumps({"jsonrpc": "2.0", "id": request_id, **answer}))
        except LinkLost:
            return

    async def answer_open(self, session_id: str, result: Any) -> None:
        """Answer all permission requests of a session that its reply function has left open (`stay_open`)."""
        for message in [*self.messages]:
            is_permission = dig(message, "method") == "session/request_permission"
            if is_permission and dig(message, "params", "sessionId") == session_id:
                await self._answer(message["id"], {"result": result})


_LATER: Final = object()


def stay_open(method: str, params: Any) -> Any:
    """Leave a permission request of the agent without an answer. Other methods do not exist."""
    return _LATER if method == "session/request_permission" else None


def _allow(method: str, params: Any) -> Any:
    """Answer a permission request by its first option that allows. Other methods do not exist."""
    if method != "session/request_permission":
        return None
    options: Sequence[Any] = as_list(dig(params, "options"))
    allowing = [each for each in options if str(dig(each, "kind")).startswith("allow")] or options
    return {"outcome": {"outcome": "selected", "optionId": dig(allowing[0] if allowing else None, "optionId")}}


def _key(request_id: Any) -> Any:
    """Return a request id as a key, so that 1 and `1` differ."""
    return (type(request_id).__name__, request_id) if isinstance(request_id, str | int) else None
