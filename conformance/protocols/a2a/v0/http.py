"""Probes of REST in 0.3."""

from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import Agent, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.scenes import plain, plain_task
from babelgate.conformance.protocols.a2a.v0.rest import RestBinding
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[Agent]()
_JSON: Final = "application/json"


async def rest_of(ctx: Ctx) -> RestBinding:
    """Return the binding of an agent that answers by it: the refusals of one that only refuses prove nothing."""
    await ctx.once(plain, "HTTP+JSON")
    binding = (await agent_for(ctx, "plain"))["HTTP+JSON"]
    assert isinstance(binding, RestBinding)
    return binding


async def post_message(ctx: Ctx, content: bytes) -> Exchange:
    rest = await rest_of(ctx)
    url, headers = f"{rest.root}/message:send", {"Content-Type": _JSON}
    return await ctx.wire.request("POST", url, sends=None, receives=None, content=content, headers=headers)


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
    reply = await (await rest_of(ctx)).call("GetTask", {"id": str(uuid4())})
    kind = reply.exchange.media_type
    check(kind == _JSON or kind.endswith("+json"), "Content-Type of JSON", kind, reply.exchange)


@probes.add
async def rest_unknown_task_is_404(ctx: Ctx) -> None:
    reply = await (await rest_of(ctx)).call("GetTask", {"id": str(uuid4())})
    check(reply.exchange.status == 404, "status 404", reply.exchange.status, reply.exchange)


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


@probes.add
async def rest_unknown_path_is_404(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    exchange = await ctx.wire.request("GET", f"{rest.root}/babelgate/no/such/path", sends=None, receives=None)
    check(exchange.status == 404, "status 404", exchange.status, exchange)


@probes.add
async def rest_events_are_bare(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    async with rest.stream("SendStreamingMessage", {"message": message(ctx.triggers["plain"].text)}) as stream:
        first = await stream.next()
        is_bare = (dig(first, "task") or dig(first, "message")) is not None and "jsonrpc" not in _text(stream.exchange)
        check(is_bare, "a task or a message without an envelope", first, stream.exchange)


def _text(exchange: Exchange) -> str:
    return "".join(frame.data for frame in exchange.frames)
