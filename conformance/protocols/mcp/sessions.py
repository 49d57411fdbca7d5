"""Probes that test the sessions of MCP servers that have them."""

from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.target import Ctx, McpTarget
from babelgate.conformance.verdict import NotApplicable, check

probes: Final = Probes[McpTarget]()


@probes.add
async def session_id_is_visible_ascii(ctx: Ctx) -> None:
    id = ctx.target.id or ""
    is_right = bool(id) and all(0x21 <= ord(each) <= 0x7E for each in id)
    check(is_right, "a session id of visible ASCII", id, ctx.target.hello.exchange)


@probes.add
async def session_ids_are_hard_to_guess(ctx: Ctx) -> None:
    session, hello = await ctx.target.enter()
    ids = [ctx.target.id or "", session.id or ""]
    check(ids[0] != ids[1] and all(len(set(each)) >= 8 for each in ids), "two long ids", ids, hello.exchange)


@probes.add
async def sessions_go_side_by_side(ctx: Ctx) -> None:
    session, _ = await ctx.target.enter()
    for each in (session, ctx.target, session):
        reply = await each.ask("ping")
        check(reply.result is not None, "a result in each session", reply.messages, reply.exchange)


@probes.add
async def request_without_its_session_is_refused(ctx: Ctx) -> None:
    await _check_alive(ctx)
    reply = await ctx.target.ask("ping", is_valid=False, headers={"Mcp-Session-Id": ""})
    check(reply.exchange.status == 400, "the status 400", reply.exchange.status, reply.exchange)


@probes.add
async def unknown_session_is_not_found(ctx: Ctx) -> None:
    await _check_alive(ctx)
    reply = await ctx.target.ask("ping", is_valid=False, headers={"Mcp-Session-Id": uuid4().hex})
    check(reply.exchange.status == 404, "the status 404", reply.exchange.status, reply.exchange)


@probes.add
async def session_can_be_ended(ctx: Ctx) -> None:
    session, _ = await ctx.target.enter()
    exchange = await ctx.wire.request("DELETE", session.url, sends=None, receives=None, headers=session.headers)
    check(exchange.status in (200, 202, 204, 405), "a 2xx status, or 405", exchange.status, exchange)


@probes.add
async def ended_session_is_not_found(ctx: Ctx) -> None:
    session, _ = await ctx.target.enter()
    exchange = await ctx.wire.request("DELETE", session.url, sends=None, receives=None, headers=session.headers)
    if exchange.status == 405:
        raise NotApplicable("the server does not let clients end a session")
    check((exchange.status or 500) < 300, "a 2xx status", exchange.status, exchange)
    reply = await session.ask("ping", is_valid=False)
    check(reply.exchange.status == 404, "the status 404", reply.exchange.status, reply.exchange)


@probes.add
async def session_of_another_caller_is_refused(ctx: Ctx) -> None:
    await _check_alive(ctx)
    other = dict(ctx.options.other_headers)
    reply = await ctx.target.ask("ping", is_valid=False, headers=other, is_anonymous=True)
    status = reply.exchange.status
    check(status in (401, 403, 404), "the status 404, or 403", status, reply.exchange)


async def _check_alive(ctx: Ctx) -> None:
    reply = await ctx.target.ask("ping")
    check(reply.result is not None, "a result in the session", reply.messages, reply.exchange)
