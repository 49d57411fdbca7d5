"""Another A2A server, on a socket, which gives each call the response that a test has set for it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from babelgate.adapters.kit.server.sse import frame
from tests.bridge import read_body
from tests.serving import listen, serving

TASK, CONTEXT = "t", "c"

Body = Sequence[Any] | dict[str, Any] | bytes
"""A list is a stream of events, each JSON or raw bytes. Anything else is one response."""

CARD = {
    "name": "Far Echo",
    "description": "Echoes.",
    "version": "2.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "echo", "name": "Echo", "description": "Says it again.", "tags": ["demo"]}],
    "signatures": [{"protected": "x", "signature": "y"}],
}


def card_1_0(url: str, /, *bindings: str, **more: Any) -> dict[str, Any]:
    interfaces = [{"url": url, "protocolBinding": each, "protocolVersion": "1.0"} for each in bindings or ("JSONRPC",)]
    return {**CARD, "supportedInterfaces": interfaces, **more}


def card_0_3(url: str, /, *bindings: str, **more: Any) -> dict[str, Any]:
    main, *others = bindings or ("JSONRPC",)
    additional = [{"url": url, "transport": each} for each in others]
    connection = {
        "url": url,
        "protocolVersion": "0.3.0",
        "preferredTransport": main,
        "additionalInterfaces": additional,
    }
    return {**CARD, **connection, **more}


@dataclass
class Far:
    """Server with responses for each call, whose name is the JSON-RPC method (`SendMessage`) or `GET /path`.

    A call gets its responses in order, and then the last one again.
    """

    answers: dict[str, list[tuple[int, Body]]] = field(default_factory=dict[str, list[tuple[int, Body]]])
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])
    url: str = ""
    cuts: bool = False
    """True to break streams after their last event."""
    holds: bool = False
    """True to leave streams open after their last event."""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    called: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    def set(self, call: str, *bodies: Body, status: int = 200) -> None:
        self.answers[call] = [(status, body) for body in bodies]

    def fail(self, call: str, code: int, message: str = "", **more: Any) -> None:
        self.set(call, {"error": {"code": code, "message": message, **more}})

    def calls(self) -> list[str]:
        """Return the names of all calls, except those for cards."""
        return [call for call, _, _ in self.requests if not call.endswith(".json")]

    def body(self, call: str) -> Any:
        """Return the body of the last call with this name."""
        return next(body for name, _, body in reversed(self.requests) if name == call)

    def on(self, call: str) -> asyncio.Event:
        """Return the event that is set when the call is made."""
        return self.called.setdefault(call, asyncio.Event())

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        raw = await read_body(receive)
        body: Any = json.loads(raw) if raw else {}
        rpc = "jsonrpc" in body
        call: str = body["method"] if rpc else f"{scope['method']} {scope['path']}"
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((call, headers, body["params"] if rpc else body))
        self.on(call).set()
        answers = self.answers.get(call)
        if not answers:
            unknown = {"error": {"code": -32601, "message": f"There is no {call}"}}
            answers = [(200, unknown) if rpc else (404, {"detail": "Not Found"})]
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        await self._answer(status, answer, body["id"] if rpc and status == 200 else None, receive, send)

    async def _answer(
        self, status: int, answer: Body, number: int | None, receive: Callable[[], Any], send: Callable[[Any], Any]
    ) -> None:
        is_stream = isinstance(answer, Sequence) and not isinstance(answer, bytes)
        kind = b"text/event-stream; charset=utf-8" if is_stream else b"application/json"
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *self.headers]}
        await send(start)
        if not isinstance(answer, Sequence) or isinstance(answer, bytes):
            raw = answer if isinstance(answer, bytes) else json.dumps(self._wrapped(answer, number)).encode()
            await send({"type": "http.response.body", "body": raw})
            return
        for event in answer:
            raw = event if isinstance(event, bytes) else frame(json.dumps(self._wrapped(event, number)).encode())
            await send({"type": "http.response.body", "body": raw, "more_body": True})
        if self.holds:
            await receive()
        if self.holds or self.cuts:
            return  # without the end of the body, which cuts the connection
        await send({"type": "http.response.body", "body": b""})

    def _wrapped(self, value: Any, number: int | None) -> Any:
        if number is None:
            return value
        members: Any = value if "error" in value else {"result": value}
        return {"jsonrpc": "2.0", "id": number, **members}


@asynccontextmanager
async def far_server() -> AsyncGenerator[Far]:
    listener = listen()
    far = Far(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    async with serving(far, listener):
        yield far
