"""Probes that test resumed streams of LangGraph Platform."""

from dataclasses import dataclass
from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import long_run
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, speaking_trigger, trigger_for
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, SseFrame, dig

probes: Final = Probes[LangChainTarget]()

_MODES: Final = ["values", "updates", "tasks", "checkpoints", "debug"]
"""Stream modes that send events at each step of the graph, so that streams of several modes can be compared."""


@dataclass(frozen=True, slots=True)
class _ResumableStream:
    path: str
    """Path at which a client reads the stream of the run again."""
    exchange: Exchange

    @property
    def frames(self) -> list[SseFrame]:
        return self.exchange.frames


async def _keep_stream(ctx: Ctx) -> _ResumableStream:
    """Stream a run to its end with `stream_resumable`, so that probes can read its stream again. Raises Failed if the
    server sends no stream."""
    thread_id = await ctx.target.new_thread()
    body = ctx.target.body(speaking_trigger(ctx), stream_mode=_MODES, stream_resumable=True)
    async with ctx.target.stream(LAYOUT, thread_id, body) as stream:
        frames = await stream.rest_of_it()
    check(stream.exchange.status == 200, "a stream with status 200", stream.exchange.status, stream.exchange)
    run_id = str(dig(frames[0].json if frames else None, "run_id"))
    return _ResumableStream(LAYOUT.one(thread_id, run_id, "stream"), stream.exchange)


async def _take_up(ctx: Ctx, resumable: _ResumableStream, after: str) -> Exchange:
    async with ctx.target.listen("GET", resumable.path, headers={"Last-Event-ID": after}) as stream:
        check(stream.exchange.status == 200, "a stream with status 200", stream.exchange.status, stream.exchange)
        await stream.rest_of_it()
    return stream.exchange


@probes.add
async def events_have_ids(ctx: Ctx) -> None:
    resumable = await ctx.subject(_keep_stream)
    ids = [frame.id for frame in resumable.frames]
    check(bool(ids) and all(ids), "an id for every event", ids, resumable.exchange)


@probes.add
async def ids_are_different(ctx: Ctx) -> None:
    resumable = await ctx.once(_keep_stream)
    ids = [frame.id for frame in resumable.frames]
    check(len(ids) == len(set(ids)), "unique ids", ids, resumable.exchange)


@probes.add
async def stream_is_replayed(ctx: Ctx) -> None:
    resumable = await ctx.once(_keep_stream)
    again = await _take_up(ctx, resumable, "-1")
    wanted = [(frame.event, frame.data) for frame in resumable.frames]
    found = [(frame.event, frame.data) for frame in again.frames]
    check(found == wanted, "the same events again", [event for event, _ in found], again)


@probes.add
async def stream_goes_on_after_an_event(ctx: Ctx) -> None:
    resumable = await ctx.once(_keep_stream)
    check(bool(resumable.frames), "a stream of events", resumable.exchange.media_type, resumable.exchange)
    # Another requirement tests that ids are unique. Here events with the same id count as one.
    first = resumable.frames[0].id
    wanted = [frame.data for frame in resumable.frames if frame.id != first]
    if not wanted:
        raise NotObserved("all events have the same id")
    again = await _take_up(ctx, resumable, first)
    found = [frame.data for frame in again.frames]
    check(found == wanted, f"the {len(wanted)} events after {first}", [each.event for each in again.frames], again)


@probes.add
async def stream_that_is_over_tells_nothing_new(ctx: Ctx) -> None:
    resumable = await ctx.once(_keep_stream)
    async with ctx.target.listen("GET", resumable.path) as stream:
        await stream.rest_of_it()
    names = [frame.event for frame in stream.exchange.frames if frame.event not in ("metadata", "end")]
    check(stream.exchange.status == 200, "the status 200", stream.exchange.status, stream.exchange)
    check(names == [], "no events without Last-Event-ID", names, stream.exchange)


@probes.add
async def stream_is_taken_up_while_the_run_goes_on(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT, stream_mode=["values"], stream_resumable=True) as (thread_id, run_id, _):
        path = LAYOUT.one(thread_id, run_id, "stream")
        async with ctx.target.listen("GET", path, headers={"Last-Event-ID": "-1"}) as stream:
            first = await stream.next()
            is_first = first is not None and first.event == "metadata"
            check(is_first, "the earlier events, from the first one", first and first.event, stream.exchange)
            await ctx.target.cancel(LAYOUT, thread_id, run_id)
            await stream.rest_of_it()
        check(stream.exchange.is_ended, "the end of the stream after them", None, stream.exchange)


@probes.add
async def listener_that_leaves_can_cancel(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        path = LAYOUT.one(thread_id, run_id, "stream")
        async with ctx.target.listen("GET", path, query={"cancel_on_disconnect": "true"}) as stream:
            check(stream.exchange.status == 200, "a stream with status 200", stream.exchange.status, stream.exchange)
        exchange = await ctx.target.run_to_end(LAYOUT, thread_id, run_id)
        check(dig(exchange.json, "status") == "interrupted", "the run is interrupted", exchange.json, exchange)


@probes.add
async def listener_that_leaves_changes_nothing(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        path = LAYOUT.one(thread_id, run_id, "stream")
        async with ctx.target.listen("GET", path) as stream:
            check(stream.exchange.status == 200, "a stream with status 200", stream.exchange.status, stream.exchange)
        # The moment at which the server notices cannot be observed. A run on another thread gives it time.
        await ctx.target.create(LAYOUT, None, ctx.target.body(trigger_for(ctx, "plain")), "wait")
        exchange = await ctx.target.run(LAYOUT, thread_id, run_id)
        check(dig(exchange.json, "status") == "running", "the run continues", exchange.json, exchange)
