"""Probes that test how A2A 1.0 agents treat versions and extensions, and their headers."""

from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.scenes import check_refusal, each_binding, plain, require_http
from babelgate.conformance.protocols.a2a.v1.opening import VERSION
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[A2aTarget]()


@probes.add
@each_binding
async def unsupported_version_is_refused(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    for version in ("9.9", "2.0"):
        reply = await agent[binding].call("GetTask", {"id": str(uuid4())}, headers={"A2A-Version": version})
        check_refusal(reply, "VERSION_NOT_SUPPORTED")


@probes.add
@each_binding
async def missing_version_is_the_first_one(ctx: Ctx, binding: str) -> None:
    require_http(binding, "names the version in its service, lf.a2a.v1.A2AService")
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    reply = await agent[binding].call("GetTask", {"id": str(uuid4())}, headers={"A2A-Version": ""})
    check_refusal(reply, "VERSION_NOT_SUPPORTED")


@probes.add
@each_binding
async def patch_of_the_version_is_ignored(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    reply = await agent[binding].call("GetTask", {"id": str(uuid4())}, headers={"A2A-Version": "1.0.7"})
    check_refusal(reply)
    check(reply.reason != "VERSION_NOT_SUPPORTED", "no matter of the version", reply.reason, reply.exchange)


@probes.add
async def version_may_be_in_the_query(ctx: Ctx) -> None:
    await ctx.once(plain, "HTTP+JSON")
    agent = await agent_for(ctx, "plain")
    url = f"{agent['HTTP+JSON'].url}/tasks/{uuid4()}?A2A-Version=1.0"
    headers = {name: value for name, value in VERSION.headers(agent.card).items() if name != "A2A-Version"}
    exchange = await ctx.wire.request("GET", url, sends=None, receives={4: "RestError"}, headers=headers)
    check(exchange.status == 404, "status 404 for an unknown task", exchange.status, exchange)


@probes.add
@each_binding
async def unknown_extensions_are_ignored(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    headers = {"A2A-Extensions": "https://example.com/babelgate/unheard-of"}
    declared = as_list(dig(agent.card, "capabilities", "extensions"))
    if uris := [str(dig(each, "uri")) for each in declared]:
        headers["A2A-Extensions"] += "," + ",".join(uris)
    params = {"message": message(ctx.triggers["plain"].text)}
    reply = await agent[binding].call("SendMessage", params, headers=headers)
    check(not reply.reason, "success", reply.reason, reply.exchange)


@probes.add
@each_binding
async def required_extension_is_required(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    params = {"message": message(ctx.triggers["plain"].text)}
    reply = await ctx.target[binding].call("SendMessage", params, headers={"A2A-Extensions": ""})
    check_refusal(reply, "EXTENSION_SUPPORT_REQUIRED")


@probes.add
@each_binding
async def undeclared_streaming_is_refused(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    params = {"message": message(ctx.triggers["plain"].text)}
    async with ctx.target[binding].stream("SendStreamingMessage", params) as stream:
        if stream.exchange.is_stream:
            await stream.next()
        check_refusal(stream.reply, "UNSUPPORTED_OPERATION")
