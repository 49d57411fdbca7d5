"""Probes of the response to one message: its SSE frames, its chunks, and their order."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.vercel_ui.scenes import ChatAnswer, answer_again, answer_plainly
from babelgate.conformance.protocols.vercel_ui.target import DONE, HEADER, ChatTarget, Ctx, has_type
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[ChatTarget]()

_KNOWN: Final = {
    "start": {"messageId", "messageMetadata"},
    "finish": {"finishReason", "messageMetadata"},
    "start-step": set[str](),
    "finish-step": set[str](),
    "text-start": {"id", "providerMetadata"},
    "text-delta": {"id", "delta", "providerMetadata"},
    "text-end": {"id", "providerMetadata"},
    "message-metadata": {"messageMetadata"},
}
"""Members of each chunk type in a text answer. `ai` 5.0.200 and 6.0.200 reject all other members."""


@probes.add
async def message_is_answered_with_a_stream(ctx: Ctx) -> None:
    await ctx.subject(answer_plainly)


@probes.add
async def stream_ends_with_its_mark(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    last = answer.exchange.frames[-1].data
    check(last == DONE, f"{DONE} last", last, answer.exchange)


@probes.add
async def stream_is_closed_by_the_server(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    check(answer.is_whole, "a stream that ends, with no frame left open", answer.exchange.error, answer.exchange)


@probes.add
async def stream_has_the_header_of_its_version(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    value = answer.exchange.header(HEADER)
    check(value == "v1", f"the header {HEADER}: v1", value, answer.exchange)


@probes.add
async def stream_starts_with_start(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    kinds = [dig(chunk, "type") for chunk in answer.chunks]
    is_first = kinds[0] == "start" and kinds.count("start") == 1
    check(is_first, "start as the first chunk, once", kinds, answer.exchange)


@probes.add
async def start_has_the_id_of_the_message(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    check(isinstance(answer.message_id, str), "messageId in start", answer.message_id, answer.exchange)


@probes.add
async def messages_have_unique_ids(ctx: Ctx) -> None:
    one, other = await ctx.once(answer_plainly), await ctx.once(answer_again)
    ids = [one.message_id, other.message_id]
    check(ids[0] is None or ids[0] != ids[1], "another messageId in each answer", ids, other.exchange)


@probes.add
async def stream_finishes_once_and_last(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    kinds = [dig(chunk, "type") for chunk in answer.chunks]
    is_last = kinds[-1] == "finish" and kinds.count("finish") == 1
    check(is_last, "finish as the last chunk, once", kinds, answer.exchange)


@probes.add
async def plain_answer_stops(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    check(answer.reason == "stop", "the finishReason stop", answer.reason, answer.exchange)


@probes.add
async def chunks_have_only_known_members(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    for chunk in answer.chunks:
        names = _KNOWN.get(str(dig(chunk, "type")))
        more = sorted(chunk.keys() - names - {"type"}) if names is not None and isinstance(chunk, dict) else []  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]
        check(not more, "no member that older patch releases reject", more, answer.exchange)


@probes.add
async def answers_at_once_are_separate(ctx: Ctx) -> None:
    answers = await asyncio.gather(answer_again(ctx), answer_again(ctx))
    ids = [each.message_id for each in answers]
    check(ids[0] is None or ids[0] != ids[1], "a separate message for each chat", ids, answers[1].exchange)


@probes.add
async def answer_has_text(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    check(bool(answer.text), "text-delta chunks with text", answer.text, answer.exchange)


def _parts(answer: ChatAnswer) -> Iterator[tuple[Any, bool]]:
    """Yield each chunk of a text or reasoning part, with True if the part is open before this chunk."""
    is_open: set[Any] = set()
    for chunk in answer.chunks:
        kind, _, change = str(dig(chunk, "type")).partition("-")
        if kind not in ("text", "reasoning") or change not in ("start", "delta", "end"):
            continue
        key = kind, dig(chunk, "id")
        yield chunk, key in is_open
        if change == "start":
            is_open.add(key)
        elif change == "end":
            is_open.discard(key)


@probes.add
async def deltas_belong_to_an_open_part(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    for chunk, is_open in _parts(answer):
        is_start = has_type(chunk, "text-start", "reasoning-start")
        check(is_open != is_start, "start before, and end after, the deltas of a part", chunk, answer.exchange)


@probes.add
async def parts_are_ended(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    starts = [dig(each, "id") for each in answer.all("text-start", "reasoning-start")]
    ends = [dig(each, "id") for each in answer.all("text-end", "reasoning-end")]
    check(sorted(map(str, starts)) == sorted(map(str, ends)), "an end for each start", ends, answer.exchange)


@probes.add
async def steps_contain_the_text(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    is_open = False
    for chunk in answer.chunks:
        if has_type(chunk, "start-step", "finish-step"):
            check(is_open == has_type(chunk, "finish-step"), "steps that alternate", chunk, answer.exchange)
            is_open = not is_open
        elif has_type(chunk, "text-start"):
            check(is_open, "text within a step", chunk, answer.exchange)
    check(not is_open, "finish-step for each start-step", None, answer.exchange)
