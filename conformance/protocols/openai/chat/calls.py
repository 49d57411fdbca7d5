"""Probes that test calls of the caller's tools in chat completions."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.chat.scenes import (
    TOOL,
    answer_with_call,
    body_of,
    complete,
    offer,
    streamed_call,
)
from babelgate.conformance.protocols.openai.target import TOOL_NAME, Ctx, OpenAiTarget
from babelgate.conformance.verdict import Failed, check
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, as_list, as_object, dig, parse_json

probes: Final = Probes[OpenAiTarget]()


@probes.add
async def tool_is_called(ctx: Ctx) -> None:
    exchange = await ctx.subject(answer_with_call)
    check(bool(_calls(exchange)), "a message with tool_calls", exchange.json, exchange)


@probes.add
async def call_ends_the_answer(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    reason = dig(exchange.json, "choices", 0, "finish_reason")
    check(reason == "tool_calls", "the finish_reason tool_calls", reason, exchange)


@probes.add
async def call_names_an_offered_tool(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    names = {str(dig(each, "function", "name")) for each in _calls(exchange)}
    check(names == {TOOL_NAME}, f"calls of {TOOL_NAME}", sorted(names), exchange)


@probes.add
async def arguments_are_json(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    calls = _calls(exchange)
    check(bool(calls), "a call", exchange.json, exchange)
    for each in calls:
        _arguments(dig(each, "function", "arguments"), exchange)


@probes.add
async def calls_have_unique_ids(ctx: Ctx) -> None:
    first, second = await ctx.once(answer_with_call), await complete(ctx, offer(ctx))
    ids = [dig(each, "id") for exchange in (first, second) for each in _calls(exchange)]
    check(bool(ids) and all(ids) and len(ids) == len(set(map(str, ids))), "each call with an id", ids, second)


@probes.add
async def result_goes_on(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_with_call)
    body = offer(ctx)
    calls = _calls(exchange)
    check(bool(calls), "a call", exchange.json, exchange)
    call_message = dig(exchange.json, "choices", 0, "message")
    results = [{"role": "tool", "tool_call_id": dig(each, "id"), "content": "Sunny."} for each in calls]
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": dig(call_message, "tool_calls")},
        *results,
    ]
    answer = await complete(ctx, body)
    check(bool(dig(answer.json, "choices", 0, "message", "content")), "an answer with text", answer.json, answer)


@probes.add
async def nothing_is_called_if_forbidden(ctx: Ctx) -> None:
    await ctx.once(answer_with_call)
    exchange = await complete(ctx, offer(ctx, tool_choice="none"))
    check(not _calls(exchange), "no tool_calls", exchange.json, exchange)


@probes.add
async def named_tool_is_called(ctx: Ctx) -> None:
    await ctx.once(answer_with_call)
    choice = {"type": "function", "function": {"name": TOOL_NAME}}
    exchange = await complete(ctx, body_of(ctx, tools=[TOOL], tool_choice=choice))
    names = [dig(each, "function", "name") for each in _calls(exchange)]
    check(names == [TOOL_NAME], f"a call of {TOOL_NAME}", exchange.json, exchange)


@probes.add
async def call_is_streamed(ctx: Ctx) -> None:
    done = await ctx.subject(streamed_call)
    check(bool(_pieces(done.deltas)), "deltas with tool_calls", done.deltas, done.exchange)


@probes.add
async def streamed_calls_are_numbered(ctx: Ctx) -> None:
    done = await ctx.once(streamed_call)
    indices = list(dict.fromkeys(str(dig(each, "index")) for each in _pieces(done.deltas)))
    check(bool(indices) and indices == list(map(str, range(len(indices)))), "indices from 0", indices, done.exchange)


@probes.add
async def streamed_call_is_named_once(ctx: Ctx) -> None:
    done = await ctx.once(streamed_call)
    pieces = [each for each in _pieces(done.deltas) if dig(each, "index") == 0]
    for path in (("id",), ("function", "name")):
        values = [value for value in (dig(each, *path) for each in pieces) if value]
        check(len(values) == 1, f"{path[-1]} in one delta of a call", values, done.exchange)


@probes.add
async def streamed_arguments_are_json(ctx: Ctx) -> None:
    done = await ctx.once(streamed_call)
    pieces = [dig(each, "function", "arguments") for each in _pieces(done.deltas) if dig(each, "index") == 0]
    _arguments("".join(each for each in pieces if isinstance(each, str)), done.exchange)


@probes.add
async def streamed_call_ends_the_answer(ctx: Ctx) -> None:
    done = await ctx.once(streamed_call)
    reasons = [dig(each, "finish_reason") for each in done.choices]
    check(reasons[-1:] == ["tool_calls"], "finish_reason tool_calls last", reasons, done.exchange)


def _calls(exchange: Exchange) -> list[Any]:
    return as_list(dig(exchange.json, "choices", 0, "message", "tool_calls"))


def _pieces(deltas: list[Any]) -> list[Any]:
    return [each for delta in deltas for each in as_list(dig(delta, "tool_calls"))]


def _arguments(text: Any, exchange: Exchange) -> None:
    try:
        value = parse_json(str(text))
    except InvalidJson as error:
        raise Failed(f"arguments as JSON: {error}", text, exchange) from None
    check(isinstance(dig(as_object(value), "city"), str), "arguments with a city", text, exchange)
