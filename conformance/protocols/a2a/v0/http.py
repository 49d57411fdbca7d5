"""Probes that test the REST binding of A2A 0.3."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx
from babelgate.conformance.protocols.a2a.probes.bindings import post_message, rest_of, unknown_task
from babelgate.conformance.protocols.a2a.scenes import plain, plain_task
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange

probes: Final = Probes[A2aTarget]()
_JSON: Final = "application/json"


def is_refused(exchange: Exchange) -> None:
    """Raise Failed unless the response is a client error (4xx)."""
    status = exchange.status or 0
    check(400 <= status < 500, "a status between 400 and 499", status, exchange)


@probes.add
async def rest_is_json(ctx: Ctx) -> None:
    reply = await ctx.once(plain, "HTTP+JSON")
    check(reply.exchange.media_type == _JSON, f"Content-Type {_JSON}", reply.exchange.media_type, reply.exchange)


@probes.add
async def rest_errors_are_json(ctx: Ctx) -> None:
    reply = await unknown_task(ctx)
    kind = reply.exchange.media_type
    check(kind == _JSON or kind.endswith("+json"), "Content-Type of JSON", kind, reply.exchange)


@probes.add
async def rest_refused_cancel_is_the_callers_mistake(ctx: Ctx) -> None:
    sent = await ctx.once(plain_task, "HTTP+JSON")
    reply = await (await rest_of(ctx)).call("CancelTask", {"id": sent.task["id"]})
    is_refused(reply.exchange)


@probes.add
async def rest_broken_json_is_the_callers_mistake(ctx: Ctx) -> None:
    is_refused(await post_message(ctx, b'{"message": {'))


@probes.add
async def rest_missing_message_is_the_callers_mistake(ctx: Ctx) -> None:
    is_refused(await post_message(ctx, b"{}"))
