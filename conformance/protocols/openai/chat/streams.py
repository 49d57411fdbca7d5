"""Probes that test streamed chat completions."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.chat.scenes import (
    ChatStream,
    answer_twice,
    check_sum,
    stream_plainly,
)
from babelgate.conformance.protocols.openai.target import DONE, Ctx, OpenAiTarget
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[OpenAiTarget]()


@probes.add
async def chat_is_streamed(ctx: Ctx) -> None:
    await ctx.subject(stream_plainly)


@probes.add
async def stream_ends_with_its_mark(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    last = done.exchange.frames[-1].data
    check(last == DONE, f"{DONE} last, and no more than once", last, done.exchange)


@probes.add
async def stream_is_closed_by_the_server(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(done.is_whole, "a stream that ends, with no event left open", done.exchange.error, done.exchange)


@probes.add
async def chunk_is_data_alone(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    for frame in done.exchange.frames:
        check(not frame.event, "a frame without a type", frame.raw, done.exchange)


@probes.add
async def chunks_have_one_id(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    ids = {str(dig(chunk, "id")) for chunk in done.chunks}
    check(len(ids) == 1 and ids != {"None"}, "the same id in every chunk", sorted(ids), done.exchange)


@probes.add
async def chunks_have_one_time(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    times = {str(dig(chunk, "created")) for chunk in done.chunks}
    check(len(times) == 1 and times != {"None"}, "the same created in every chunk", sorted(times), done.exchange)


@probes.add
async def role_is_told_once(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    roles = [dig(delta, "role") for delta in done.deltas]
    set_roles = [each for each in roles if each is not None]
    check(
        set_roles == ["assistant"] and roles[0] == "assistant",
        "the role only in the first delta",
        roles,
        done.exchange,
    )


@probes.add
async def deltas_make_up_a_text(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(bool(done.text), "deltas with content", done.deltas, done.exchange)


@probes.add
async def deltas_make_up_the_whole_text(ctx: Ctx) -> None:
    """Check that the deltas of a stream add up to the text of an answer that was not streamed. No chunk contains the
    whole text."""
    text = await ctx.once(answer_twice)
    done = await ctx.once(stream_plainly)
    check(done.text == text, f"deltas that add up to {text!r}", done.text, done.exchange)


@probes.add
async def reason_comes_once_and_last(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    reasons = [dig(choice, "finish_reason") for choice in done.choices]
    is_last = bool(reasons) and reasons[-1] == "stop" and not any(reasons[:-1])
    check(is_last, "finish_reason stop only in the last choice", reasons, done.exchange)


@probes.add
async def choices_are_of_index_0(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    indices = {str(dig(choice, "index")) for choice in done.choices}
    check(indices == {"0"}, "choices of index 0", sorted(indices), done.exchange)


@probes.add
async def usage_comes_in_a_separate_chunk(ctx: Ctx) -> None:
    done: ChatStream = await ctx.once(stream_plainly, True)
    last = done.chunks[-1]
    check(dig(last, "choices") == [], "a last chunk without choices", last, done.exchange)
    usage = dig(last, "usage")
    check(as_object(usage) is not None, "the usage in the last chunk", last, done.exchange)
    check_sum(usage, done.exchange)


@probes.add
async def usage_is_null_before(ctx: Ctx) -> None:
    done: ChatStream = await ctx.once(stream_plainly, True)
    for chunk in done.chunks[:-1]:
        is_null = "usage" in (as_object(chunk) or {}) and dig(chunk, "usage") is None
        check(is_null, "usage: null in the chunks before the last", chunk, done.exchange)


@probes.add
async def usage_is_told_if_asked(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    with_usage: list[Any] = [chunk for chunk in done.chunks if dig(chunk, "choices") == [] or dig(chunk, "usage")]
    check(not with_usage, "no usage without include_usage", with_usage, done.exchange)
