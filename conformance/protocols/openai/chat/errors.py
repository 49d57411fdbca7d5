"""Probes that test how chat completion servers refuse invalid requests, and how they report models that fail."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.chat.scenes import answer_plainly, body_of, stream_plainly, text_of, user
from babelgate.conformance.protocols.openai.target import Ctx, OpenAiTarget, events_of, refused
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import as_list, as_object, dig

probes: Final = Probes[OpenAiTarget]()


@probes.add
async def chat_needs_a_model(ctx: Ctx) -> None:
    await _check_refused(ctx, model=None)


@probes.add
async def chat_needs_messages(ctx: Ctx) -> None:
    await _check_refused(ctx, messages=None)


@probes.add
async def messages_are_not_empty(ctx: Ctx) -> None:
    await _check_refused(ctx, messages=[])


@probes.add
async def messages_are_an_array(ctx: Ctx) -> None:
    await _check_refused(ctx, messages="Hello")


@probes.add
async def unknown_roles_are_refused(ctx: Ctx) -> None:
    await _check_refused(ctx, messages=[{"role": "narrator", "content": "Hello"}])


@probes.add
async def unknown_parts_are_refused(ctx: Ctx) -> None:
    await _check_refused(ctx, messages=[user([{"type": "smell", "smell": "roses"}])])


@probes.add
async def result_without_a_call_is_refused(ctx: Ctx) -> None:
    await _check_refused(ctx, messages=[user("Hello"), {"role": "tool", "tool_call_id": "call_0", "content": "x"}])


@probes.add
async def temperature_has_a_most(ctx: Ctx) -> None:
    await _check_refused(ctx, temperature=5)


@probes.add
async def unknown_model_is_refused(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    refused(await ctx.target.post(body_of(ctx, model="no-such-model-here")), 404)


@probes.add
async def unknown_model_is_called_so(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, model="no-such-model-here"))
    code = dig(exchange.json, "error", "code")
    check(code == "model_not_found", "the code model_not_found", exchange.json, exchange)


@probes.add
async def refusal_names_the_parameter(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, messages="Hello"), is_valid=False)
    param = dig(exchange.json, "error", "param")
    check(str(param).startswith("messages"), "the param messages", exchange.json, exchange)


@probes.add
async def refusal_is_called_an_invalid_request(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, messages="Hello"), is_valid=False)
    actual = dig(exchange.json, "error", "type")
    check(actual == "invalid_request_error", "the type invalid_request_error", exchange.json, exchange)


@probes.add
async def failure_is_an_error(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, "fail"))
    reason = dig(exchange.json, "choices", 0, "finish_reason")
    has_answered = reason == "stop" and bool(text_of(exchange)) and as_object(dig(exchange.json, "error")) is None
    check_shown(not has_answered, "fail", "answered")
    check((exchange.status or 0) >= 500, "a 5xx status", exchange.status, exchange)
    check(as_object(dig(exchange.json, "error")) is not None, "an error object", exchange.json, exchange)


@probes.add
async def failure_of_a_stream_is_told(ctx: Ctx) -> None:
    await ctx.once(stream_plainly)
    async with ctx.target.stream(body_of(ctx, "fail")) as stream:
        exchange = stream.exchange
        await stream.rest_of_it()
    if not exchange.is_stream:
        check((exchange.status or 0) >= 500, "a 5xx status", exchange.status, exchange)
        return
    events: list[Any] = events_of(exchange)
    error_events = [each for each in events if as_object(dig(each, "error")) is not None]
    reasons = [dig(choice, "finish_reason") for each in events for choice in as_list(dig(each, "choices"))]
    texts = [dig(choice, "delta", "content") for each in events for choice in as_list(dig(each, "choices"))]
    check_shown(bool(error_events) or "stop" not in reasons or not any(texts), "fail", "answered")
    check(bool(error_events), "an event with an error", events, exchange)
    check("stop" not in reasons, "no finish_reason stop", reasons, exchange)


@probes.add
async def deep_json_kills_nobody(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    exchange = await ctx.target.post(body_of(ctx, tools=deep), is_valid=False)
    check((exchange.status or 0) < 500, "no server error", exchange.status, exchange)


async def _check_refused(ctx: Ctx, **members: Any) -> None:
    """Check that a request whose body has the members `members` is refused with status 400 or 422. A value of None
    removes the member. Raises Failed for any other status."""
    await ctx.once(answer_plainly)
    body = {name: value for name, value in body_of(ctx, **members).items() if value is not None}
    refused(await ctx.target.post(body, is_valid=False), 400, 422)
