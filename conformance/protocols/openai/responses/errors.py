"""Probes that test how servers of responses refuse invalid requests, and how they report models that fail."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.responses.scenes import (
    ResponseStream,
    answer_plainly,
    body_of,
    message,
    stream_plainly,
    text_of,
)
from babelgate.conformance.protocols.openai.target import Ctx, OpenAiTarget, events_of, refused
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[OpenAiTarget]()


@probes.add
async def request_needs_a_model(ctx: Ctx) -> None:
    await _check_refused(ctx, model=None)


@probes.add
async def input_is_text_or_items(ctx: Ctx) -> None:
    await _check_refused(ctx, input=7)


@probes.add
async def unknown_items_are_refused(ctx: Ctx) -> None:
    await _check_refused(ctx, input=[{"type": "smell", "smell": "roses"}])


@probes.add
async def unknown_roles_are_refused(ctx: Ctx) -> None:
    await _check_refused(ctx, input=[message("narrator", "Hello")])


@probes.add
async def unknown_parts_are_refused(ctx: Ctx) -> None:
    await _check_refused(ctx, input=[message("user", [{"type": "smell", "smell": "roses"}])])


@probes.add
async def temperature_has_a_most(ctx: Ctx) -> None:
    await _check_refused(ctx, temperature=5)


@probes.add
async def unknown_model_is_refused(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    refused(await ctx.target.post(body_of(ctx, model="no-such-model-here")), 400, 404)


@probes.add
async def failure_is_told(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, "fail"))
    error = as_object(dig(exchange.json, "error"))
    has_answered = dig(exchange.json, "status") == "completed" and error is None and bool(text_of(exchange.json))
    check_shown(not has_answered, "fail", "answered")
    is_failed = exchange.status == 200 and dig(exchange.json, "status") == "failed"
    check((exchange.status or 0) >= 500 or is_failed, "a 5xx status, or a failed response", exchange.json, exchange)
    check(error is not None, "an error object", exchange.json, exchange)


@probes.add
async def failure_of_a_stream_is_told(ctx: Ctx) -> None:
    await ctx.once(stream_plainly)
    async with ctx.target.stream(body_of(ctx, "fail")) as stream:
        exchange = stream.exchange
        await stream.rest_of_it()
    if not exchange.is_stream:
        check((exchange.status or 0) >= 500, "a 5xx status", exchange.status, exchange)
        return
    done = ResponseStream(exchange, events_of(exchange), exchange.is_ended)
    failed: list[Any] = done.of("response.failed")
    has_error = any(dig(each, "response", "error") or dig(each, "type") == "error" for each in done.events)
    check_shown(has_error or not text_of(done.last), "fail", "answered")
    check(bool(failed), "response.failed", done.types, exchange)
    check(as_object(dig(failed[0], "response", "error")) is not None, "the error of the failure", failed[0], exchange)
    check("response.completed" not in done.types, "no response.completed", done.types, exchange)


@probes.add
async def ids_of_responses_lead_nowhere(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    for odd in ("../../etc/passwd", "0" * 2000, "' OR 1=1 --"):
        exchange = await ctx.wire.request("GET", ctx.target.below("responses", odd), sends=None, receives=None)
        refused(exchange)


async def _check_refused(ctx: Ctx, **members: Any) -> None:
    """Check that a request whose body has the members `members` is refused. A value of None removes the member. Raises
    Failed if it is accepted."""
    await ctx.once(answer_plainly)
    body = {name: value for name, value in body_of(ctx, **members).items() if value is not None}
    refused(await ctx.target.post(body, is_valid=False), 400, 422)
