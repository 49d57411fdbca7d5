"""Client for the agent under test: a server of UI message streams, at the URL to which a page posts."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

from babelgate.conformance.probe import Context, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, dig
from babelgate.conformance.wire.http import StreamExchange, Wire

DONE: Final = "[DONE]"
HEADER: Final = "x-vercel-ai-ui-message-stream"


class ChatTarget:
    """HTTP client for the chats of one agent."""

    def __init__(self, wire: Wire, url: str) -> None:
        self.wire = wire
        self.url = url

    @asynccontextmanager
    async def stream(self, body: Any, *, is_valid: bool = True, **options: Any) -> AsyncGenerator[StreamExchange]:
        """Post a request, and yield its open response stream. `is_valid` is False for a request that is wrong on
        purpose and is not checked against its schema."""
        async with self.wire.stream(
            "POST",
            self.url,
            sends="ChatRequest.request" if is_valid else None,
            receives=None,
            events="Chunk",
            body=body,
            mark=DONE,
            **options,
        ) as stream:
            yield stream

    async def refuse(self, body: Any = None, **options: Any) -> Exchange:
        """Post a request that the server should refuse, and return the exchange: the request and its response."""
        return await self.wire.request("POST", self.url, sends=None, receives=None, body=body, **options)

    @asynccontextmanager
    async def resume(self, chat_id: str) -> AsyncGenerator[StreamExchange]:
        """Request the stream of a chat's active run again, and yield the open response stream."""
        url = f"{self.url}/{quote(chat_id, safe='')}/stream"
        async with self.wire.stream("GET", url, sends=None, receives=None, events="Chunk", mark=DONE) as stream:
            yield stream


Ctx = Context[ChatTarget]


def user(text: str, **members: Any) -> dict[str, Any]:
    """Return a user message with one text part, in the form of the SDK. `members` are added to it."""
    return {"id": new_id(), "role": "user", "parts": [{"type": "text", "text": text}], **members}


def new_id() -> str:
    return uuid4().hex[:16]


def request(*messages: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """Return the body of a POST that starts a new chat with these messages. `members` are added to it."""
    return {"id": new_id(), "messages": list(messages), "trigger": "submit-message", **members}


async def open_agent(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[ChatTarget]:
    """Post a message to the URL, and return the target for probes, with the capability `resume` if the server has it.
    Raises NotSpoken if the response is no UI message stream, unless `is_requested`: the user named the protocol."""
    parts = urlsplit(url)
    target = ChatTarget(wire, urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), parts.query, "")))
    body = request(user(options.triggers["plain"].text))
    async with wire.stream("POST", target.url, sends=None, receives=None, events=None, body=body) as stream:
        await stream.read()
    answered = stream.exchange
    is_spoken = answered.header(HEADER) is not None or b'"type":"start"' in answered.content.replace(b" ", b"")
    if not is_spoken and not is_requested:
        raise NotSpoken(f"it answers a message without a UI message stream ({answered})")
    resumed = await wire.request("GET", f"{target.url}/{new_id()}/stream", sends=None, receives=None)
    capabilities = {"resume"} if resumed.status == 204 else set[str]()
    return Opened(target, target.url, f"{answered} is a UI message stream", frozenset(capabilities))


def agent_for(ctx: Ctx, behaviour: str) -> tuple[ChatTarget, str]:
    """Return a client for the agent that shows a behaviour, and the text that triggers the behaviour.

    Raises NotObserved if the user gave no trigger for it, and NotApplicable if the user states that the agent never
    shows it.
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
    return ChatTarget(ctx.wire, urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))), trigger.text


def has_type(chunk: Any, *kinds: str) -> bool:
    return dig(chunk, "type") in kinds


def refused(exchange: Exchange) -> None:
    """Raise Failed unless the response has a 4xx status."""
    check(400 <= (exchange.status or 0) < 500, "a refusal with a 4xx status", exchange.status, exchange)


def text_in(chunks: Sequence[Any]) -> str:
    deltas = (dig(chunk, "delta") for chunk in chunks if has_type(chunk, "text-delta"))
    return "".join(each for each in deltas if isinstance(each, str))
