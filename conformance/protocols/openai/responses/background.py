"""Probes that test responses in the background, for servers that store responses."""

import asyncio
from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.responses.scenes import answer_plainly, body_of, text_of
from babelgate.conformance.protocols.openai.target import Ctx, OpenAiTarget, refused
from babelgate.conformance.verdict import NotApplicable, check, check_busy
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[OpenAiTarget]()

_RUNNING: Final = ("queued", "in_progress")
_POLL_INTERVAL: Final = 0.1
"""Seconds between two reads of a background response until it ends. Chosen."""


@probes.add
async def background_is_answered_at_once(ctx: Ctx) -> None:
    exchange = await ctx.once(_begin)
    check(dig(exchange.json, "background") is True, "background is true", exchange.json, exchange)
    status = dig(exchange.json, "status")
    check(status in _RUNNING, "the status queued or in_progress", status, exchange)


@probes.add
async def background_comes_to_its_end(ctx: Ctx) -> None:
    exchange = await ctx.once(_begin)
    done = await _wait_for_end(ctx, str(dig(exchange.json, "id")))
    check(dig(done.json, "status") == "completed", "the status completed", dig(done.json, "status"), done)
    check(bool(text_of(done.json)), "a message with output_text", dig(done.json, "output"), done)


@probes.add
async def background_is_cancelled(ctx: Ctx) -> None:
    id, exchange = await ctx.once(_begin_and_cancel)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    done = await _wait_for_end(ctx, id)
    check(dig(done.json, "status") == "cancelled", "the status cancelled", dig(done.json, "status"), done)


@probes.add
async def background_is_cancelled_twice(ctx: Ctx) -> None:
    id, first = await ctx.once(_begin_and_cancel)
    check(first.status == 200, "the status 200", first.status, first)
    again = await _cancel(ctx, id)
    check(again.status == 200, "the status 200 again", again.status, again)
    check(dig(again.json, "id") == id, f"the response {id}", again.json, again)


@probes.add
async def foreground_is_not_cancelled(ctx: Ctx) -> None:
    await ctx.once(_begin)
    first = await ctx.once(answer_plainly)
    refused(await _cancel(ctx, str(dig(first.json, "id"))))


async def _begin(ctx: Ctx, behaviour: str = "plain") -> Exchange:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, behaviour, background=True))
    if 400 <= (exchange.status or 0) < 500:
        raise NotApplicable("the server creates no background responses")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    return exchange


async def _begin_and_cancel(ctx: Ctx) -> tuple[str, Exchange]:
    """Start a background response of the behaviour `long` and cancel it. Return its id, and the exchange of the
    cancel."""
    await ctx.once(_stay_busy)
    exchange = await _begin(ctx, "long")
    id = str(dig(exchange.json, "id"))
    return id, await _cancel(ctx, id)


async def _stay_busy(ctx: Ctx) -> None:
    """Start a background response of the behaviour `long` and read its status after BUSY seconds. Raises NotShown if it
    has ended by then."""
    since = asyncio.get_running_loop().time()
    id = str(dig((await _begin(ctx, "long")).json, "id"))

    async def is_running() -> bool:
        exchange = await ctx.target.get(ctx.target.below("responses", id), "Response")
        return exchange.status != 200 or dig(exchange.json, "status") in _RUNNING

    await check_busy(since, is_running)
    await _cancel(ctx, id)


async def _cancel(ctx: Ctx, id: str) -> Exchange:
    url = ctx.target.below("responses", id, "cancel")
    receives = {200: "Response", 4: "ErrorResponse", 5: "ErrorResponse"}
    return await ctx.wire.request("POST", url, sends=None, receives=receives)


async def _wait_for_end(ctx: Ctx, id: str) -> Exchange:
    """Read a background response until it has ended, or until the timeout of one answer. Return the last exchange."""
    deadline = asyncio.get_running_loop().time() + ctx.options.timeout
    while True:
        exchange = await ctx.target.get(ctx.target.below("responses", id), "Response")
        check(exchange.status == 200, "the response is shown", exchange.status, exchange)
        if dig(exchange.json, "status") not in _RUNNING or asyncio.get_running_loop().time() > deadline:
            return exchange
        await asyncio.sleep(_POLL_INTERVAL)
