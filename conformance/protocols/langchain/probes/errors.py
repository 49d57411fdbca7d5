"""Probes that test how servers refuse invalid requests, and requests of a second caller for data of the first."""

from typing import Any, Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.probes.store import get_item, store_items
from babelgate.conformance.protocols.langchain.scenes import (
    MARK,
    create_thread,
    long_run,
    run_and_wait,
    run_in_background,
)
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, ids_of, is_refused, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[LangChainTarget]()

_BROKEN: Final[Any] = {"content": b'{"metadata": ', "headers": {"Content-Type": "application/json"}}


@probes.add
async def unknown_thread_is_not_found(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    _check_not_found(await ctx.target.thread(unknown_id()))


@probes.add
async def unknown_thread_is_not_changed(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    _check_not_found(await ctx.target.patch(unknown_id(), {"metadata": {"a": 1}}))


@probes.add
async def unknown_thread_is_not_deleted(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    _check_not_found(await ctx.target.ask("DELETE", f"/threads/{unknown_id()}"))


@probes.add
async def unknown_thread_has_no_history(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    _check_not_found(await ctx.target.ask("GET", f"/threads/{unknown_id()}/history"))


@probes.add
async def unknown_thread_is_not_copied(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    exchange = await ctx.target.ask("POST", f"/threads/{unknown_id()}/copy")
    check(is_refused(exchange), "a copy of an unknown thread is refused", exchange.status, exchange)


@probes.add
async def unknown_run_is_not_found(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        _check_not_found(await ctx.target.run(layout, done.thread_id, unknown_id()))


@probes.add
async def unknown_run_is_not_deleted(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        _check_not_found(await ctx.target.ask("DELETE", layout.one(done.thread_id, unknown_id())))


@probes.add
async def unknown_agent_runs_not(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_and_wait, layout)
        body: dict[str, Any] = {ctx.target.dialect.agent: unknown_id(), "input": {}}
        exchange = await ctx.target.create(layout, done.thread_id, body)
        _check_not_found(exchange)


@probes.add
async def wrong_types_are_refused(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    requests: list[Any] = [{"metadata": "text"}, {"if_exists": "perhaps"}, []]
    for wrong in requests:
        exchange = await ctx.target.ask("POST", "/threads", wrong)
        check(exchange.status == 422, f"{wrong} is refused with 422", exchange.status, exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    exchange = await ctx.target.ask("POST", "/threads", **_BROKEN)
    check(is_refused(exchange), "invalid JSON is refused with a 4xx status", exchange.status, exchange)


@probes.add
async def odd_ids_are_refused(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    for odd in ("x", "..%2F..%2F..%2Fetc%2Fpasswd", "%00", "0" * 300):
        # No route may match such an id, so the answer need not be an error of the protocol.
        url = f"{ctx.target.base}/threads/{odd}"
        exchange = await ctx.wire.request("GET", url, sends=None, receives=None)
        check(is_refused(exchange), f"the id {odd[:20]} is refused", exchange.status, exchange)
        body = exchange.content.decode("utf-8", errors="replace")
        check(not find_leak(body), "no internals", find_leak(body), exchange)


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    for exchange in (
        await ctx.target.ask("POST", "/threads", **_BROKEN),
        await ctx.target.thread(unknown_id()),
        await ctx.target.ask("POST", "/threads", {"thread_id": new.thread_id}),
        await ctx.target.ask("POST", "/threads/search", {"limit": "ten"}),
    ):
        body = exchange.content.decode("utf-8", errors="replace")
        check((exchange.status or 0) >= 400, "an error", exchange.status, exchange)
        check(not find_leak(body), "an error without a stack trace", find_leak(body), exchange)


@probes.add
async def answers_are_called_json(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    kind = new.exchange.media_type
    check(kind == "application/json", "Content-Type application/json", kind, new.exchange)


# Access by a second caller


@probes.add
async def thread_of_another_caller_is_not_found(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    other = _other(ctx)
    exchange = await ctx.target.thread(new.thread_id, **other)
    check(exchange.status in (403, 404), "the second caller does not find it", exchange.status, exchange)
    path = f"/threads/{new.thread_id}"
    exchange = await ctx.target.ask("PATCH", path, {"metadata": {"stolen": 1}}, **other)
    check(exchange.status in (403, 404), "and does not change it", exchange.status, exchange)


@probes.add
async def threads_of_another_caller_are_not_listed(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    body = {"metadata": {MARK: new.mark}, "limit": 100}
    mine = await ctx.target.ask("POST", "/threads/search", body)
    check(new.thread_id in ids_of(mine, "thread_id"), "the first caller finds it", mine.json, mine)
    exchange = await ctx.target.ask("POST", "/threads/search", body, **_other(ctx))
    check(
        new.thread_id not in ids_of(exchange, "thread_id"),
        "the second caller does not find it",
        exchange.json,
        exchange,
    )


@probes.add
async def run_of_another_caller_is_not_found(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        exchange = await ctx.target.run(layout, done.thread_id, done.run_id, **_other(ctx))
        expected = f"the second caller does not find it ({layout.name})"
        check(exchange.status in (403, 404), expected, exchange.status, exchange)


@probes.add
async def thread_of_another_caller_is_not_deleted(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    thread_id = await ctx.target.new_thread()
    exchange = await ctx.target.ask("DELETE", f"/threads/{thread_id}", **_other(ctx))
    check(exchange.status in (403, 404), "the second caller does not find it", exchange.status, exchange)
    after = await ctx.target.thread(thread_id)
    check(after.status == 200, "it still exists", after.status, after)


@probes.add
async def history_of_another_caller_is_not_shown(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, ctx.target.layouts[0])
    exchange = await ctx.target.ask("GET", f"/threads/{done.thread_id}/history", **_other(ctx))
    check(exchange.status in (403, 404), "the second caller does not find it", exchange.status, exchange)


@probes.add
async def run_of_another_caller_is_not_cancelled(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            exchange = await ctx.target.cancel(layout, thread_id, run_id, _other(ctx))
            expected = f"the second caller does not find it ({layout.name})"
            check(exchange.status in (403, 404), expected, exchange.status, exchange)
            run = await ctx.target.run(layout, thread_id, run_id)
            check(dig(run.json, "status") in ("pending", "running"), "the run continues", run.json, run)


@probes.add
async def stream_of_another_caller_is_not_shown(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        path = layout.one(done.thread_id, done.run_id, "stream")
        async with ctx.target.listen("GET", path, **_other(ctx)) as stream:
            frames = await stream.rest_of_it()
        # LangGraph Platform reports a missing run in a stream with status 200.
        is_hidden = stream.exchange.status in (403, 404) or [frame.event for frame in frames] == ["error"]
        expected = f"the second caller does not find it ({layout.name})"
        check(is_hidden, expected, stream.exchange.status, stream.exchange)


@probes.add
async def item_of_another_caller_is_not_found(ctx: Ctx) -> None:
    there = await ctx.once(store_items)
    exchange = await get_item(ctx, there.namespace, "x", **_other(ctx))
    check(dig(exchange.json, "value") is None, "the second caller does not find it", exchange.json, exchange)


def _other(ctx: Ctx) -> dict[str, Any]:
    return {"headers": dict(ctx.options.other_headers), "is_anonymous": True}


def _check_not_found(exchange: Exchange) -> None:
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
