"""Probes that test the events of streamed ACP runs, and their order."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import AcpStream, events_of, stay_busy, stream_run, text_of
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, trigger_of
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[AcpTarget]()

_ENDS: Final = ("run.completed", "run.failed", "run.cancelled", "run.awaiting")


@probes.add
async def run_is_streamed(ctx: Ctx) -> None:
    await ctx.subject(stream_run, "plain")


@probes.add
async def stream_begins_with_the_created_run(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    check(done.types[0] == "run.created", "run.created first", done.types, done.exchange)


@probes.add
async def run_is_in_progress_before_it_speaks(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    types = [each for each in done.types if each != "run.created"]
    check(types[:1] == ["run.in-progress"], "run.in-progress before any message", done.types, done.exchange)


@probes.add
async def stream_ends_with_the_ended_run(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    check(done.types[-1] == "run.completed", "run.completed last", done.types, done.exchange)


@probes.add
async def stream_has_one_end(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    ends = [each for each in done.types if each in _ENDS]
    check(len(ends) == 1, "one event that ends the run", done.types, done.exchange)


@probes.add
async def stream_is_closed_by_the_server(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    check(done.is_whole, "a stream that ends, with no event left open", done.exchange.error, done.exchange)


@probes.add
async def status_is_that_of_the_event(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    for event in done.events:
        kind, _, status = str(dig(event, "type")).partition(".")
        if kind == "run":
            check(dig(event, "run", "status") == status, f"the status {status}", event, done.exchange)


@probes.add
async def events_are_of_one_run(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    ids = {(str(dig(run, "run_id")), str(dig(run, "session_id"))) for run in done.runs()}
    check(len(ids) == 1, "one run_id and session_id in all events", sorted(ids), done.exchange)


@probes.add
async def streamed_run_is_found_again(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    exchange = await ctx.target.run(done.id)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    for member in ("status", "output"):
        want = dig(done.runs()[-1], member)
        check(dig(exchange.json, member) == want, f"{member} as in the last event", exchange.json, exchange)


@probes.add
async def parts_belong_to_an_open_message(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    is_open, parts = False, 0
    for event in done.events:
        kind = dig(event, "type")
        if kind == "message.part":
            parts += 1
            check(is_open, "message.part between message.created and message.completed", done.types, done.exchange)
        elif kind in ("message.created", "message.completed"):
            is_open = kind == "message.created"
    check(parts > 0, "a message.part", done.types, done.exchange)


@probes.add
async def messages_are_completed(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    marks = [each for each in done.types if each in ("message.created", "message.completed")]
    pairs = ["message.created", "message.completed"] * (len(marks) // 2)
    check(bool(marks) and marks == pairs, "each message.created followed by its completed", done.types, done.exchange)


@probes.add
async def completed_message_holds_its_parts(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    streamed_parts: list[Any] = []
    for event in done.events:
        match dig(event, "type"):
            case "message.created":
                streamed_parts = []
            case "message.part":
                streamed_parts.append(dig(event, "part"))
            case "message.completed":
                parts = dig(event, "message", "parts")
                check(
                    parts == streamed_parts,
                    "the streamed parts",
                    {"streamed": streamed_parts, "parts": parts},
                )
            case _:
                pass
    check("message.completed" in done.types, "a message.completed", done.types, done.exchange)


@probes.add
async def output_holds_the_streamed_messages(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    messages = [dig(event, "message") for event in done.events if dig(event, "type") == "message.completed"]
    output = as_list(dig(done.runs()[-1], "output"))
    want = [dig(each, "parts") for each in messages]
    actual = [dig(each, "parts") for each in output]
    check(bool(want) and actual == want, "the messages of the stream as the output", output, done.exchange)


@probes.add
async def created_run_has_no_output(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    first = next((dig(event, "run") for event in done.events if dig(event, "type") == "run.created"), None)
    check(first is not None and dig(first, "output") == [], "an empty output", first, done.exchange)


@probes.add
async def event_is_data_alone(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    for frame in done.exchange.frames:
        names = {line.partition(":")[0] for line in frame.raw.splitlines()}
        check(names == {"data"}, "a frame with only data: lines", frame.raw, done.exchange)
    check(done.comments == 0, "no comments", done.comments, done.exchange)


@probes.add
async def text_comes_in_pieces(ctx: Ctx) -> None:
    done: AcpStream = await ctx.once(stream_run, "stream")
    parts = [dig(event, "part", "content") for event in done.events if dig(event, "type") == "message.part"]
    output = text_of(dig(done.runs()[-1], "output"))
    check(
        "".join(str(each) for each in parts if each) == output, "parts that add up to the output", parts, done.exchange
    )


@probes.add
async def events_come_while_the_agent_works(ctx: Ctx) -> None:
    await ctx.once(stay_busy)
    async with ctx.target.stream_run("createRun.request", trigger_of(ctx, "long"), "runs") as stream:
        while (frame := await stream.next()) is not None and dig(frame.json, "type") != "run.in-progress":
            pass
        check(frame is not None, "run.in-progress", None, stream.exchange)
        run_id = str(dig(events_of(stream.exchange)[-1], "run", "run_id"))
        exchange = await ctx.target.cancel(run_id)
    check(exchange.status == 202, "a run that can still be cancelled", exchange.status, exchange)
