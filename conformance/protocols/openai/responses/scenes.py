"""Scenes for responses: requests whose results several probes examine. Each is played once per check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from babelgate.conformance.protocols.openai.target import DONE, PARAMETERS, TOOL_NAME, Ctx, read, speaking, trigger_of
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

TOOL: Mapping[str, Any] = {
    "type": "function",
    "name": TOOL_NAME,
    "description": "The weather of a city.",
    "parameters": PARAMETERS,
    "strict": True,
}
TERMINAL = ("response.completed", "response.failed", "response.incomplete")


@dataclass(frozen=True, slots=True)
class ResponseStream:
    exchange: Exchange
    events: Sequence[Any]
    is_whole: bool

    @property
    def types(self) -> list[Any]:
        return [dig(event, "type") for event in self.events]

    @property
    def last(self) -> Any:
        """Response object in the last event of the stream; None if that event has none."""
        return dig(list(self.events), -1, "response")

    def of(self, *types: str) -> list[Any]:
        return [event for event in self.events if dig(event, "type") in types]


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def body_of(ctx: Ctx, behaviour: str = "plain", **members: Any) -> dict[str, Any]:
    model, text = trigger_of(ctx, behaviour)
    return {"model": model, "input": text, **members}


def offer(ctx: Ctx, **members: Any) -> dict[str, Any]:
    """Return the body of a request that offers the tool TOOL to the model, with a text that makes the model call it.
    `members` are further members of the body."""
    return body_of(ctx, "calls", tools=[TOOL], **members)


async def respond(ctx: Ctx, body: Any) -> Exchange:
    """Send a request and return the exchange. Raises Failed unless a response with an id is returned."""
    exchange = await ctx.target.post(body)
    check(exchange.status == 200, "a response with status 200", exchange.status, exchange)
    check(isinstance(dig(exchange.json, "id"), str), "a response with an id", exchange.json, exchange)
    return exchange


async def answer_plainly(ctx: Ctx) -> Exchange:
    return await respond(ctx, body_of(ctx))


async def answer_with_call(ctx: Ctx) -> Exchange:
    exchange = await respond(ctx, offer(ctx))
    has_answered = not calls_of(exchange.json) and bool(text_of(exchange.json))
    check_shown(not has_answered, "calls", "answered without a call")
    return exchange


async def _stream(ctx: Ctx, body: Any) -> ResponseStream:
    async with ctx.target.stream(body) as stream:
        events = await read(stream)
        return ResponseStream(stream.exchange, events, stream.exchange.is_ended and not stream.rest)


async def stream_plainly(ctx: Ctx) -> ResponseStream:
    return await _stream(ctx, body_of(ctx, speaking(ctx)))


async def streamed_call(ctx: Ctx) -> ResponseStream:
    """Stream a response to a request that forces the model to call the tool (`tool_choice`), and return it."""
    await ctx.once(answer_with_call)
    return await _stream(ctx, offer(ctx, tool_choice={"type": "function", "name": TOOL_NAME}))


def messages_of(response: Any) -> list[Any]:
    return [item for item in as_list(dig(response, "output")) if dig(item, "type") == "message"]


def calls_of(response: Any) -> list[Any]:
    return [item for item in as_list(dig(response, "output")) if dig(item, "type") == "function_call"]


def text_of(response: Any) -> str:
    parts = [part for each in messages_of(response) for part in as_list(dig(each, "content"))]
    return "".join(str(dig(part, "text")) for part in parts if dig(part, "type") == "output_text")


def has_done_at_end(exchange: Exchange) -> bool:
    marks = [frame.data for frame in exchange.frames if frame.data == DONE]
    return len(marks) == 1 and exchange.frames[-1].data == DONE
