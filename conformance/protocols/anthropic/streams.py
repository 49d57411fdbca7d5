"""Probes of streams: the order of events, their names, and the blocks that they build."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.anthropic.target import Ctx, MessagesTarget, stream_plainly
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[MessagesTarget]()


@probes.add
async def stream_is_answered(ctx: Ctx) -> None:
    await ctx.subject(stream_plainly)


@probes.add
async def frames_have_the_type_of_their_event(ctx: Ctx) -> None:
    answer = await ctx.once(stream_plainly)
    for name, event in zip(answer.names, answer.events, strict=True):
        check(name == dig(event, "type"), "an event line with the type", name, answer.exchange)


@probes.add
async def stream_starts_and_stops(ctx: Ctx) -> None:
    answer = await ctx.once(stream_plainly)
    kinds = [kind for each in answer.events if (kind := dig(each, "type")) != "ping"]
    ends = [kinds[0], kinds[-1]] if kinds else []
    check(ends == ["message_start", "message_stop"], "message_start first, message_stop last", ends, answer.exchange)


@probes.add
async def reason_precedes_the_stop(ctx: Ctx) -> None:
    answer = await ctx.once(stream_plainly)
    reasons = [dig(each, "delta", "stop_reason") for each in answer.all("message_delta")]
    check(reasons[-1:] == ["end_turn"], "a message_delta with the stop_reason", reasons, answer.exchange)


@probes.add
async def blocks_are_numbered_and_closed(ctx: Ctx) -> None:
    answer = await ctx.once(stream_plainly)
    count, is_open = 0, False
    for event in answer.events:
        kind, index = str(dig(event, "type")), dig(event, "index")
        if kind == "content_block_start":
            check(index == count and not is_open, f"block {count} after the end of the others", event, answer.exchange)
            is_open = True
        elif kind in ("content_block_delta", "content_block_stop"):
            check(index == count and is_open, f"the index {count} of the open block", event, answer.exchange)
            is_open = kind == "content_block_delta"
            count += 0 if is_open else 1
    check(not is_open, "the end of the last block", answer.events[-1], answer.exchange)


@probes.add
async def text_arrives_in_deltas(ctx: Ctx) -> None:
    answer = await ctx.once(stream_plainly)
    deltas = [dig(each, "delta", "text") for each in answer.all("content_block_delta")]
    check(any(isinstance(each, str) and each for each in deltas), "a text_delta", deltas, answer.exchange)
