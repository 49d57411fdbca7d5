"""Probes that test calls of the caller's tools in responses."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.responses.scenes import (
    TOOL,
    answer_with_call,
    body_of,
    calls_of,
    offer,
    respond,
    streamed_call,
    text_of,
)
from babelgate.conformance.protocols.openai.target import TOOL_NAME, Ctx, OpenAiTarget, refused
from babelgate.conformance.verdict import Failed, check
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, dig, parse_json

probes: Final = Probes[OpenAiTarget]()


@probes.add
async def tool_is_called(ctx: Ctx) -> None:
    exchange = await ctx.subject(answer_with_call)
    check(bool(calls_of(exchange.json)), "an item function_call", dig(exchange.json, "output"), exchange)


@probes.add
async def call_names_an_offered_tool(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    names = {str(dig(each, "name")) for each in calls_of(exchange.json)}
    check(names == {TOOL_NAME}, f"calls of {TOOL_NAME}", sorted(names), exchange)


@probes.add
async def arguments_are_json(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    calls = calls_of(exchange.json)
    check(bool(calls), "a call", exchange.json, exchange)
    for each in calls:
        _check_arguments(dig(each, "arguments"), exchange)


@probes.add
async def calls_have_unique_ids(ctx: Ctx) -> None:
    first, second = await ctx.once(answer_with_call), await respond(ctx, offer(ctx))
    ids = [dig(each, "call_id") for exchange in (first, second) for each in calls_of(exchange.json)]
    check(bool(ids) and len(ids) == len(set(map(str, ids))), "a unique call_id for each call", ids, second)


@probes.add
async def result_goes_on(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    calls = calls_of(exchange.json)
    check(bool(calls), "a call", exchange.json, exchange)
    body = offer(ctx)
    results = [{"type": "function_call_output", "call_id": dig(each, "call_id"), "output": "Sunny."} for each in calls]
    items = [{"type": "message", "role": "user", "content": body["input"]}, *calls, *results]
    answer = await respond(ctx, {**body, "input": items})
    check(bool(text_of(answer.json)), "a response with text", dig(answer.json, "output"), answer)


@probes.add
async def nothing_is_called_if_forbidden(ctx: Ctx) -> None:
    await ctx.once(answer_with_call)
    exchange = await respond(ctx, offer(ctx, tool_choice="none"))
    check(not calls_of(exchange.json), "no function_call", dig(exchange.json, "output"), exchange)


@probes.add
async def something_is_called_if_required(ctx: Ctx) -> None:
    await ctx.once(answer_with_call)
    exchange = await respond(ctx, body_of(ctx, tools=[TOOL], tool_choice="required"))
    check(bool(calls_of(exchange.json)), "a function_call", dig(exchange.json, "output"), exchange)


@probes.add
async def named_tool_is_called(ctx: Ctx) -> None:
    await ctx.once(answer_with_call)
    exchange = await respond(ctx, body_of(ctx, tools=[TOOL], tool_choice={"type": "function", "name": TOOL_NAME}))
    names = [dig(each, "name") for each in calls_of(exchange.json)]
    check(names == [TOOL_NAME], f"a call of {TOOL_NAME}", dig(exchange.json, "output"), exchange)


@probes.add
async def result_of_an_unknown_call_is_refused(ctx: Ctx) -> None:
    await ctx.once(answer_with_call)
    result = {"type": "function_call_output", "call_id": "call_nobody_made", "output": "x"}
    refused(await ctx.target.post(body_of(ctx, input=[result])))


@probes.add
async def call_is_streamed(ctx: Ctx) -> None:
    done = await ctx.subject(streamed_call)
    for kind in ("response.output_item.added", "response.output_item.done"):
        items = [each for each in done.of(kind) if dig(each, "item", "type") == "function_call"]
        check(bool(items), f"{kind} of a function_call", done.types, done.exchange)


@probes.add
async def streamed_arguments_are_those_of_their_deltas(ctx: Ctx) -> None:
    done = await ctx.once(streamed_call)
    joined_deltas = "".join(str(dig(each, "delta")) for each in done.of("response.function_call_arguments.delta"))
    arguments = "".join(str(dig(each, "arguments")) for each in done.of("response.function_call_arguments.done"))
    check(
        joined_deltas == arguments,
        "deltas that add up to the arguments",
        {"deltas": joined_deltas, "done": arguments},
        done.exchange,
    )
    _check_arguments(arguments, done.exchange)


@probes.add
async def streamed_call_is_in_the_output(ctx: Ctx) -> None:
    done = await ctx.once(streamed_call)
    calls = calls_of(done.last)
    items = [dig(each, "item") for each in done.of("response.output_item.done")]
    check(bool(calls) and all(each in items for each in calls), "the call as it was streamed", calls, done.exchange)


def _check_arguments(text: Any, exchange: Exchange) -> None:
    try:
        value = parse_json(str(text))
    except InvalidJson as error:
        raise Failed(f"arguments as JSON: {error}", text, exchange) from None
    check(isinstance(dig(value, "city"), str), "arguments with a city", text, exchange)
