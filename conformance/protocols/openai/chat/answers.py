"""Probes that test chat completions that are not streamed."""

import asyncio
import json
import time
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.chat.scenes import (
    answer_plainly,
    body_of,
    check_sum,
    complete,
    text_of,
    user,
)
from babelgate.conformance.protocols.openai.target import PARAMETERS, Ctx, OpenAiTarget, check_answered
from babelgate.conformance.samples import WORDS, check_repeated
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, as_object, dig, json_or_none

probes: Final = Probes[OpenAiTarget]()

_MAX_CLOCK_DIFFERENCE: Final = 3600
"""Maximum difference between the clocks of the server and this machine, in seconds. Chosen."""


@probes.add
async def chat_is_answered(ctx: Ctx) -> None:
    await ctx.subject(answer_plainly)


@probes.add
async def answer_has_one_choice(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    indices = [dig(each, "index") for each in as_list(dig(exchange.json, "choices"))]
    check(indices == [0], "one choice, of index 0", indices, exchange)


@probes.add
async def answer_has_text(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    check(bool(text_of(exchange)), "content with text", exchange.json, exchange)


@probes.add
async def answer_stops(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    reason = dig(exchange.json, "choices", 0, "finish_reason")
    check(reason == "stop", "the finish_reason stop", reason, exchange)


@probes.add
async def answers_have_unique_ids(ctx: Ctx) -> None:
    first, second = await ctx.once(answer_plainly), await complete(ctx, body_of(ctx))
    ids = [dig(each.json, "id") for each in (first, second)]
    check(ids[0] != ids[1] and all(ids), "two answers with two ids", ids, second)


@probes.add
async def created_is_in_seconds(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    created = dig(exchange.json, "created")
    is_now = isinstance(created, int) and abs(created - time.time()) < _MAX_CLOCK_DIFFERENCE
    check(is_now, "the current time in Unix seconds", created, exchange)


@probes.add
async def usage_is_told(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    check(as_object(dig(exchange.json, "usage")) is not None, "usage", exchange.json, exchange)


@probes.add
async def total_is_the_sum(ctx: Ctx) -> None:
    exchange = await ctx.once(answer_plainly)
    usage = dig(exchange.json, "usage")
    if usage is not None:
        check_sum(usage, exchange)


@probes.add
async def answers_at_once_are_separate_answers(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    found = await asyncio.gather(*(complete(ctx, body_of(ctx)) for _ in range(5)))
    ids = {str(dig(each.json, "id")) for each in found}
    check(len(ids) == len(found), "five answers with five ids", sorted(ids), found[0])


@probes.add
async def system_message_is_taken(ctx: Ctx) -> None:
    await _check_history(ctx, {"role": "system", "content": "Be brief."})


@probes.add
async def developer_message_is_taken(ctx: Ctx) -> None:
    await _check_history(ctx, {"role": "developer", "content": "Be brief."})


@probes.add
async def history_is_taken(ctx: Ctx) -> None:
    await _check_history(ctx, user("Hello"), {"role": "assistant", "content": "Hello. What is it?"})


@probes.add
async def history_may_have_calls(ctx: Ctx) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    await _check_history(
        ctx,
        user("What time is it?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        {"role": "assistant", "content": "It is noon."},
    )


@probes.add
async def content_may_be_parts(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    body = body_of(ctx)
    text = body["messages"][0]["content"]
    body["messages"] = [user([{"type": "text", "text": text}, {"type": "text", "text": "Thank you."}])]
    await complete(ctx, body)


@probes.add
async def text_beyond_ascii_is_taken(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    body = body_of(ctx)
    body["messages"] = [user(WORDS)]
    exchange = await complete(ctx, body)
    check_repeated(text_of(exchange), exchange)


@probes.add
async def options_may_be_null(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    names = ("temperature", "top_p", "n", "stop", "max_completion_tokens", "stream", "metadata")
    await complete(ctx, body_of(ctx, **dict.fromkeys(names)))


@probes.add
async def usual_options_are_taken(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    options: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 500, "n": 1, "seed": 7}
    await complete(ctx, body_of(ctx, **options, stop=["\n\n\n"], user="judge"))


@probes.add
async def metadata_is_taken(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    await complete(ctx, body_of(ctx, metadata={"run": "1"}))


@probes.add
async def several_choices_are_given_or_refused(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    exchange = await ctx.target.post(body_of(ctx, n=2))
    indices = sorted(str(dig(each, "index")) for each in as_list(dig(exchange.json, "choices")))
    is_refused = exchange.status == 400
    check(is_refused or indices == ["0", "1"], "two choices, or a refusal with 400", indices, exchange)


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
    named = {"name": "weather", "schema": PARAMETERS, "strict": True}
    body = body_of(ctx, "data", response_format={"type": "json_schema", "json_schema": named})
    exchange = await ctx.target.post(body)
    check_answered(exchange)
    text = text_of(exchange)
    value = json_or_none(text)
    is_kept = isinstance(dig(value, "city"), str) and set(as_object(value) or {}) == {"city"}
    check(is_kept, f"content that matches the schema {json.dumps(PARAMETERS)}", text, exchange)


async def _check_history(ctx: Ctx, *before: Any) -> None:
    """Check that the model answers a chat that has the messages `before` in front of the user's message. Raises Failed
    if it does not."""
    await ctx.once(answer_plainly)
    body = body_of(ctx)
    body["messages"] = [*before, *body["messages"]]
    await complete(ctx, body)
