"""Probes that test responses that are not streamed."""

import asyncio
import json
import time
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.responses.scenes import (
    TOOL,
    answer_plainly,
    body_of,
    message,
    messages_of,
    respond,
    text_of,
)
from babelgate.conformance.protocols.openai.target import PARAMETERS, Ctx, OpenAiTarget, check_answered
from babelgate.conformance.samples import WORDS, check_repeated
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, as_object, dig, json_or_none

probes: Final = Probes[OpenAiTarget]()

_MAX_CLOCK_DIFFERENCE: Final = 3600
"""Maximum difference between the clocks of the server and this machine, in seconds. Chosen."""
_PIXEL: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@probes.add
async def request_is_answered(ctx: Ctx) -> None:
    await ctx.subject(answer_plainly)


@probes.add
async def response_is_completed(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    status = dig(exchange.json, "status")
    check(status == "completed", "the status completed", status, exchange)


@probes.add
async def output_has_text(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    check(bool(text_of(exchange.json)), "a message with output_text", dig(exchange.json, "output"), exchange)


@probes.add
async def output_is_the_assistants(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    roles = {str(dig(each, "role")) for each in messages_of(exchange.json)}
    check(roles == {"assistant"}, "messages of the assistant", sorted(roles), exchange)


@probes.add
async def items_are_completed(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    statuses = {str(dig(each, "status")) for each in messages_of(exchange.json)}
    check(statuses == {"completed"}, "messages of status completed", sorted(statuses), exchange)


@probes.add
async def responses_have_unique_ids(ctx: Ctx) -> None:
    first, second = await ctx.once(answer_plainly), await respond(ctx, body_of(ctx))
    ids = [dig(each.json, "id") for each in (first, second)]
    check(ids[0] != ids[1], "two responses with two ids", ids, second)


@probes.add
async def items_have_unique_ids(ctx: Ctx) -> None:
    first, second = await ctx.once(answer_plainly), await respond(ctx, body_of(ctx))
    ids = [dig(item, "id") for each in (first, second) for item in as_list(dig(each.json, "output"))]
    check(bool(ids) and len(ids) == len(set(map(str, ids))), "a unique id for each item", ids, second)


@probes.add
async def created_at_is_in_seconds(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    created = dig(exchange.json, "created_at")
    is_now = isinstance(created, int | float) and abs(created - time.time()) < _MAX_CLOCK_DIFFERENCE
    check(is_now, "the current time in Unix seconds", created, exchange)


@probes.add
async def completed_response_tells_when(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    created, completed = dig(exchange.json, "created_at"), dig(exchange.json, "completed_at")
    is_right = isinstance(created, int | float) and isinstance(completed, int | float) and completed >= int(created)
    check(is_right, "a completed_at that is not before created_at", [created, completed], exchange)


@probes.add
async def completed_response_has_no_error(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    for name in ("error", "incomplete_details"):
        check(dig(exchange.json, name) is None, f"{name} is null", dig(exchange.json, name), exchange)


@probes.add
async def total_is_the_sum(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    usage = dig(exchange.json, "usage")
    parts = [dig(usage, name) for name in ("input_tokens", "output_tokens")]
    is_sum = all(isinstance(each, int) for each in parts) and sum(parts) == dig(usage, "total_tokens")
    check(is_sum, "total_tokens = input_tokens + output_tokens", usage, exchange)


@probes.add
async def responses_at_once_are_separate_responses(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    found = await asyncio.gather(*(respond(ctx, body_of(ctx)) for _ in range(5)))
    ids = {str(dig(each.json, "id")) for each in found}
    check(len(ids) == len(found), "five responses with five ids", sorted(ids), found[0])


@probes.add
async def input_may_be_items(ctx: Ctx) -> None:
    await _check_accepted(ctx, message("user", [{"type": "input_text", "text": "Hello"}]))


@probes.add
async def message_needs_no_type(ctx: Ctx) -> None:
    await _check_accepted(ctx, {"role": "user", "content": "Hello"})


@probes.add
async def system_message_is_taken(ctx: Ctx) -> None:
    await _check_accepted(ctx, message("system", "Be brief."), message("user", "Hello"))


@probes.add
async def developer_message_is_taken(ctx: Ctx) -> None:
    await _check_accepted(ctx, message("developer", "Be brief."), message("user", "Hello"))


@probes.add
async def history_is_taken(ctx: Ctx) -> None:
    spoken: list[dict[str, Any]] = [{"type": "output_text", "text": "Hello. What is it?", "annotations": []}]
    await _check_accepted(
        ctx,
        message("user", "Hello"),
        {**message("assistant", spoken), "id": "msg_1", "status": "completed"},
        message("user", "Hello"),
    )


@probes.add
async def what_the_assistant_said_may_be_text(ctx: Ctx) -> None:
    await _check_accepted(ctx, message("user", "Hello"), message("assistant", "Yes?"), message("user", "Hello"))


@probes.add
async def image_is_taken(ctx: Ctx) -> None:
    parts = [{"type": "input_text", "text": "Hello"}, {"type": "input_image", "image_url": _PIXEL, "detail": "auto"}]
    await _check_accepted(ctx, message("user", parts))


@probes.add
async def text_beyond_ascii_is_taken(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await respond(ctx, body_of(ctx, input=WORDS))
    check_repeated(text_of(exchange.json), exchange)


@probes.add
async def options_may_be_null(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    names = ("instructions", "temperature", "max_output_tokens", "previous_response_id", "metadata", "stream")
    await respond(ctx, body_of(ctx, **dict.fromkeys(names)))


@probes.add
async def settings_are_told(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    settings: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 500, "instructions": "Be brief."}
    exchange = await respond(ctx, body_of(ctx, **settings))
    for name, value in settings.items():
        actual = dig(exchange.json, name)
        check(actual == value, f"{name} as it was sent", actual, exchange)


@probes.add
async def metadata_are_told(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await respond(ctx, body_of(ctx, metadata={"run": "1"}))
    actual = dig(exchange.json, "metadata")
    check(actual == {"run": "1"}, "metadata as they were sent", actual, exchange)


@probes.add
async def tools_are_told(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await respond(ctx, body_of(ctx, tools=[TOOL], tool_choice="auto"))
    names = [dig(each, "name") for each in as_list(dig(exchange.json, "tools"))]
    check(names == [TOOL["name"]], "the tool that was offered", dig(exchange.json, "tools"), exchange)
    check(dig(exchange.json, "tool_choice") == "auto", "the tool_choice auto", exchange.json, exchange)


@probes.add
async def no_stream_unless_asked(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, stream=False), headers={"Accept": "text/event-stream"})
    check(exchange.status == 200 and not exchange.is_stream, "an answer as JSON", exchange.media_type, exchange)


@probes.add
async def answers_are_called_json(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    check(exchange.media_type == "application/json", "application/json", exchange.media_type, exchange)


@probes.add
async def schema_is_kept(ctx: Ctx) -> None:
    named = {"type": "json_schema", "name": "weather", "schema": PARAMETERS, "strict": True}
    exchange = await ctx.target.post(body_of(ctx, "data", text={"format": named}))
    check_answered(exchange)
    text = text_of(exchange.json)
    value = json_or_none(text)
    is_kept = isinstance(dig(value, "city"), str) and set(as_object(value) or {}) == {"city"}
    check(is_kept, f"text that matches the schema {json.dumps(PARAMETERS)}", text, exchange)


async def _check_accepted(ctx: Ctx, *items: Any) -> None:
    await ctx.once(answer_plainly)
    exchange = await respond(ctx, body_of(ctx, input=list(items)))
    status = dig(exchange.json, "status")
    check(status == "completed", "the status completed", status, exchange)
