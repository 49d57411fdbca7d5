"""Probes of the connection: messages, requests that do not exist, and the negotiation of the version."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.agent_client.peer import UNKNOWN_METHOD, EditorPeer
from babelgate.conformance.protocols.agent_client.target import (
    AgentClientTarget,
    Ctx,
    create_session,
    error_of,
    new_for,
    new_session,
    play_connection,
    result_of,
)
from babelgate.conformance.verdict import Failed, check
from babelgate.conformance.wire.exchange import as_object, dig
from babelgate.conformance.wire.links import ProcessLink

probes: Final = Probes[AgentClientTarget]()

_NEWEST: Final = 65535
"""Protocol version that no agent speaks. The editor requests it to test the negotiation."""
_REFUSED: Final = (-32602, -32600)
"""JSON-RPC error codes that an agent may return for wrong params."""


@probes.add
async def messages_are_json_rpc(ctx: Ctx) -> None:
    session = await new_for(ctx)
    exchange = await session.prompt()
    for message in session.peer.messages:
        is_message = dig(message, "jsonrpc") == "2.0"
        check(is_message, "one JSON-RPC 2.0 message, and nothing else", message, exchange)


@probes.add
async def process_ends_with_its_input(ctx: Ctx) -> None:
    async with ctx.target.connect() as peer:
        exchange = await ctx.target.initialize(peer)
        assert isinstance(peer.link, ProcessLink)
        try:
            await peer.link.end_input(ctx.wire.timeout)
        except TimeoutError:
            raise Failed("a process that ends with its standard input", "it still runs", exchange) from None


@probes.add
async def ids_of_both_types_are_returned(ctx: Ctx) -> None:
    peer = await _peer(ctx)
    for request_id in ("a-text", 4711):
        exchange = await peer.request("session/new", new_session(), receives="NewSession", id=request_id)
        found = dig(exchange.json, "id")
        check(type(found) is type(request_id) and found == request_id, f"the id {request_id!r}", found, exchange)
        result_of(exchange)


@probes.add
async def answers_have_a_result_or_an_error(ctx: Ctx) -> None:
    session = await new_for(ctx)
    failed = await session.peer.request("no/such_method", {}, receives=None)
    for exchange in (session.created, failed):
        answer = as_object(exchange.json) or {}
        check(("result" in answer) != ("error" in answer), "either result or error", answer, exchange)


@probes.add
async def unknown_method_is_not_found(ctx: Ctx) -> None:
    await _check_unknown(ctx, "no/such_method")


@probes.add
async def unknown_extension_is_not_found(ctx: Ctx) -> None:
    await _check_unknown(ctx, "_no_such/extension")


async def _check_unknown(ctx: Ctx, method: str) -> None:
    peer = await _peer(ctx)
    await create_session(peer)
    exchange = await peer.request(method, {"a": 1}, receives=None)
    code = dig(error_of(exchange), "code")
    check(code == UNKNOWN_METHOD, f"the error {UNKNOWN_METHOD}", code, exchange)


@probes.add
async def unknown_notifications_are_ignored(ctx: Ctx) -> None:
    async with ctx.target.connect() as peer:
        await ctx.target.initialize(peer)
        await create_session(peer)
        before = len(peer.messages)
        await peer.notify("no/such_notification", {"a": 1})
        await peer.notify("_no_such/notification", {})
        session = await create_session(peer)
        found = [as_object(each) or {"method": None} for each in peer.messages[before:-1]]
        answers = [each for each in found if "method" not in each]
        check(not answers, "no answer to a notification", answers, session.created)


@probes.add
async def missing_params_are_invalid(ctx: Ctx) -> None:
    session = await new_for(ctx)
    exchange = await session.peer.request("session/prompt", {"sessionId": session.id}, receives=None, sends=None)
    code = dig(error_of(exchange), "code")
    check(code in _REFUSED, "the error -32602", code, exchange)


@probes.add
async def errors_show_no_stack_trace(ctx: Ctx) -> None:
    session = await new_for(ctx)
    exchange = await session.peer.request("session/prompt", {"sessionId": [1]}, receives=None, sends=None)
    text = exchange.content.decode("utf-8", errors="replace")
    error_of(exchange)
    check("Traceback" not in text and 'File \\"' not in text, "no stack trace", text[:300], exchange)


# Initialization


@probes.add
async def version_1_is_spoken(ctx: Ctx) -> None:
    async with ctx.target.connect() as peer:
        exchange = await ctx.target.initialize(peer)
        version = dig(peer.initialized, "protocolVersion")
        check(version == 1 and type(version) is int, "protocolVersion 1", version, exchange)


@probes.add
async def unknown_version_is_not_echoed(ctx: Ctx) -> None:
    async with ctx.target.connect() as peer:
        exchange = await ctx.target.initialize(peer, _NEWEST)
        version = dig(peer.initialized, "protocolVersion")
        check(type(version) is int and version != _NEWEST, "the newest version of the agent", version, exchange)


@probes.add
async def agent_names_itself(ctx: Ctx) -> None:
    peer = await _peer(ctx)
    info: Any = dig(peer.initialized, "agentInfo")
    is_named = bool(dig(info, "name")) and bool(dig(info, "version"))
    check(is_named, "agentInfo with a name and a version", info)


@probes.add
async def unknown_members_of_initialize_are_ignored(ctx: Ctx) -> None:
    async with ctx.target.connect() as peer:
        await ctx.target.initialize(peer)
    async with ctx.target.connect() as peer:
        await ctx.target.initialize(peer, unheardOf={"a": 1}, _meta={"example.com/a": 1})


async def _peer(ctx: Ctx) -> EditorPeer:
    return await ctx.once(play_connection, ctx.target.address)
