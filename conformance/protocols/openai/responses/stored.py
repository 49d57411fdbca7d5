"""Probes that test responses that continue earlier ones, and stored responses."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.responses.scenes import answer_plainly, body_of, respond, stream_plainly
from babelgate.conformance.protocols.openai.target import Ctx, OpenAiTarget, events_of, refused
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[OpenAiTarget]()

_UNKNOWN: Final = "resp_00000000000000000000000000000000"


@probes.add
async def response_goes_on_from_another(ctx: Ctx) -> None:
    first = await ctx.once(answer_plainly)
    id = dig(first.json, "id")
    exchange = await respond(ctx, body_of(ctx, previous_response_id=id))
    actual = dig(exchange.json, "previous_response_id")
    check(actual == id, f"the previous_response_id {id}", actual, exchange)
    check(dig(exchange.json, "id") != id, "a new response", exchange.json, exchange)


@probes.add
async def unknown_response_is_not_gone_on_from(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    refused(await ctx.target.post(body_of(ctx, previous_response_id=_UNKNOWN)))


@probes.add
async def unknown_response_is_called_so(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, previous_response_id=_UNKNOWN))
    code = dig(exchange.json, "error", "code")
    check(code == "previous_response_not_found", "the code previous_response_not_found", exchange.json, exchange)


@probes.add
async def response_is_kept(ctx: Ctx) -> None:
    first = await ctx.once(answer_plainly)
    exchange = await _get(ctx, dig(first.json, "id"))
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    for name in ("id", "status", "output", "created_at"):
        actual = dig(exchange.json, name)
        check(actual == dig(first.json, name), f"{name} as it was answered", actual, exchange)


@probes.add
async def streamed_response_is_kept(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    exchange = await _get(ctx, dig(done.last, "id"))
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    actual = dig(exchange.json, "output")
    check(actual == dig(done.last, "output"), "the output as it was streamed", actual, exchange)


@probes.add
async def unstored_response_is_not_kept(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    response = await respond(ctx, body_of(ctx, store=False))
    check(dig(response.json, "store") is False, "store is false", dig(response.json, "store"), response)
    refused(await _get(ctx, dig(response.json, "id")), 404)


@probes.add
async def unknown_response_is_not_found(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    refused(await _get(ctx, _UNKNOWN), 404)


@probes.add
async def deleted_response_is_gone(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    response = await respond(ctx, body_of(ctx))
    id = str(dig(response.json, "id"))
    exchange = await ctx.wire.request("DELETE", ctx.target.below("responses", id), sends=None, receives=None)
    check(exchange.status in (200, 204), "the status 200", exchange.status, exchange)
    refused(await _get(ctx, id), 404)


@probes.add
async def input_is_kept(ctx: Ctx) -> None:
    first = await ctx.once(answer_plainly)
    url = ctx.target.below("responses", str(dig(first.json, "id")), "input_items")
    exchange = await ctx.target.get(url, None)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    roles = [dig(each, "role") for each in as_list(dig(exchange.json, "data"))]
    check(roles == ["user"], "the message of the user in data", exchange.json, exchange)


@probes.add
async def stream_is_told_again(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    numbers, exchange = await _replay(ctx, str(dig(done.last, "id")), "")
    want = [dig(event, "sequence_number") for event in done.events]
    check(numbers == want, "every event of the stream", numbers, exchange)


@probes.add
async def stream_goes_on_after_a_number(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    want = [dig(event, "sequence_number") for event in done.events]
    numbers, exchange = await _replay(ctx, str(dig(done.last, "id")), f"&starting_after={want[2]}")
    check(numbers == want[3:], f"the events after {want[2]}", numbers, exchange)


@probes.add
async def response_of_another_caller_is_not_found(ctx: Ctx) -> None:
    first = await ctx.once(answer_plainly)
    other = dict(ctx.options.other_headers)
    exchange = await ctx.target.get(
        ctx.target.below("responses", str(dig(first.json, "id"))), None, headers=other, is_anonymous=True
    )
    refused(exchange, 404)


@probes.add
async def response_of_another_caller_is_not_gone_on_from(ctx: Ctx) -> None:
    first = await ctx.once(answer_plainly)
    body = body_of(ctx, previous_response_id=dig(first.json, "id"))
    refused(await ctx.target.post(body, headers=dict(ctx.options.other_headers), is_anonymous=True))


async def _get(ctx: Ctx, id: str) -> Exchange:
    return await ctx.target.get(ctx.target.below("responses", str(id)), "Response")


async def _replay(ctx: Ctx, id: str, query: str) -> tuple[list[int], Exchange]:
    """Read the stream of a stored response again. Return the sequence numbers of its events, and the exchange. `query`
    has further query parameters. Raises Failed if the server sends no stream."""
    url = f"{ctx.target.below('responses', id)}?stream=true{query}"
    async with ctx.wire.stream(
        "GET", url, sends=None, receives={4: "ErrorResponse"}, events="Event", mark="[DONE]"
    ) as stream:
        exchange = stream.exchange
        check(exchange.status == 200 and exchange.is_stream, "a stream with status 200", exchange.status, exchange)
        await stream.rest_of_it()
    return [dig(event, "sequence_number") for event in events_of(exchange)], exchange
