"""Probes that test the tool calls of MCP servers."""

import asyncio
import json
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from jsonschema import Draft202012Validator, SchemaError, ValidationError

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.scenes import Called, call_of, call_plainly, call_tool, text_of
from babelgate.conformance.protocols.mcp.target import Ctx, McpTarget, request
from babelgate.conformance.samples import WORDS, check_repeated, decode_base64
from babelgate.conformance.verdict import BUSY, Failed, NotApplicable, Prerequisite, check, check_shown
from babelgate.conformance.wire.exchange import InvalidJson, as_list, as_object, dig, parse_json
from babelgate.conformance.wire.http import Unanswered

probes: Final = Probes[McpTarget]()

_QUIET_SECONDS: Final = 1.0
"""Seconds to wait for a response to a cancelled call, which should not arrive. Chosen."""


@probes.add
async def tool_is_called(ctx: Ctx) -> None:
    await ctx.subject(call_plainly)


@probes.add
async def result_has_content(ctx: Ctx) -> None:
    done = await ctx.once(call_plainly)
    content = as_list(dig(done.reply.result, "content"))
    check(bool(content), "content", done.reply.result, done.reply.exchange)


@probes.add
async def result_is_no_error(ctx: Ctx) -> None:
    done = await ctx.once(call_plainly)
    check(dig(done.reply.result, "isError") is not True, "no isError", done.reply.result, done.reply.exchange)


@probes.add
async def structured_content_keeps_its_schema(ctx: Ctx) -> None:
    done = await ctx.once(call_with_output_schema)
    value = dig(done.reply.result, "structuredContent")
    check(as_object(value) is not None, "a structuredContent", done.reply.result, done.reply.exchange)
    schema = dig(done.tool, "outputSchema")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise Prerequisite(f"a valid outputSchema: {error.message}", schema) from None
    try:
        Draft202012Validator(schema).validate(value)  # pyright: ignore[reportUnknownMemberType]
    except ValidationError as error:
        raise Failed(f"structuredContent that matches outputSchema: {error.message}", value) from None


@probes.add
async def structured_content_is_told_as_text(ctx: Ctx) -> None:
    done = await ctx.once(call_with_output_schema)
    value = dig(done.reply.result, "structuredContent")
    check(value is not None, "a structuredContent", done.reply.result, done.reply.exchange)
    texts = [_json_of(dig(each, "text")) for each in as_list(dig(done.reply.result, "content"))]
    check(value in texts, f"a text with {json.dumps(value)[:80]}", done.reply.result, done.reply.exchange)


@probes.add
async def text_beyond_ascii_is_taken(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    _, params = await call_of(ctx, "plain")
    texts = [name for name, value in params["arguments"].items() if value == ctx.triggers["plain"].text]
    if not texts:
        raise NotApplicable("the tool needs no text")
    reply = await ctx.target.ask("tools/call", {**params, "arguments": {**params["arguments"], texts[0]: WORDS}})
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)
    check(dig(reply.result, "isError") is not True, "no isError", reply.result, reply.exchange)
    check_repeated(text_of(reply.result), reply.exchange)


@probes.add
async def files_are_given_with_their_type(ctx: Ctx) -> None:
    done = await call_tool(ctx, "files")
    content = as_list(dig(done.reply.result, "content"))
    files = [each for each in content if dig(each, "type") in ("image", "audio", "resource", "resource_link")]
    check_shown(bool(files), "files", "returned no file")
    for each in files:
        held: Any = dig(each, "resource") if dig(each, "type") == "resource" else each
        kind = dig(held, "mimeType")
        check(isinstance(kind, str) and "/" in kind, "a mimeType", each, done.reply.exchange)
        encoded = dig(held, "blob") or dig(held, "data")
        if encoded is not None:
            check(decode_base64(encoded) is not None, "bytes in base64", each, done.reply.exchange)


@probes.add
async def calls_at_once_are_answered_each(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    done = await asyncio.gather(*(call_tool(ctx, "plain") for _ in range(5)))
    for each in done:
        actual = dig(each.reply.response, "id")
        check(actual == each.reply.id, f"the id {each.reply.id}", each.reply.response, each.reply.exchange)
        is_error = dig(each.reply.result, "isError")
        check(is_error is not True, "a result", each.reply.result, each.reply.exchange)


@probes.add
async def unknown_tool_is_no_success(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    reply = await ctx.target.ask("tools/call", {"name": "no-such-tool-here", "arguments": {}})
    is_failed = reply.error is not None or dig(reply.result, "isError") is True
    check(is_failed, "an error", reply.response, reply.exchange)


@probes.add
async def unknown_tool_is_a_protocol_error(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    reply = await ctx.target.ask("tools/call", {"name": "no-such-tool-here", "arguments": {}})
    check(reply.code == -32602, "the code -32602", reply.response, reply.exchange)


@probes.add
async def call_without_a_name_is_refused(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    reply = await ctx.target.ask("tools/call", {"arguments": {}}, is_valid=False)
    is_refused = reply.error is not None or (reply.exchange.status or 0) >= 400
    check(is_refused, "an error", reply.messages, reply.exchange)


@probes.add
async def arguments_are_checked(ctx: Ctx) -> None:
    done = await ctx.once(_call_with_wrong_type)
    is_failed = done.reply.error is not None or dig(done.reply.result, "isError") is True
    check(is_failed, "an error", done.reply.response, done.reply.exchange)


@probes.add
async def wrong_arguments_are_an_error_of_the_tool(ctx: Ctx) -> None:
    done = await ctx.once(_call_with_wrong_type)
    is_error = dig(done.reply.result, "isError") is True and bool(text_of(done.reply.result))
    check(is_error, "isError, and what is wrong", done.reply.response, done.reply.exchange)


@probes.add
async def failure_is_an_error_of_the_tool(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    done = await ctx.subject(_call_to_failure)
    check(dig(done.reply.result, "isError") is True, "isError", done.reply.response, done.reply.exchange)


@probes.add
async def failure_says_something(ctx: Ctx) -> None:
    done = await ctx.once(_call_to_failure)
    check(bool(text_of(done.reply.result)), "content with text", done.reply.result, done.reply.exchange)


@probes.add
async def failure_shows_no_code(ctx: Ctx) -> None:
    done = await ctx.once(_call_to_failure)
    found = find_leak(text_of(done.reply.result))
    check(not found, "an error without a stack trace", found, done.reply.exchange)


@probes.add
async def progress_is_told_with_its_token(ctx: Ctx) -> None:
    done = await ctx.once(_call_with_progress)
    check_shown(bool(done.reply.notifications("notifications/progress")), "steps", "sent no progress")
    tokens = {str(dig(each, "params", "progressToken")) for each in done.reply.notifications("notifications/progress")}
    check(tokens == {"judge-1"}, "progress with the token of the request", sorted(tokens), done.reply.exchange)


@probes.add
async def progress_grows(ctx: Ctx) -> None:
    done = await ctx.once(_call_with_progress)
    values = [dig(each, "params", "progress") for each in done.reply.notifications("notifications/progress")]
    check_shown(bool(values), "steps", "sent no progress")
    is_right = all(isinstance(each, int | float) for each in values) and values == sorted(set(values))
    check(is_right, "increasing progress", values, done.reply.exchange)


@probes.add
async def progress_is_over_with_the_response(ctx: Ctx) -> None:
    done = await ctx.once(_call_with_progress)
    methods = [dig(each, "method") for each in done.reply.messages]
    check(methods[-1:] == [None], "the response last", done.reply.messages, done.reply.exchange)


@probes.add
async def progress_is_told_if_asked(ctx: Ctx) -> None:
    done = await call_tool(ctx, "steps", reads_all=True)
    notifications = done.reply.notifications("notifications/progress")
    check(not notifications, "no progress without a progressToken", notifications, done.reply.exchange)


@probes.add
async def cancelled_call_is_not_answered(ctx: Ctx) -> None:
    _, params = await call_of(ctx, "long")
    await ctx.once(_stay_busy)
    body = request(f"judge-{uuid4().hex}", "tools/call", params)
    async with ctx.target.posted(body, schema="tools.call.request") as stream:
        exchange = await ctx.target.notify("notifications/cancelled", {"requestId": body["id"], "reason": "enough"})
        ctx.target.check_accepted(exchange)
        messages: list[Any] = []
        with suppress(Unanswered):
            while (frame := await stream.next(_QUIET_SECONDS)) is not None:
                messages.append(_json_of(frame.data))
    responses = [each for each in messages if each != "" and dig(each, "method") is None]
    check(not responses, "no response", responses, stream.exchange)


@probes.add
async def cancel_of_nothing_is_ignored(ctx: Ctx) -> None:
    await ctx.once(call_plainly)
    exchange = await ctx.target.notify("notifications/cancelled", {"requestId": "nobody-asked-this"})
    ctx.target.check_accepted(exchange)
    reply = await ctx.target.ask("ping")
    check(reply.result is not None, "a server that continues to answer", reply.response, reply.exchange)


async def _stay_busy(ctx: Ctx) -> None:
    """Call the tool of the trigger `long`, and cancel the call after BUSY seconds. Raises NotShown if the response
    arrives before."""
    _, params = await call_of(ctx, "long")
    body = request(f"judge-{uuid4().hex}", "tools/call", params)
    async with ctx.target.posted(body, schema="tools.call.request") as stream:
        with suppress(Unanswered):
            while (frame := await stream.next(BUSY)) is not None:
                is_response = bool(frame.data) and dig(_json_of(frame.data), "method") is None
                check_shown(not is_response, "long", f"was done within {BUSY:g} s")
        await ctx.target.notify("notifications/cancelled", {"requestId": body["id"], "reason": "enough"})


async def call_with_output_schema(ctx: Ctx) -> Called:
    done = await ctx.once(call_plainly)
    if as_object(dig(done.tool, "outputSchema")) is None:
        raise NotApplicable("the tool has no outputSchema")
    return done


async def _call_to_failure(ctx: Ctx) -> Called:
    done = await call_tool(ctx, "fail")
    check_shown(dig(done.reply.result, "isError") is True, "fail", "returned a result")
    return done


async def _call_with_wrong_type(ctx: Ctx) -> Called:
    """Call a tool with an object instead of a required text, and return the reply. Raises NotApplicable if the tool
    requires no text."""
    await ctx.once(call_plainly)
    tool, params = await call_of(ctx, "plain")
    needed = as_list(dig(tool, "inputSchema", "required"))
    wrong = next((name for name in needed if dig(tool, "inputSchema", "properties", name, "type") == "string"), None)
    if wrong is None:
        raise NotApplicable("the tool needs no text")
    arguments = {**params["arguments"], wrong: {"not": ["text"]}}
    reply = await ctx.target.ask("tools/call", {**params, "arguments": arguments})
    return Called(tool, arguments, reply)


async def _call_with_progress(ctx: Ctx) -> Called:
    tool, params = await call_of(ctx, "steps")
    meta = {"_meta": {"progressToken": "judge-1"}}
    reply = await ctx.target.ask("tools/call", {**params, **meta}, reads_all=True)
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)
    return Called(tool, params["arguments"], reply)


def _json_of(text: Any) -> Any:
    try:
        return parse_json(str(text))
    except InvalidJson:
        return text
