"""Probes that test changes to the values and messages of an Agent Protocol thread."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import create_thread
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, text_of
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[LangChainTarget]()


async def _patch_thread(ctx: Ctx) -> tuple[str, list[Exchange]]:
    """Create a thread, patch its values twice, and add a message by a third patch. Return the id of the thread, and the
    three exchanges."""
    await ctx.once(create_thread)
    thread_id = await ctx.target.new_thread()
    changes: list[Any] = [{"values": {"mood": "good", "kept": 1}}, {"values": {"mood": "bad"}}]
    changes.append({"messages": [{"role": "user", "content": "Note."}]})
    return thread_id, [await ctx.target.patch(thread_id, each) for each in changes]


@probes.add
async def values_are_merged(ctx: Ctx) -> None:
    thread_id, answers = await ctx.once(_patch_thread)
    for each in answers[:2]:
        check(each.status == 200, "a patch of values is answered with 200", each.status, each)
    exchange = await ctx.target.thread(thread_id)
    found = [dig(exchange.json, "values", name) for name in ("mood", "kept")]
    check(found == ["bad", 1], "the existing members, overwritten by those of the request", exchange.json, exchange)


@probes.add
async def messages_are_added(ctx: Ctx) -> None:
    thread_id, _ = await ctx.once(_patch_thread)
    exchange = await ctx.target.thread(thread_id)
    texts = [text_of(each) for each in ctx.target.messages(exchange.json)]
    check(texts == ["Note."], "the message of the patch", exchange.json, exchange)


@probes.add
async def patch_of_values_is_a_state(ctx: Ctx) -> None:
    thread_id, _ = await ctx.once(_patch_thread)
    states = await ctx.target.history(thread_id)
    moods = [dig(each, "values", "mood") for each in states]
    check(moods[-2:] == ["bad", "good"], "a separate state for each patch of values, oldest last", states)


@probes.add
async def patch_of_metadata_is_no_state(ctx: Ctx) -> None:
    await ctx.once(_patch_thread)
    thread_id = await ctx.target.new_thread()
    await ctx.target.patch(thread_id, {"values": {"mood": "good"}})
    before = await ctx.target.history(thread_id)
    exchange = await ctx.target.patch(thread_id, {"metadata": {"a": 1}})
    after = await ctx.target.history(thread_id)
    check(bool(before) and len(before) == len(after), "as many states as before", after, exchange)


@probes.add
async def patch_can_branch(ctx: Ctx) -> None:
    await ctx.once(_patch_thread)
    thread_id = await ctx.target.new_thread()
    for mood in ("good", "bad"):
        await ctx.target.patch(thread_id, {"values": {"mood": mood}})
    states = await ctx.target.history(thread_id)
    check(len(states) >= 2, "two states", states)
    exchange = await ctx.target.patch(thread_id, {"checkpoint": dig(states, -1, "checkpoint"), "values": {"b": 1}})
    check(exchange.status == 200, "a patch from a checkpoint is answered with 200", exchange.status, exchange)
    values = dig((await ctx.target.thread(thread_id)).json, "values")
    check([dig(values, "mood"), dig(values, "b")] == ["good", 1], "the values of the branch", values, exchange)
