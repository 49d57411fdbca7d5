"""What scripted servers are made of.

A server is a module of this folder. It has `SERVER`, and a class that answers requests: right by default, and wrong in
the one way that it is told, at the places where it asks `self.does("…")`.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger, Triggers
from tests.bridge import read_body

TRACE: Final = 'Traceback (most recent call last):\n  File "/srv/app.py", line 1'


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a server does wrong, as servers in the field do."""

    name: str
    breaks: str
    """The requirement that must catch it, without the name of the set."""
    also: Sequence[str] = ()
    """Others that cannot but fail with it; patterns are understood. Those with ~ before them may fail with it, or not:
    it depends on who comes first."""
    is_hidden: bool = False
    """It looks as if the agent did not do what its trigger is for, so that the requirement is not shown."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    base: str
    """The server's own URL."""
    raw_query: str = ""
    """For parameters that are there more than once."""

    @property
    def json(self) -> Any:
        """Raises ValueError."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: Any = None
    """Sent as JSON; text and bytes as they are."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    stream: AsyncIterator[bytes] | None = None
    is_cut: bool = False
    """The connection is cut where the stream ends."""


def sse(value: Any, *, event: str = "", id: str = "") -> bytes:
    """One server-sent event with JSON in it."""
    head = (f"event: {event}\n" if event else "") + (f"id: {id}\n" if id else "")
    return f"{head}data: {json.dumps(value)}\n\n".encode()


RequestKey = tuple[str, str, bytes]
"""Method, path without its query, and body: equal for requests that are told apart by headers or a query alone."""

_ASKED_FOR: Final[ContextVar[set[str]]] = ContextVar("asked_for")
"""The violations that the code looks at for the request that is answered, tasks that it starts included."""


class ScriptedServer:
    """An ASGI application; what it does is in `handle`."""

    def __init__(self, violation: str = "") -> None:
        self.violation = violation
        self.asked: set[str] = set()
        """The violations that the code knows, so that none is listed that nothing looks at."""
        self.asked_by: defaultdict[RequestKey, set[str]] = defaultdict(set)
        """Those that it looked at for each request."""

    def does(self, violation: str) -> bool:
        self.asked.add(violation)
        _ASKED_FOR.get(set()).add(violation)
        return self.violation == violation

    def raise_if(self, violation: str, error: Exception, *, when: object = True) -> None:
        """Refuse what a right server takes."""
        if when and self.does(violation):
            raise error

    def raise_unless(self, violation: str, error: Exception, *, when: object = True) -> None:
        """Refuse what a right server refuses."""
        if when and not self.does(violation):
            raise error

    def set_if(self, violation: str, value: dict[str, Any], /, *, when: object = True, **members: Any) -> None:
        if when and self.does(violation):
            value.update(members)

    def drop_if(self, violation: str, value: dict[str, Any], name: str, *, when: object = True) -> None:
        if when and self.does(violation):
            del value[name]

    def ascii_if(self, violation: str, text: str) -> str:
        """Lose the letters beyond ASCII."""
        return text.encode("ascii", "replace").decode() if self.does(violation) else text

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
        _ASKED_FOR.set(self.asked_by[request.method, request.path, body])
        with contextlib.suppress(asyncio.CancelledError):  # the server is stopped while somebody waits
            await _sent(await self.handle(request), receive, send)


class _Cut(Exception):
    """The application dies in the middle of its answer, and the server cuts the connection."""


async def _streamed(
    stream: AsyncIterator[bytes], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> bool:
    """True if the reader left before the end; the stream is told so by being closed."""

    async def sending() -> None:
        async for chunk in stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def leaving() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    loop = asyncio.get_running_loop()
    sends, leaves = loop.create_task(sending()), loop.create_task(leaving())
    try:
        await asyncio.wait((sends, leaves), return_when=asyncio.FIRST_COMPLETED)
        has_left = not sends.done()
    finally:
        for task in (sends, leaves):
            task.cancel()
        await asyncio.gather(sends, leaves, return_exceptions=True)
        if isinstance(stream, AsyncGenerator):
            await cast("AsyncGenerator[bytes]", stream).aclose()
    return has_left


async def _sent(answer: Answer, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
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
    if await _streamed(answer.stream, receive, send):
        return
    if answer.is_cut:
        raise _Cut
    await send({"type": "http.response.body", "body": b""})


class Dead(ScriptedServer):
    """A server that is there, and does nothing: every answer is an error."""

    async def handle(self, request: Request) -> Answer:
        return Answer(500, {"error": "dead"})


@dataclass(frozen=True, slots=True)
class Server:
    """What the tests need to know of a scripted server."""

    set: str
    make: Callable[[str], ScriptedServer]
    """With the name of the violation; none: it is right."""
    violations: Sequence[Violation]
    variants: Sequence[str] = ()
    """Other servers that are right: they differ in what they declare."""
    path: str = ""
    """Of the agent, below the server's URL."""
    options: ProbeOptions = field(default_factory=ProbeOptions)
    unbroken: Mapping[str, str] = field(default_factory=dict[str, str])
    """Requirements that no violation breaks, and why."""
    is_large: bool = False
    """The set is so large that a violation is shown to the groups of requirements that it concerns alone."""


def triggers(**given: str | Trigger) -> Triggers:
    return Triggers({name: Trigger(each) if isinstance(each, str) else each for name, each in given.items()})


def options(
    *,
    header: str = "X-Api-Key",
    scheme: str = "",
    timeout: float = 5.0,
    agent: str = "",
    **given: str | Trigger,
) -> ProbeOptions:
    """Return options for a server that tells two callers apart by a key. `agent` is the target of triggers that are
    texts."""
    texts = {name: Trigger(each, agent=agent) if isinstance(each, str) else each for name, each in given.items()}
    return ProbeOptions(
        triggers=Triggers(texts),
        headers={header: f"{scheme}first-caller"},
        other_headers={header: f"{scheme}second-caller"},
        timeout=timeout,
    )
