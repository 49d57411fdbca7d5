"""Probes of invalid requests, of failures of the agent, and of streams that are resumed."""

from typing import Any, Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.vercel_ui.scenes import answer_plainly, fail
from babelgate.conformance.protocols.vercel_ui.target import (
    ChatTarget,
    Ctx,
    agent_for,
    has_type,
    new_id,
    refused,
    request,
    user,
)
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[ChatTarget]()

_DEPTH: Final = 20_000
"""Nesting depth of a JSON body that overflows the stack of a recursive parser."""


@probes.add
async def failure_is_an_error(ctx: Ctx) -> None:
    answer = await ctx.subject(fail)
    check_shown(not (answer.text and answer.reason == "stop"), "fail", "answered without a failure")
    is_error = bool(answer.all("error")) or (answer.exchange.status or 0) >= 400
    check(is_error, "an error chunk, or an error status", answer.chunks, answer.exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    headers = {"Content-Type": "application/json"}
    refused(await ctx.target.refuse(content=b'{"messages": ', headers=headers))


@probes.add
async def messages_are_required(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    refused(await ctx.target.refuse({"id": new_id(), "trigger": "submit-message"}))


@probes.add
async def unknown_roles_are_refused(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    refused(await ctx.target.refuse(request({**user("Hello"), "role": "tool"})))


@probes.add
async def result_of_an_unknown_call_does_not_loop(ctx: Ctx) -> None:
    """Send the result of a tool call that the server never made. The response must be an error, or have a `start-step`
    or `error` chunk. Otherwise the page repeats its request without end."""
    await ctx.once(answer_plainly)
    call: dict[str, Any] = {"type": "tool-no_such_tool", "toolCallId": new_id(), "input": {}}
    call |= {"state": "output-available", "output": 1}
    message: dict[str, Any] = {"id": new_id(), "role": "assistant", "parts": [{"type": "step-start"}, call]}
    exchange = await ctx.target.refuse(request(user("Hello"), message, messageId=message["id"]))
    frames = exchange.content.replace(b" ", b"")
    is_ended = (exchange.status or 0) >= 400 or b'"type":"start-step"' in frames or b'"type":"error"' in frames
    check(is_ended, "a refusal, or a stream with a step or an error", exchange.status, exchange)


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    wrong: Any = {"id": ["x"], "messages": {"a": 1}}
    headers = {"Content-Type": "application/json"}
    await ctx.once(answer_plainly)
    for exchange in (await ctx.target.refuse(wrong), await ctx.target.refuse(content=b"[[[[", headers=headers)):
        found = find_leak(exchange.content.decode(errors="replace"))
        check(not found, "an error without a stack trace", found, exchange)


@probes.add
async def deep_json_is_no_server_error(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    content = b'{"messages": ' + b"[" * _DEPTH + b"]" * _DEPTH + b"}"
    exchange = await ctx.target.refuse(content=content, headers={"Content-Type": "application/json"})
    check((exchange.status or 500) < 500, "no server error", exchange.status, exchange)


@probes.add
async def idle_chat_has_no_stream(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    async with ctx.target.resume(str(answer.body["id"])) as stream:
        exchange: Exchange = stream.exchange
    check(exchange.status == 204, "204 for a chat in which nothing runs", exchange.status, exchange)


@probes.add
async def active_stream_is_repeated_from_its_start(ctx: Ctx) -> None:
    target, text = agent_for(ctx, "long")
    body = request(user(text))
    async with target.stream(body) as live:
        first = await live.next()
        while first is not None and not has_type(first.json_or_none, "start"):
            first = await live.next()
        async with target.resume(str(body["id"])) as again:
            check_shown(again.exchange.status != 204, "long", "was done at once")
            check(again.exchange.status == 200, "the stream of the active run", again.exchange.status, again.exchange)
            frame = await again.next()
            chunk = None if frame is None else frame.json_or_none
            is_same = has_type(chunk, "start") and first is not None
            check(is_same, "start as the first chunk", chunk, again.exchange)
            ids = dig(first.json_or_none if first else None, "messageId"), dig(chunk, "messageId")
            check(ids[0] == ids[1], "the same messageId", ids, again.exchange)
