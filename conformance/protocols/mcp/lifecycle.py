"""Probes that test the start of an MCP session (`initialize`)."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.target import HELLO, Ctx, McpReply, McpTarget
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[McpTarget]()

_EARLIER_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18")
"""Versions of MCP before the judged one."""


@probes.add
async def hello_is_answered(ctx: Ctx) -> None:
    hello = ctx.target.hello
    check(as_object(hello.result) is not None, "a result", hello.response, hello.exchange)


@probes.add
async def version_is_the_one_asked_for(ctx: Ctx) -> None:
    hello = ctx.target.hello
    want = HELLO["protocolVersion"]
    actual = dig(hello.result, "protocolVersion")
    if actual in _EARLIER_VERSIONS:
        # A server answers a version that it does not speak with one that it speaks.
        raise NotObserved(f"the server speaks {actual}, and not {want}")
    check(actual == want, f"the protocolVersion {want}", actual, hello.exchange)


@probes.add
async def unknown_version_is_answered_with_another(ctx: Ctx) -> None:
    reply = await _initialize(ctx, "1999-01-01")
    actual = dig(reply.result, "protocolVersion")
    check(isinstance(actual, str) and actual != "1999-01-01", "a protocolVersion of the server", reply.response)


@probes.add
async def older_version_is_spoken(ctx: Ctx) -> None:
    reply = await _initialize(ctx, "2025-06-18")
    actual = dig(reply.result, "protocolVersion")
    check(actual == "2025-06-18", "the protocolVersion 2025-06-18", reply.response, reply.exchange)


@probes.add
async def tools_are_declared(ctx: Ctx) -> None:
    hello = ctx.target.hello
    declared = dig(hello.result, "capabilities")
    check(as_object(dig(declared, "tools")) is not None, "the capability tools", declared, hello.exchange)


@probes.add
async def initialized_is_accepted(ctx: Ctx) -> None:
    exchange = await ctx.target.notify("notifications/initialized")
    check(exchange.status == 202, "the status 202", exchange.status, exchange)


@probes.add
async def accepted_notification_has_no_body(ctx: Ctx) -> None:
    exchange = await ctx.target.notify("notifications/initialized")
    check(exchange.status == 202 and not exchange.content, "no body", repr(exchange.content), exchange)


@probes.add
async def ping_is_answered(ctx: Ctx) -> None:
    reply = await ctx.target.ask("ping")
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)


async def _initialize(ctx: Ctx, version: str) -> McpReply:
    check(ctx.target.hello.result is not None, "initialize is answered", ctx.target.hello.response)
    fresh = await ctx.target.fresh(version)
    params: dict[str, Any] = {**HELLO, "protocolVersion": version}
    return await fresh.ask("initialize", params, headers={"MCP-Protocol-Version": ""})
