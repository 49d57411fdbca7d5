"""Probes that test streamable HTTP, and JSON-RPC over it."""

from typing import Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.scenes import list_tools
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget, request
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[McpTarget]()


@probes.add
async def answer_is_json_or_a_stream(ctx: Ctx) -> None:
    reply = await ctx.target.ask(ctx.target.IDLE)
    kind = reply.exchange.media_type
    check(reply.exchange.status == 200, "the status 200", reply.exchange.status, reply.exchange)
    check(kind in ("application/json", "text/event-stream"), "one of the two media types", kind, reply.exchange)


@probes.add
async def response_has_the_id_of_its_request(ctx: Ctx) -> None:
    await ctx.once(_ping)
    for id in ("a-b/c", 123456789):
        reply = await ctx.target.ask(ctx.target.IDLE, id=id)
        actual = dig(reply.response, "id")
        check(actual == id and type(actual) is type(id), f"the id {id!r}", reply.response, reply.exchange)


@probes.add
async def request_has_one_response(ctx: Ctx) -> None:
    reply = await _list_whole(ctx)
    responses = [each for each in reply.messages if dig(each, "method") is None]
    check(len(responses) == 1, "one response", reply.messages, reply.exchange)


@probes.add
async def stream_ends_after_the_response(ctx: Ctx) -> None:
    reply = await _list_whole(ctx)
    check(reply.exchange.is_ended, "an answer that ends", reply.exchange.error, reply.exchange)


@probes.add
async def ids_of_events_are_unique(ctx: Ctx) -> None:
    replies = [await _list_whole(ctx), await _list_whole(ctx)]
    ids = [frame.id for reply in replies for frame in reply.exchange.frames if frame.id]
    if not ids:
        raise NotApplicable("events have no ids")
    check(len(ids) == len(set(ids)), "ids that no other stream of the session has", ids, replies[1].exchange)


@probes.add
async def get_is_a_stream_or_refused(ctx: Ctx) -> None:
    await ctx.once(_ping)
    headers = {**ctx.target.headers, "Accept": "text/event-stream"}
    async with ctx.wire.stream(
        "GET", ctx.target.url, sends=None, receives=None, events="JsonRpcMessage", headers=headers, mark=ctx.target.MARK
    ) as stream:
        exchange = stream.exchange
    is_right = exchange.status == 405 or (exchange.status == 200 and exchange.is_stream)
    check(is_right, "a stream, or the status 405", [exchange.status, exchange.media_type], exchange)


@probes.add
async def other_methods_are_refused(ctx: Ctx) -> None:
    await ctx.once(_ping)
    exchange = await ctx.wire.request("PUT", ctx.target.url, sends=None, receives=None, headers=ctx.target.headers)
    check(exchange.status == 405, "the status 405", exchange.status, exchange)


@probes.add
async def unknown_version_in_the_header_is_refused(ctx: Ctx) -> None:
    await ctx.once(_ping)
    reply = await ctx.target.ask(ctx.target.IDLE, is_valid=False, headers={"MCP-Protocol-Version": "1999-01-01"})
    check(reply.exchange.status == 400, "the status 400", reply.exchange.status, reply.exchange)


@probes.add
async def version_may_be_left_out_of_the_headers(ctx: Ctx) -> None:
    await ctx.once(_ping)
    reply = await ctx.target.ask(ctx.target.IDLE, headers={"MCP-Protocol-Version": ""})
    check(reply.result is not None, "a result", reply.response, reply.exchange)


@probes.add
async def foreign_origin_is_refused(ctx: Ctx) -> None:
    await ctx.once(_ping)
    reply = await ctx.target.ask(ctx.target.IDLE, is_valid=False, headers={"Origin": "https://attacker.example"})
    check(reply.exchange.status == 403, "the status 403", reply.exchange.status, reply.exchange)


@probes.add
async def caller_that_takes_no_stream_is_refused_or_answered(ctx: Ctx) -> None:
    await ctx.once(_ping)
    reply = await ctx.target.ask(ctx.target.IDLE, is_valid=False, headers={"Accept": "application/json"})
    kind = reply.exchange.media_type
    is_right = reply.exchange.status in (400, 406) or (reply.exchange.status == 200 and kind == "application/json")
    check(is_right, "JSON, or the status 406", [reply.exchange.status, kind], reply.exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    reply = await ctx.once(_post_broken_json)
    status = reply.exchange.status or 0
    check(400 <= status < 500, "a 4xx status", reply.exchange.status, reply.exchange)


@probes.add
async def broken_json_is_a_parse_error(ctx: Ctx) -> None:
    reply = await ctx.once(_post_broken_json)
    check(reply.code == -32700, "the code -32700", reply.messages, reply.exchange)


@probes.add
async def batch_is_refused(ctx: Ctx) -> None:
    await ctx.once(_ping)
    reply = await ctx.target.post([request(1, ctx.target.IDLE), request(2, ctx.target.IDLE)])
    check(400 <= (reply.exchange.status or 0) < 500, "a 4xx status", reply.exchange.status, reply.exchange)


@probes.add
async def unknown_method_is_not_found(ctx: Ctx) -> None:
    reply = await ctx.target.ask("no/such/method", is_valid=False)
    check(reply.code == -32601, "the code -32601", reply.response, reply.exchange)


@probes.add
async def what_is_no_request_is_refused(ctx: Ctx) -> None:
    await ctx.once(_ping)
    reply = await ctx.target.post({"jsonrpc": "1.0", "id": 1, "method": 7})
    is_refused = reply.code == -32600 or 400 <= (reply.exchange.status or 0) < 500
    check(is_refused, "an error, or a 4xx status", reply.messages, reply.exchange)
    check(reply.result is None, "no result", reply.messages, reply.exchange)


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    await ctx.once(_ping)
    replies = [
        await ctx.target.ask("tools/call", {"name": ["x"], "arguments": 7}, is_valid=False),
        await ctx.target.ask("tools/list", {"cursor": {"a": []}}, is_valid=False),
    ]
    if ctx.target.process is None:  # Over stdio, nothing links an error to a line that is not JSON.
        replies.append(await ctx.once(_post_broken_json))
    for reply in replies:
        text = reply.exchange.content.decode(errors="replace") + "".join(each.raw for each in reply.exchange.frames)
        found = find_leak(text)
        check(not found, "an error without a stack trace", found, reply.exchange)


@probes.add
async def deep_json_kills_nobody(ctx: Ctx) -> None:
    await ctx.once(_ping)
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    reply = await ctx.target.ask(ctx.target.IDLE, {"deep": deep}, is_valid=False)
    check((reply.exchange.status or 0) < 500, "no server error", reply.exchange.status, reply.exchange)
    after = await ctx.target.ask(ctx.target.IDLE)
    check(after.result is not None, "a server that continues to answer", after.response, after.exchange)


async def _ping(ctx: Ctx) -> McpReply:
    reply = await ctx.target.ask(ctx.target.IDLE)
    check(reply.result is not None, f"{ctx.target.IDLE} is answered with a result", reply.response, reply.exchange)
    return reply


async def _list_whole(ctx: Ctx) -> McpReply:
    """Request the list of tools and read the response to its end, also after the result. Return the reply."""
    await ctx.once(list_tools)
    return await ctx.target.ask("tools/list", reads_all=True)


async def _post_broken_json(ctx: Ctx) -> McpReply:
    await ctx.once(_ping)
    reply: McpReply = await ctx.target.post(None, content=b'{"jsonrpc": "2.0", ')
    return reply
