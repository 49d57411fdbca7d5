"""Base of the scripted servers, which test the judge.

A server is a module of this folder. It has `SERVER` and a class that answers requests. By default it conforms to its
protocol. Created with the name of a violation, it deviates where the code checks `self.does("name")`.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qsl
from uuid import UUID

from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger, Triggers
from tests.bridge import read_body

TRACE: Final = 'Traceback (most recent call last):\n  File "/srv/app.py", line 1'


@dataclass(frozen=True, slots=True)
class Violation:
    """One deviation from a protocol, as seen in real servers."""

    name: str
    breaks: str
    """Name of the requirement that must catch the violation, without the name of the set."""
    also: Sequence[str] = ()
    """Names or patterns of other requirements that must fail too. A leading `~` means that they may fail: it depends on
    the order of the probes."""
    is_hidden: bool = False
    """True if the violation looks as if the trigger had no effect, so that the verdict of the requirement is "not
    observed"."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Headers of the request, with names in lower case."""
    body: bytes
    base: str
    """The server's own URL."""
    raw_query: str = ""
    """Undecoded query, for parameters that occur more than once."""

    @property
    def json(self) -> Any:
        """Parsed body. Raises ValueError."""
        return json.loads(self.body)

    @property
    def caller(self) -> str:
        """API key of the caller."""
        return self.headers.get("x-api-key", "")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: Any = None
    """Content: text and bytes are sent unchanged, any other value as JSON."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    stream: AsyncIterator[bytes] | None = None
    is_cut: bool = False
    """True if the connection breaks at the end of the stream."""


def sse(value: Any, *, event: str = "", id: str = "") -> bytes:
    """Return one server-sent event with JSON data."""
    head = (f"event: {event}\n" if event else "") + (f"id: {id}\n" if id else "")
    return f"{head}data: {json.dumps(value)}\n\n".encode()


RequestKey = tuple[str, str, bytes]
"""Method, path without its query, and body. Requests that differ only in headers or query share a key."""

_CHECKED: Final[ContextVar[set[str]]] = ContextVar("checked")
"""Violations that the code checked for the current request, including in the tasks that the request starts."""


class ScriptedServer:
    """ASGI application that answers every request by `handle`."""

    def __init__(self, violation: str = "") -> None:
        self.violation = violation
        self.checked: set[str] = set()
        """Violations that the code checked. A listed violation that is never checked is a mistake."""
        self.checked_by: defaultdict[RequestKey, set[str]] = defaultdict(set)
        """Violations that the code checked for each request."""

    def does(self, violation: str) -> bool:
        """Return True if the server commits the violation."""
        self.checked.add(violation)
        _CHECKED.get(set()).add(violation)
        return self.violation == violation

    def raise_if(self, violation: str, error: Exception, *, when: object = True) -> None:
        """Raise `error` if the server commits the violation and `when` is true. A conforming server does not raise
        it."""
        if when and self.does(violation):
            raise error

    def raise_unless(self, violation: str, error: Exception, *, when: object = True) -> None:
        """Raise `error` if `when` is true, as a conforming server does. Do nothing if the server commits the
        violation."""
        if when and not self.does(violation):
            raise error

    def set_if(self, violation: str, value: dict[str, Any], /, *, when: object = True, **members: Any) -> None:
        """Set `members` of the object `value` if the server commits the violation and `when` is true."""
        if when and self.does(violation):
            value.update(members)

    def drop_if(self, violation: str, value: dict[str, Any], name: str, *, when: object = True) -> None:
        """Delete the member `name` of the object `value` if the server commits the violation and `when` is true."""
        if when and self.does(violation):
            del value[name]

    def ascii_if(self, violation: str, text: str) -> str:
        """Return the text, in which `?` replaces all letters beyond ASCII if the server commits the violation."""
        return text.encode("ascii", "replace").decode() if self.does(violation) else text

    def listening(self) -> AbstractAsyncContextManager[None]:
        """Listen on further ports, for protocols other than HTTP. By default there are no others."""
        return contextlib.nullcontext()

    def note_request(self, method: str, path: str, body: bytes) -> None:
        """Record a request, to which the violations belong that this asyncio task checks from now on."""
        _CHECKED.set(self.checked_by[method, path, body])

    async def handle(self, request: Request) -> Answer:
        raise NotImplementedError

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await read_body(receive)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        request = Request(
            method=scope["method"],
            path=scope["path"],
            query=dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True)),
            headers=headers,
            body=body,
            base=f"http://{headers.get('host', '')}",
            raw_query=scope["query_string"].decode(),
        )
        self.note_request(request.method, request.path, body)
        with contextlib.suppress(asyncio.CancelledError):  # the server is stopped while a client waits
            await _send_answer(await self.handle(request), receive, send)


class _Cut(Exception):
    """Crash of the application in the middle of an answer, so that uvicorn closes the connection."""


async def _send_stream(
    stream: AsyncIterator[bytes], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> bool:
    """Send a stream. Return True if the client disconnected before the end; the stream is closed in any case."""

    async def forward() -> None:
        async for chunk in stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    loop = asyncio.get_running_loop()
    forwarding, disconnected = loop.create_task(forward()), loop.create_task(watch())
    try:
        await asyncio.wait((forwarding, disconnected), return_when=asyncio.FIRST_COMPLETED)
        is_aborted = not forwarding.done()
    finally:
        for task in (forwarding, disconnected):
            task.cancel()
        await asyncio.gather(forwarding, disconnected, return_exceptions=True)
        if isinstance(stream, AsyncGenerator):
            await cast("AsyncGenerator[bytes]", stream).aclose()
    return is_aborted


async def _send_answer(
    answer: Answer, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    content = b""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if answer.stream is not None:
        headers.setdefault("content-type", "text/event-stream")
    elif isinstance(answer.body, bytes | str):
        content = answer.body.encode() if isinstance(answer.body, str) else answer.body
        headers.setdefault("content-type", "text/plain; charset=utf-8")
    elif answer.body is not None:
        content = json.dumps(answer.body).encode()
        headers.setdefault("content-type", "application/json")
    raw = [(name.encode(), value.encode()) for name, value in headers.items() if value]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    if answer.stream is None:
        await send({"type": "http.response.body", "body": content})
        return
    if await _send_stream(answer.stream, receive, send):
        return
    if answer.is_cut:
        raise _Cut
    await send({"type": "http.response.body", "body": b""})


def is_uuid(value: Any) -> bool:
    try:
        UUID(value)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


class Dead(ScriptedServer):
    """Server that answers every request with status 500."""

    async def handle(self, request: Request) -> Answer:
        return Answer(500, {"error": "dead"})


@dataclass(frozen=True, slots=True)
class Server:
    """Description of a scripted server for the tests."""

    set: str
    make: Callable[[str], ScriptedServer]
    """Factory of the server. Its argument is the name of a violation or variant, or "" for none."""
    violations: Sequence[Violation]
    variants: Sequence[str] = ()
    """Names of other conforming servers, which declare other capabilities."""
    path: str = ""
    """Path of the agent below the server's URL."""
    options: ProbeOptions = field(default_factory=ProbeOptions)
    unbroken: Mapping[str, str] = field(default_factory=dict[str, str])
    """Requirements that no violation breaks, each with the reason."""
    is_large: bool = False
    """True if there are so many requirements that each violation is judged only by the groups of the requirements that
    the violation names."""


def triggers(**texts: str | Trigger) -> Triggers:
    return Triggers({name: Trigger(each) if isinstance(each, str) else each for name, each in texts.items()})


def options(
    *,
    header: str = "X-Api-Key",
    scheme: str = "",
    timeout: float = 5.0,
    agent: str = "",
    **texts: str | Trigger,
) -> ProbeOptions:
    """Return options with the keys of two callers. A trigger that is a text is sent to `agent`."""
    chosen = {name: Trigger(each, agent=agent) if isinstance(each, str) else each for name, each in texts.items()}
    return ProbeOptions(
        triggers=Triggers(chosen),
        headers={header: f"{scheme}first-caller"},
        other_headers={header: f"{scheme}second-caller"},
        timeout=timeout,
    )
