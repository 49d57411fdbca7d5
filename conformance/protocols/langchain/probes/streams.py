"""Probes that test streamed runs."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import (
    LangChainStream,
    long_run,
    run_in_background,
    stay_busy,
    stream_run,
)
from babelgate.conformance.protocols.langchain.server import (
    Ctx,
    LangChainTarget,
    Layout,
    is_refused,
    json_of,
    text_of,
    trigger_for,
    unknown_id,
)
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[LangChainTarget]()

_ALWAYS_SENT: Final = ("metadata", "error", "end", "feedback")
"""Names of events that a server may send in any stream mode."""


@probes.add
async def stream_is_an_event_stream(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(stream_run, layout, "values")
        kind = done.exchange.media_type
        expected = f"Content-Type text/event-stream ({layout.name})"
        check(kind == "text/event-stream", expected, kind, done.exchange)


@probes.add
async def stream_of_values_ends_with_the_state(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(stream_run, layout, "values")
        frames = done.of("values")
        check(bool(frames), f"events named values ({layout.name})", _names(done), done.exchange)
        thread = await ctx.target.thread(done.thread_id)
        there = ctx.target.answers(ctx.target.messages(thread.json))
        last = ctx.target.answers(as_list(dig(json_of(frames[-1]), "messages")))
        check(bool(last) and last == there, "the last of them has the state of the thread", last, done.exchange)


@probes.add
async def stream_of_messages_tells_what_is_said(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(stream_run, layout, layout.tuples)
        frames = [*done.of("messages"), *done.of("messages-tuple")]
        check(bool(frames), f"events named {layout.tuples} ({layout.name})", _names(done), done.exchange)
        thread = await ctx.target.thread(done.thread_id)
        full_text = "".join(ctx.target.answers(ctx.target.messages(thread.json)))
        streamed_text = "".join(text for frame in frames for text in _texts(json_of(frame)))
        check(
            bool(full_text) and streamed_text == full_text,
            f"the agent's text, {full_text!r}",
            streamed_text,
            done.exchange,
        )


@probes.add
async def stream_of_updates_tells_what_changed(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(stream_run, layout, "updates")
        frames = done.of("updates")
        check(bool(frames), f"events named updates ({layout.name})", _names(done), done.exchange)
        value = as_object(json_of(frames[-1]))
        check(bool(value), "an update by the name of its node", value, done.exchange)


@probes.add
async def stream_has_no_mode_that_was_not_asked_for(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(stream_run, layout, "updates")
        check(bool(done.of("updates")), f"events named updates ({layout.name})", _names(done), done.exchange)
        strange = [name for name in _names(done) if name.partition("|")[0] not in ("updates", *_ALWAYS_SENT)]
        check(not strange, "only events of the requested mode", strange, done.exchange)


@probes.add
async def stream_has_every_mode_that_was_asked_for(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        body = ctx.target.body(trigger_for(ctx, "plain"), stream_mode=["values", "updates"])
        thread_id = await ctx.target.new_thread()
        async with ctx.target.stream(layout, thread_id, body) as stream:
            frames = await stream.rest_of_it()
        names = {frame.event for frame in frames}
        check({"values", "updates"} <= names, f"events of both modes ({layout.name})", sorted(names), stream.exchange)


@probes.add
async def stream_ends_with_the_run(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.subject(stream_run, layout, "values")
        check(done.exchange.is_ended, f"the server ends the stream ({layout.name})", None, done.exchange)
        thread = await ctx.target.thread(done.thread_id)
        check(dig(thread.json, "status") == "idle", "the run has ended by then", thread.json, thread)


@probes.add
async def stream_of_a_failure_has_an_error(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(stream_run, layout, "values", "fail")
        check(bool(done.of("error")), f"an event named error ({layout.name})", _names(done), done.exchange)


@probes.add
async def run_at_work_can_be_joined(ctx: Ctx) -> None:
    """Check that the stream of a running run can be read by a second request, and that this stream ends after a
    cancel."""
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            path = layout.one(thread_id, run_id, "stream")
            async with ctx.target.listen("GET", path) as stream:
                _check_stream(stream.exchange, layout)
                await ctx.target.cancel(layout, thread_id, run_id)
                await stream.rest_of_it()
            check(stream.exchange.is_ended, "the stream ends with the run", None, stream.exchange)


@probes.add
async def run_that_ended_can_be_joined(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        path = layout.one(done.thread_id, done.run_id, "stream")
        async with ctx.target.listen("GET", path) as stream:
            _check_stream(stream.exchange, layout)
            await stream.rest_of_it()
        check(stream.exchange.is_ended, "the stream of an ended run ends", None, stream.exchange)


@probes.add
async def unknown_stream_mode_is_refused(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(stream_run, layout, "values")
        thread_id = await ctx.target.new_thread()
        body = ctx.target.body(trigger_for(ctx, "plain"), stream_mode="no-such-mode")
        path = layout.runs(thread_id, "stream")
        exchange = await ctx.target.ask("POST", path, ctx.target.at(layout, thread_id, body))
        check(exchange.status == 422, f"the status 422 ({layout.name})", exchange.status, exchange)


@probes.add
async def stream_of_an_unknown_thread_is_refused(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(stream_run, layout, "values")
        body = ctx.target.body(trigger_for(ctx, "plain"), stream_mode=["values"])
        async with ctx.target.stream(layout, unknown_id(), body) as stream:
            status = stream.exchange.status
        check(is_refused(stream.exchange), f"a stream that cannot begin is refused ({layout.name})", status)


@probes.add
async def reader_that_leaves_cancels(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        thread_id, run_id = await _hang_up(ctx, layout, "cancel")
        exchange = await ctx.target.run_to_end(layout, thread_id, run_id)
        expected = f"the run ends as interrupted ({layout.name})"
        check(dig(exchange.json, "status") == "interrupted", expected, exchange.json, exchange)


@probes.add
async def reader_that_leaves_changes_nothing(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        thread_id, run_id = await _hang_up(ctx, layout, "continue")
        # A server that cancels does so when it notices that the reader has disconnected, which cannot be observed. A
        # run on another thread gives it time.
        await ctx.target.create(layout, None, ctx.target.body(trigger_for(ctx, "plain")), "wait")
        exchange = await ctx.target.run(layout, thread_id, run_id)
        is_kept = dig(exchange.json, "status") in ("pending", "running")
        await ctx.target.cancel(layout, thread_id, run_id)
        check(is_kept, f"the run continues ({layout.name})", exchange.json, exchange)


@probes.add
async def reader_that_leaves_has_a_default(ctx: Ctx) -> None:
    """Check what happens to a run without `on_disconnect` when the reader of its stream disconnects. The Agent Protocol
    cancels the run, and LangGraph Platform continues it."""
    for layout in ctx.target.layouts:
        thread_id, run_id = await _hang_up(ctx, layout)
        if ctx.target.dialect.has_input:
            await ctx.target.create(layout, None, ctx.target.body(trigger_for(ctx, "plain")), "wait")
            exchange = await ctx.target.run(layout, thread_id, run_id)
            is_kept = dig(exchange.json, "status") in ("pending", "running")
            await ctx.target.cancel(layout, thread_id, run_id)
            check(is_kept, "the run continues", exchange.json, exchange)
        else:
            exchange = await ctx.target.run_to_end(layout, thread_id, run_id)
            expected = f"the run ends as interrupted ({layout.name})"
            check(dig(exchange.json, "status") == "interrupted", expected, exchange.json, exchange)


async def _hang_up(ctx: Ctx, layout: Layout, mode: str = "") -> tuple[str, str]:
    """Start a run of the behaviour `long`, read the first event of its stream, and disconnect. `mode` is the value of
    `on_disconnect`; empty omits it. Return the ids of the thread and the run."""
    await ctx.once(stay_busy, layout)
    thread_id = await ctx.target.new_thread()
    fields = {"on_disconnect": mode} if mode else {}
    body = ctx.target.body(trigger_for(ctx, "long"), stream_mode=["values"], **fields)
    async with ctx.target.stream(layout, thread_id, body) as stream:
        _check_stream(stream.exchange, layout)
        await stream.next()
        run_id = await _find_run(ctx, layout, thread_id)
    return thread_id, run_id


async def _find_run(ctx: Ctx, layout: Layout, thread_id: str) -> str:
    """Return the id of the only run of a thread. Raises Failed if there is another number of runs, or if the run has
    ended."""
    if layout.is_below:
        exchange = await ctx.target.ask("GET", layout.runs(thread_id), receives="Runs")
    else:
        exchange = await ctx.target.ask("POST", "/runs/search", {"thread_id": thread_id}, receives="Runs")
    runs = as_list(exchange.json)
    check(len(runs) == 1, "the thread has one run", exchange.json, exchange)
    status = dig(runs, 0, "status")
    check(status in ("pending", "running"), "the run is running", exchange.json, exchange)
    return str(dig(runs, 0, "run_id"))


def _check_stream(exchange: Exchange, layout: Layout) -> None:
    expected = f"an event stream with status 200 ({layout.name})"
    check(exchange.status == 200 and exchange.is_stream, expected, exchange.status, exchange)


def _names(done: LangChainStream) -> list[str]:
    return [frame.event for frame in done.exchange.frames]


def _texts(value: Any) -> list[str]:
    """Return the texts of the data of a `messages` event: of one message piece, or of a pair of piece and metadata."""
    pieces = as_list(value) if isinstance(value, list) else [value]
    return [text_of(each) for each in pieces]
