"""Probes that test how threads are created, read, changed, copied, deleted and searched."""

import asyncio
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import MARK, create_marked_threads, create_thread
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, ids_of, is_refused, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[LangChainTarget]()

_AT_ONCE: Final = 4


@probes.add
async def thread_is_created(ctx: Ctx) -> None:
    await ctx.subject(create_thread)


@probes.add
async def thread_keeps_its_metadata(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    metadata = dig(new.exchange.json, "metadata")
    check(dig(metadata, MARK) == new.mark, "the metadata of the request", metadata, new.exchange)
    check(dig(metadata, "deep") == {"list": [1, None, "ä"]}, "its members as they were sent", metadata, new.exchange)


@probes.add
async def threads_have_unique_ids(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    other = await ctx.target.new_thread()
    check(other != new.thread_id, "two threads have two ids", [new.thread_id, other])


@probes.add
async def thread_takes_its_id(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    wanted = unknown_id()
    actual = await ctx.target.new_thread(thread_id=wanted)
    check(actual == wanted, f"the thread_id {wanted}", actual)


@probes.add
async def id_that_is_taken_is_a_conflict(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    exchange = await ctx.target.ask("POST", "/threads", {"thread_id": new.thread_id}, sends="ThreadCreate.request")
    check(exchange.status == 409, "an existing id is answered with 409", exchange.status, exchange)


@probes.add
async def id_is_taken_once(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    body = {"thread_id": unknown_id()}
    requests = [ctx.target.ask("POST", "/threads", body, sends="ThreadCreate.request") for _ in range(_AT_ONCE)]
    found = sorted(each.status or 0 for each in await asyncio.gather(*requests))
    wanted = [200, *[409] * (_AT_ONCE - 1)]
    check(found == wanted, f"one of {_AT_ONCE} concurrent requests creates the thread, and 409 for the others", found)


@probes.add
async def existing_thread_is_given_back(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    body = {"thread_id": new.thread_id, "if_exists": "do_nothing"}
    exchange = await ctx.target.ask("POST", "/threads", body, sends="ThreadCreate.request", receives="Thread")
    check(exchange.status == 200, "if_exists=do_nothing is answered with 200", exchange.status, exchange)
    check(dig(exchange.json, "metadata", MARK) == new.mark, "the existing thread", exchange.json, exchange)


@probes.add
async def thread_id_is_a_uuid(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    exchange = await ctx.target.ask("POST", "/threads", {"thread_id": "no uuid"})
    check(exchange.status == 422, "an id that is not a UUID is refused with 422", exchange.status, exchange)


@probes.add
async def new_thread_is_idle(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    check(dig(new.exchange.json, "status") == "idle", "the status idle", new.exchange.json, new.exchange)


@probes.add
async def thread_is_found_again(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    exchange = await ctx.target.thread(new.thread_id)
    check(exchange.status == 200, "the thread is found with status 200", exchange.status, exchange)
    for name in ("thread_id", "created_at"):
        was = dig(new.exchange.json, name)
        check(dig(exchange.json, name) == was, f"{name} as it was created", exchange.json, exchange)


@probes.add
async def metadata_is_merged(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    thread_id = await ctx.target.new_thread(metadata={"kept": 1, "changed": 1})
    exchange = await ctx.target.patch(thread_id, {"metadata": {"changed": 2, "new": 3}})
    check(exchange.status == 200, "a patch is answered with 200", exchange.status, exchange)
    metadata = dig((await ctx.target.thread(thread_id)).json, "metadata")
    found = [dig(metadata, name) for name in ("kept", "changed", "new")]
    check(found == [1, 2, 3], "the existing members, overwritten by those of the request", metadata, exchange)


@probes.add
async def deleted_thread_is_gone(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    thread_id = await ctx.target.new_thread()
    path = f"/threads/{thread_id}"
    before = await ctx.target.thread(thread_id)
    check(before.status == 200, "the thread exists before", before.status, before)
    exchange = await ctx.target.ask("DELETE", path)
    check(exchange.status == 204, "a delete is answered with 204", exchange.status, exchange)
    after = await ctx.target.thread(thread_id)
    check(after.status == 404, "the deleted thread is not found", after.status, after)


# Search


@probes.add
async def threads_are_found_by_metadata(ctx: Ctx) -> None:
    mark, ids = await ctx.once(create_marked_threads)
    exchange = await ctx.target.search_threads(metadata={MARK: mark}, limit=100)
    check(exchange.status == 200, "threads are searched with status 200", exchange.status, exchange)
    check(sorted(map(str, ids_of(exchange, "thread_id"))) == sorted(ids), "only these threads", exchange.json, exchange)


@probes.add
async def threads_are_found_by_status(ctx: Ctx) -> None:
    mark, ids = await ctx.once(create_marked_threads)
    idle = await ctx.target.search_threads(metadata={MARK: mark}, status="idle")
    check(len(ids_of(idle, "thread_id")) == len(ids), "all idle threads", idle.json, idle)
    busy = await ctx.target.search_threads(metadata={MARK: mark}, status="busy")
    check(busy.status == 200 and busy.json == [], "no busy thread", busy.json, busy)


@probes.add
async def search_gives_as_many_as_asked(ctx: Ctx) -> None:
    mark, _ = await ctx.once(create_marked_threads)
    exchange = await ctx.target.search_threads(metadata={MARK: mark}, limit=2)
    check(len(ids_of(exchange, "thread_id")) == 2, "limit=2 of 3 gives two", exchange.json, exchange)


@probes.add
async def search_begins_at_the_offset(ctx: Ctx) -> None:
    mark, ids = await ctx.once(create_marked_threads)
    found: list[Any] = []
    for offset in range(len(ids)):
        exchange = await ctx.target.search_threads(metadata={MARK: mark}, limit=1, offset=offset)
        found += ids_of(exchange, "thread_id")
    check(sorted(map(str, found)) == sorted(ids), "each thread on a separate page", found)


@probes.add
async def search_has_bounds(ctx: Ctx) -> None:
    await ctx.once(create_marked_threads)
    for wrong in ({"limit": 0}, {"offset": -1}):
        exchange = await ctx.target.ask("POST", "/threads/search", wrong)
        check(is_refused(exchange), f"{wrong} is refused", exchange.status, exchange)


# Copies


@probes.add
async def copy_has_a_new_id(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    exchange = await ctx.target.ask("POST", f"/threads/{new.thread_id}/copy", receives="Thread")
    check(exchange.status == 200, "a copy is answered with 200", exchange.status, exchange)
    check(dig(exchange.json, "thread_id") != new.thread_id, "a new id", exchange.json, exchange)
    found = await ctx.target.thread(str(dig(exchange.json, "thread_id")))
    check(found.status == 200, "the copy is found", found.status, found)
