"""Probes of whole messages, and of the content that requests may have."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.anthropic.target import (
    Ctx,
    MessagesTarget,
    answer_plainly,
    body_of,
    create,
    text_of,
    user,
)
from babelgate.conformance.samples import WORDS, check_repeated
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[MessagesTarget]()

_TOOL: Final[dict[str, Any]] = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@probes.add
async def message_is_answered(ctx: Ctx) -> None:
    await ctx.subject(answer_plainly)


@probes.add
async def message_has_text(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    check(bool(text_of(exchange.json)), "a block with text", exchange.json, exchange)


@probes.add
async def message_ends_its_turn(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    reason = dig(exchange.json, "stop_reason")
    check(reason == "end_turn", "the stop_reason end_turn", reason, exchange)


@probes.add
async def messages_have_unique_ids(ctx: Ctx) -> None:
    first, second = await ctx.once(answer_plainly), await create(ctx, body_of(ctx))
    ids = [dig(each.json, "id") for each in (first, second)]
    check(ids[0] != ids[1] and all(ids), "two messages with two ids", ids, second)


@probes.add
async def system_prompt_is_accepted(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    await create(ctx, body_of(ctx, system="Be brief."))
    await create(ctx, body_of(ctx, system=[{"type": "text", "text": "Be brief."}]))


@probes.add
async def history_is_accepted(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    body = body_of(ctx)
    body["messages"] = [user("Hello"), {"role": "assistant", "content": "Hello. What is it?"}, *body["messages"]]
    await create(ctx, body)


@probes.add
async def blocks_are_accepted(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    body = body_of(ctx)
    text = body["messages"][0]["content"]
    body["messages"] = [user([{"type": "text", "text": text}, {"type": "text", "text": "Thank you."}])]
    await create(ctx, body)


@probes.add
async def text_beyond_ascii_is_accepted(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await create(ctx, {**body_of(ctx), "messages": [user(WORDS)]})
    check_repeated(text_of(exchange.json), exchange)


async def answer_with_call(ctx: Ctx) -> Exchange:
    """Post the trigger for a call, with a tool, and return the exchange."""
    exchange = await create(ctx, body_of(ctx, "calls", tools=[_TOOL]))
    check_shown(bool(_calls(exchange)), "calls", "called no tool of the caller")
    return exchange


@probes.add
async def call_ends_the_message(ctx: Ctx) -> None:
    exchange = await ctx.subject(answer_with_call)
    reason = dig(exchange.json, "stop_reason")
    check(reason == "tool_use", "the stop_reason tool_use", reason, exchange)


@probes.add
async def result_continues_the_conversation(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    body = body_of(ctx, "calls", tools=[_TOOL])
    results = [
        {"type": "tool_result", "tool_use_id": dig(each, "id"), "content": "Sunny."} for each in _calls(exchange)
    ]
    body["messages"] += [{"role": "assistant", "content": dig(exchange.json, "content")}, user(results)]
    await create(ctx, body)


def _calls(exchange: Exchange) -> list[Any]:
    return [each for each in as_list(dig(exchange.json, "content")) if dig(each, "type") == "tool_use"]
