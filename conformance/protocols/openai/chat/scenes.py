"""Scenes for chat completions: requests whose results several probes examine. Each is played once per check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from babelgate.conformance.protocols.openai.target import (
    PARAMETERS,
    TOOL_NAME,
    Ctx,
    read,
    speaking,
    trigger_of,
)
from babelgate.conformance.verdict import NotApplicable, check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": TOOL_NAME, "description": "The weather of a city.", "parameters": PARAMETERS},
}


@dataclass(frozen=True, slots=True)
class ChatStream:
    exchange: Exchange
    chunks: Sequence[Any]
    is_whole: bool

    @property
    def choices(self) -> list[Any]:
        return [choice for chunk in self.chunks for choice in as_list(dig(chunk, "choices"))]

    @property
    def deltas(self) -> list[Any]:
        return [dig(choice, "delta") for choice in self.choices]

    @property
    def text(self) -> str:
        return "".join(each for each in (dig(delta, "content") for delta in self.deltas) if isinstance(each, str))


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def body_of(ctx: Ctx, behaviour: str = "plain", **members: Any) -> dict[str, Any]:
    model, text = trigger_of(ctx, behaviour)
    return {"model": model, "messages": [user(text)], **members}


def offer(ctx: Ctx, **members: Any) -> dict[str, Any]:
    """Return the body of a request that offers the tool TOOL to the model, with a text that makes the model call it."""
    return body_of(ctx, "calls", tools=[TOOL], **members)


async def complete(ctx: Ctx, body: Any) -> Exchange:
    """Send a request and return the exchange. Raises Failed unless the answer has a message in its first choice."""
    exchange = await ctx.target.post(body)
    check(exchange.status == 200, "an answer with status 200", exchange.status, exchange)
    message = dig(exchange.json, "choices", 0, "message")
    check(as_object(message) is not None, "a choice with a message", exchange.json, exchange)
    return exchange


async def answer_plainly(ctx: Ctx) -> Exchange:
    return await complete(ctx, body_of(ctx))


async def answer_with_call(ctx: Ctx) -> Exchange:
    exchange = await complete(ctx, offer(ctx))
    choice = dig(exchange.json, "choices", 0)
    has_answered = not dig(choice, "message", "tool_calls") and dig(choice, "finish_reason") == "stop"
    check_shown(not has_answered, "calls", "answered without a call")
    return exchange


async def _stream(ctx: Ctx, body: Any) -> ChatStream:
    async with ctx.target.stream(body) as stream:
        chunks = await read(stream)
        return ChatStream(stream.exchange, chunks, stream.exchange.is_ended and not stream.rest)


async def stream_plainly(ctx: Ctx, with_usage: bool = False) -> ChatStream:
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if with_usage else {}
    return await _stream(ctx, body_of(ctx, speaking(ctx), **more))


async def answer_twice(ctx: Ctx) -> str:
    """Send the same request twice and return the text of the answers. Raises NotApplicable if the two texts differ."""
    bodies = [body_of(ctx, speaking(ctx)) for _ in range(2)]
    texts = [text_of(await complete(ctx, body)) for body in bodies]
    if texts[0] != texts[1]:
        raise NotApplicable("the model answers the same request with another text each time")
    return texts[0]


async def streamed_call(ctx: Ctx) -> ChatStream:
    """Stream an answer to a request that forces the model to call the tool (`tool_choice`), and return it."""
    await ctx.once(answer_with_call)
    return await _stream(ctx, offer(ctx, tool_choice={"type": "function", "function": {"name": TOOL_NAME}}))


def text_of(exchange: Exchange) -> str:
    content = dig(exchange.json, "choices", 0, "message", "content")
    return content if isinstance(content, str) else ""


def check_sum(usage: Any, exchange: Exchange) -> None:
    parts = [dig(usage, name) for name in ("prompt_tokens", "completion_tokens")]
    is_sum = all(isinstance(each, int) for each in parts) and sum(parts) == dig(usage, "total_tokens")
    check(is_sum, "total_tokens = prompt_tokens + completion_tokens", usage, exchange)
