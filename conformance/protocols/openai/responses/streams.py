"""Probes that test streamed responses."""

from itertools import pairwise
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.openai.responses.scenes import (
    TERMINAL,
    ResponseStream,
    has_done_at_end,
    stream_plainly,
    text_of,
)
from babelgate.conformance.protocols.openai.target import DONE, Ctx, OpenAiTarget
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[OpenAiTarget]()


@probes.add
async def response_is_streamed(ctx: Ctx) -> None:
    await ctx.subject(stream_plainly)


@probes.add
async def stream_ends_with_its_mark(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(has_done_at_end(done.exchange), f"{DONE} last, once", done.exchange.frames[-1].data, done.exchange)


@probes.add
async def stream_is_closed_by_the_server(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(done.is_whole, "a stream that ends, with no event left open", done.exchange.error, done.exchange)


@probes.add
async def event_line_is_the_type(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    for frame in done.exchange.frames:
        if frame.data != DONE:
            kind = dig(frame.json, "type")
            check(frame.event == kind, f"event: {kind}", frame.event, done.exchange)


@probes.add
async def events_have_no_ids(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    ids = [frame.id for frame in done.exchange.frames if frame.id]
    check(not ids, "no id lines", ids, done.exchange)


@probes.add
async def stream_begins_with_the_created_response(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(done.types[0] == "response.created", "response.created first", done.types, done.exchange)


@probes.add
async def response_is_in_progress_before_it_speaks(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    types = [each for each in done.types if each not in ("response.created", "response.queued")]
    check(types[:1] == ["response.in_progress"], "response.in_progress before any item", done.types, done.exchange)


@probes.add
async def created_response_is_empty(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    first = dig(done.events[0], "response")
    is_new = dig(first, "status") in ("in_progress", "queued") and dig(first, "output") == []
    check(is_new, "a response in progress without output", first, done.exchange)


@probes.add
async def numbers_grow(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    numbers = [dig(event, "sequence_number") for event in done.events]
    is_right = all(isinstance(each, int) for each in numbers)
    is_right = is_right and all(a < b for a, b in pairwise(numbers))
    check(is_right, "an increasing sequence_number", numbers, done.exchange)


@probes.add
async def stream_ends_with_the_response(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(done.types[-1] == "response.completed", "response.completed last", done.types, done.exchange)
    check(dig(done.last, "status") == "completed", "the status completed in the last event", done.last, done.exchange)


@probes.add
async def stream_has_one_end(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    ends = done.of(*TERMINAL)
    check(len(ends) == 1, "one event that ends the response", done.types, done.exchange)


@probes.add
async def events_are_of_one_response(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    ids = {str(dig(event, "response", "id")) for event in done.events if dig(event, "response") is not None}
    check(len(ids) == 1, "one id in all events", sorted(ids), done.exchange)


@probes.add
async def item_is_added_before_anything_of_it(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    _check_open(done, "response.output_item.added", "response.output_item.done", ("output_index",))


@probes.add
async def part_is_added_before_anything_of_it(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    texts = done.of("response.output_text.delta", "response.output_text.done")
    check(bool(texts), "events of a text", done.types, done.exchange)
    _check_open(done, "response.content_part.added", "response.content_part.done", ("output_index", "content_index"))


@probes.add
async def events_name_their_item(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    added = {dig(each, "output_index"): dig(each, "item", "id") for each in done.of("response.output_item.added")}
    check(bool(added), "response.output_item.added", done.types, done.exchange)
    for event in done.events:
        if "item_id" in event:
            want = added.get(dig(event, "output_index"))
            check(dig(event, "item_id") == want, f"the item_id {want}", event, done.exchange)


@probes.add
async def no_number_is_left_out(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    numbers = [dig(event, "sequence_number") for event in done.events]
    check(all(isinstance(each, int) for each in numbers), "sequence numbers", numbers, done.exchange)
    check(
        numbers == list(range(numbers[0], numbers[0] + len(numbers))),
        "sequence numbers without gaps",
        numbers,
        done.exchange,
    )


@probes.add
async def text_is_that_of_its_deltas(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    joined_deltas = "".join(str(dig(each, "delta")) for each in done.of("response.output_text.delta"))
    text = "".join(str(dig(each, "text")) for each in done.of("response.output_text.done"))
    check(
        bool(joined_deltas) and joined_deltas == text,
        "deltas that add up to the text",
        {"deltas": joined_deltas, "done": text},
        done.exchange,
    )


@probes.add
async def part_is_that_of_its_text(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    texts = [dig(each, "text") for each in done.of("response.output_text.done")]
    parts = [dig(each, "part", "text") for each in done.of("response.content_part.done")]
    check(bool(texts) and texts == parts, "parts with the streamed texts", parts, done.exchange)


@probes.add
async def item_is_that_of_its_parts(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    parts = [dig(each, "part", "text") for each in done.of("response.content_part.done")]
    items = [dig(each, "item") for each in done.of("response.output_item.done")]
    found = [dig(part, "text") for item in items for part in as_list(dig(item, "content"))]
    check(bool(parts) and found == parts, "items with the streamed parts", items, done.exchange)


@probes.add
async def output_is_that_of_its_items(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    items = [dig(each, "item") for each in done.of("response.output_item.done")]
    output = as_list(dig(done.last, "output"))
    check(bool(items) and output == items, "the items of the stream as the output", output, done.exchange)


@probes.add
async def streamed_response_has_text_and_usage(ctx: Ctx) -> None:
    done = await ctx.once(stream_plainly)
    check(bool(text_of(done.last)), "a message with output_text", done.last, done.exchange)
    check(dig(done.last, "usage", "total_tokens") is not None, "usage", dig(done.last, "usage"), done.exchange)


def _check_open(done: ResponseStream, begin: str, end: str, names: tuple[str, ...]) -> None:
    """Check the order of events for the items or parts of a stream: each has one event `begin` and one `end`, and all
    its others are in between. `names` are the members that identify it. Raises Failed if the order is wrong."""
    opened: set[Any] = set()
    closed: set[Any] = set()
    for event in done.events:
        kind, key = dig(event, "type"), tuple(str(dig(event, name)) for name in names)
        if kind == begin:
            check(key not in opened, f"{begin} once", event, done.exchange)
            opened.add(key)
        elif names[-1] in (event or {}):
            check(key in opened and key not in closed, f"{kind} between {begin} and {end}", done.types, done.exchange)
            if kind == end:
                closed.add(key)
    check(bool(opened) and opened == closed, f"{end} for each {begin}", done.types, done.exchange)
