"""Agent that serves AG-UI: one URL, which takes one kind of request."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from babelgate.conformance.probe import Context, NotDetectable, Opened, ProbeOptions
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import StreamExchange, Wire

_HEADERS: Final[Mapping[str, str]] = {"Accept": "text/event-stream"}


class AgUiTarget:
    """Client of the agent under test, which is one URL."""

    def __init__(self, wire: Wire, url: str) -> None:
        self.wire = wire
        self.url = url

    @asynccontextmanager
    async def stream(self, body: Any, **options: Any) -> AsyncGenerator[StreamExchange]:
        """Send a request for a run, and yield its exchange while the stream is open, so that the events can be read
        from it."""
        async with self.wire.stream(
            "POST",
            self.url,
            sends="RunAgentInput.request",
            receives={},
            events="Event",
            body=body,
            headers={**_HEADERS, **options.pop("headers", {})},
            **options,
        ) as stream:
            yield stream

    async def run(self, body: Any, **options: Any) -> Exchange:
        """Send a request for a run, read all events of its stream, and return the exchange."""
        async with self.stream(body, **options) as stream:
            await stream.rest_of_it()
        return stream.exchange

    async def post(self, body: Any = None, **options: Any) -> Exchange:
        """Send a request that is intentionally invalid, and return the exchange."""
        headers = {**_HEADERS, **options.pop("headers", {})}
        return await self.wire.request("POST", self.url, sends=None, receives={}, body=body, headers=headers, **options)


Ctx = Context[AgUiTarget]


async def open_agent(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[AgUiTarget]:
    """Return the agent at a URL. Raises NotDetectable unless `is_requested`: the protocol has no request that reads,
    and a POST starts a run."""
    if not is_requested:
        raise NotDetectable("AG-UI has no request that reads; name it with --protocol ag-ui")
    found = {"second-caller"} if options.other_headers else set[str]()
    return Opened(AgUiTarget(wire, url), url, "the protocol was requested", frozenset(found))


def agent_for(ctx: Ctx, behaviour: str) -> tuple[AgUiTarget, str]:
    """Return the agent that shows a behaviour, and the text that triggers it. If the trigger names another agent than
    the target, the URL of that agent differs in the last segment.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    agent never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the agent never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    if not trigger.agent:
        return ctx.target, trigger.text
    parts = urlsplit(ctx.target.url)
    path = f"{parts.path.rpartition('/')[0]}/{trigger.agent}"
    return AgUiTarget(ctx.wire, urlunsplit((parts.scheme, parts.netloc, path, "", ""))), trigger.text


def message(text: str) -> dict[str, Any]:
    return {"id": str(uuid4()), "role": "user", "content": text}


def request(*messages: Any, **members: Any) -> dict[str, Any]:
    """Return the body of a request for a run (`RunAgentInput`), with new ids and the members that the official client
    sends. `members` replace or add members."""
    return {
        "threadId": str(uuid4()),
        "runId": str(uuid4()),
        "protocolVersion": "1.0",
        "state": {},
        "messages": list(messages),
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **members,
    }


def check_refused(exchange: Exchange) -> None:
    """Raise Failed unless the response is a client error."""
    check(400 <= (exchange.status or 0) < 500, "a refusal with a 4xx status", exchange.status, exchange)
