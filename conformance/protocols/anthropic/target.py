"""Client for a judged server of the Messages API. Requests name the model in the body."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from babelgate.conformance.probe import Context, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.http import StreamExchange, Wire

VERSION: Final[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
_ERRORS: Final[Mapping[int, str]] = {4: "Error", 5: "Error"}
_PATHS: Final = ("messages", "models")
"""Path segments with which the paths of the API begin. `base_of` cuts a URL before the first of them."""


class MessagesTarget:
    """Client for one server. `base` is its URL with the version, to which `/messages` is added."""

    def __init__(self, wire: Wire, base: str) -> None:
        self.wire = wire
        self.base = base
        self.model = "claude"
        """Name of the model that is judged if a trigger names no other."""

    @property
    def url(self) -> str:
        return f"{self.base}/messages"

    async def post(self, body: Any = None, *, is_valid: bool = True, **options: Any) -> Exchange:
        """Post a request with the JSON `body`, and return the exchange. `is_valid` is False for a request that is wrong
        on purpose. `options` are those of `Wire.request`."""
        return await self.wire.request(
            "POST",
            self.url,
            sends="Create.request" if is_valid else None,
            receives={200: "Message", **_ERRORS},
            body=body,
            headers=VERSION,
            **options,
        )

    @asynccontextmanager
    async def stream(self, body: Any) -> AsyncGenerator[StreamExchange]:
        """Post a request for a stream, and yield the open response."""
        async with self.wire.stream(
            "POST",
            self.url,
            sends="Create.request",
            receives={200: "Message", **_ERRORS},
            events="Event",
            body={**body, "stream": True},
            headers=VERSION,
        ) as stream:
            yield stream


Ctx = Context[MessagesTarget]


async def open_server(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[MessagesTarget]:
    """Detect whether a server serves the API: it refuses an empty request with an error in the form of the API. Raises
    NotSpoken otherwise, unless `is_requested`: the user named the protocol."""
    target = MessagesTarget(wire, base_of(url))
    refused = await target.post({}, is_valid=False)
    is_spoken = dig(refused.json, "type") == "error"
    if not is_spoken and not is_requested:
        raise NotSpoken(f"it does not refuse an empty request with an error of the API ({refused})")
    listed = await wire.request("GET", f"{target.base}/models", sends=None, receives=None, headers=VERSION)
    ids = [dig(each, "id") for each in as_list(dig(listed.json, "data"))]
    named = [each for each in ids if isinstance(each, str)]
    target.model = named[0] if named else options.triggers["plain"].agent or target.model
    return Opened(target, target.url, f"{refused} refuses an empty request", frozenset())


def base_of(url: str) -> str:
    """Return the base URL with the version, from any URL of the server."""
    parts = urlsplit(url)
    steps = parts.path.rstrip("/").split("/")
    at = next((index for index, step in enumerate(steps) if step in _PATHS), len(steps))
    path = "/".join(steps[:at])
    return urlunsplit((parts.scheme, parts.netloc, path if path.endswith("/v1") else f"{path}/v1", "", ""))


def body_of(ctx: Ctx, behaviour: str = "plain", **members: Any) -> dict[str, Any]:
    """Return a request whose text triggers a behaviour. Raises NotObserved if the user gave no trigger for it, and
    NotApplicable if the user states that the model never shows it."""
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the model never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    model = trigger.agent or ctx.target.model
    return {"model": model, "max_tokens": 1024, "messages": [user(trigger.text)], **members}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text_of(message: Any) -> str:
    """Return the text of a message."""
    texts = (dig(each, "text") for each in as_list(dig(message, "content")) if dig(each, "type") == "text")
    return "".join(each for each in texts if isinstance(each, str))


async def create(ctx: Ctx, body: Mapping[str, Any]) -> Exchange:
    """Post a request, and return the exchange. Raises Failed unless the response is a message."""
    exchange = await ctx.target.post(body)
    check(exchange.status == 200, "status 200", exchange.status, exchange)
    check(dig(exchange.json, "type") == "message", "a message", exchange.json, exchange)
    return exchange


async def answer_plainly(ctx: Ctx) -> Exchange:
    """Post the text of the trigger `plain`, and return the exchange."""
    return await create(ctx, body_of(ctx))


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """Response that is a stream: its exchange, its events, and the names of its frames."""

    exchange: Exchange
    events: Sequence[Any]
    names: Sequence[str]

    def all(self, kind: str) -> list[Any]:
        """Return the events of a type."""
        return [each for each in self.events if dig(each, "type") == kind]


async def read_stream(ctx: Ctx, body: Mapping[str, Any]) -> StreamedAnswer:
    """Post a request for a stream, and return the response after its end. Raises Failed if it is no stream, or has no
    event."""
    async with ctx.target.stream(body) as stream:
        exchange = stream.exchange
        check(exchange.status == 200, "a stream with status 200", exchange.status, exchange)
        check(exchange.is_stream, "Content-Type text/event-stream", exchange.media_type, exchange)
        await stream.rest_of_it()
        events = [frame.json_or_none for frame in exchange.frames]
        check(bool(events), "an event", None, exchange)
        return StreamedAnswer(exchange, events, [frame.event or "" for frame in exchange.frames])


async def stream_plainly(ctx: Ctx) -> StreamedAnswer:
    """Post the text of the trigger `stream`, or else of `plain`, and return the stream."""
    trigger = ctx.triggers["stream"]
    return await read_stream(ctx, body_of(ctx, "stream" if trigger.is_from_user and not trigger.is_never else "plain"))
