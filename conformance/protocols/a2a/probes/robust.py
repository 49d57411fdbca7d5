"""Probes that test whether A2A agents survive hostile requests, such as deeply nested JSON."""

from typing import Any, Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.scenes import check_refusal, each_binding, plain
from babelgate.conformance.verdict import check

probes: Final = Probes[A2aTarget]()


@probes.add
@each_binding
async def errors_show_nothing_of_the_inside(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    wrong: dict[str, Any] = {"message": {"messageId": 1, "role": {"a": []}, "parts": "no", "contextId": [1]}}
    empty: dict[str, Any] = {}
    # A message of gRPC cannot hold values of a wrong type.
    for params in ({"message": None}, empty) if binding == "GRPC" else (wrong, {"message": None}, empty):
        reply = await agent[binding].call("SendMessage", params, is_valid=False)
        found = find_leak(reply.exchange.content.decode(errors="replace"))
        check(not found, "an error without a stack trace", found, reply.exchange)


@probes.add
@each_binding
async def wrong_types_are_refused_and_not_fatal(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    wrong: dict[str, Any] = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": "no parts"}}
    reply = await agent[binding].call("SendMessage", wrong, is_valid=False)
    is_right = bool(reply.reason) and reply.reason not in ("INTERNAL", "HTTP 500")
    check(is_right, "a client error", reply.reason_or_result, reply.exchange)


@probes.add
@each_binding
async def strange_ids_are_not_found(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    ids = ["' OR 1=1 --", "a" * 5000, "\u202e\U0001f600", "%00"]
    if binding != "HTTP+JSON":  # In a URL these ids would be paths to other resources.
        ids += ["..", "../../../../etc/passwd", "..%2f..%2fetc%2fpasswd"]
    for id in ids:
        reply = await agent[binding].call("GetTask", {"id": id})
        check_refusal(reply)
        check((reply.exchange.status or 0) < 500, "no server error", reply.exchange.status, reply.exchange)
        found = find_leak(reply.exchange.content.decode(errors="replace"))
        check(not found, "no internals", found, reply.exchange)


@probes.add
@each_binding
async def deep_json_kills_nobody(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    depth = 900  # Below the depth at which the check's own JSON encoder fails.
    deep: object = 1
    for _ in range(depth):
        deep = [deep]
    params = {"message": message("deep", metadata={"deep": deep})}
    reply = await agent[binding].call("SendMessage", params, is_valid=False)
    is_right = reply.reason != "INTERNAL" and reply.exchange.status != 500
    check(is_right, "an answer without a server error", reply.reason_or_result, reply.exchange)
    after = await agent[binding].call("SendMessage", {"message": message(ctx.triggers["plain"].text)})
    check(not after.reason, "the server continues to answer", after.reason, after.exchange)
