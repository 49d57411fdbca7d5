"""Probes that test the events of LangGraph Platform streams, for each stream mode."""

from itertools import pairwise
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import LangChainStream, stream_run
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, json_of, text_of
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import as_list, as_object, dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def stream_begins_with_the_run(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "values")
    names = [frame.event for frame in done.exchange.frames]
    check(names[:1] == ["metadata"], "the event metadata first", names, done.exchange)
    run_id = dig(json_of(done.exchange.frames[0]), "run_id")
    there = str(done.exchange.header("content-location"))
    check(isinstance(run_id, str) and there.endswith(run_id), "with the id of the run", run_id, done.exchange)


@probes.add
async def events_have_names(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "values")
    names = [frame.event for frame in done.exchange.frames]
    check(bool(names) and all(names), "a name for every event", names, done.exchange)


@probes.add
async def values_begin_with_the_input(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "values")
    states = [as_list(dig(json_of(frame), "messages")) for frame in done.of("values")]
    check(len(states) >= 2, "the states before and after the answer", states, done.exchange)
    check(bool(states[0]), "the caller's message in the first state", states[0], done.exchange)
    check(not ctx.target.answers(states[0]), "no answer in the first state", states[0], done.exchange)


@probes.add
async def pieces_have_metadata(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "messages-tuple")
    frames = done.of("messages")
    check(bool(frames), "events named messages", [each.event for each in done.exchange.frames], done.exchange)
    for frame in frames:
        pair = as_list(json_of(frame))
        check(len(pair) == 2 and isinstance(pair[1], dict), "a pair of a chunk and its metadata", pair, done.exchange)
        check(isinstance(dig(pair[1], "langgraph_node"), str), "metadata with langgraph_node", pair[1], done.exchange)


@probes.add
async def pieces_of_a_message_have_its_id(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "messages-tuple")
    ids = {dig(json_of(frame), 0, "id") for frame in done.of("messages")}
    for message in await _messages_of_agent(ctx, done):
        id = dig(message, "id")
        check(id in ids, f"chunks with the id {id}", sorted(map(str, ids)), done.exchange)


@probes.add
async def partial_messages_grow(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "messages")
    texts_by_id: dict[Any, list[str]] = {}
    for frame in done.exchange.frames:
        # A message that is not streamed in pieces has only messages/complete.
        if frame.event in ("messages/partial", "messages/complete"):
            message = dig(json_of(frame), 0)
            texts_by_id.setdefault(dig(message, "id"), []).append(text_of(message))
    for texts in texts_by_id.values():
        is_growing = all(two.startswith(one) for one, two in pairwise(texts))
        check(is_growing, "each event has the message so far, and more", texts, done.exchange)
    for message in await _messages_of_agent(ctx, done):
        texts = texts_by_id.get(dig(message, "id"), [])
        check(
            texts[-1:] == [text_of(message)],
            "the complete message in the last messages/partial or messages/complete",
            texts,
            done.exchange,
        )


async def _messages_of_agent(ctx: Ctx, done: LangChainStream) -> list[Any]:
    """Return the agent's messages on the thread of a streamed run, read after its end. Raises Failed if there are
    none."""
    thread = await ctx.target.thread(done.thread_id)
    found = [each for each in ctx.target.messages(thread.json) if ctx.target.answers([each])]
    check(bool(found), "a message of the agent", thread.json, thread)
    return found


@probes.add
async def messages_begin_with_metadata(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "messages")
    names = [frame.event for frame in done.exchange.frames if frame.event.startswith("messages/")]
    check(names[:1] == ["messages/metadata"], "the event messages/metadata first", names, done.exchange)


@probes.add
async def updates_are_of_nodes(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "updates")
    thread = await ctx.target.thread(done.thread_id)
    answers = ctx.target.answers(ctx.target.messages(thread.json))
    found: list[str] = []
    for frame in done.of("updates"):
        for update in (as_object(json_of(frame)) or {}).values():
            found += ctx.target.answers(as_list(dig(update, "messages")))
    check(bool(answers) and found == answers, "the messages that each node adds, by its name", found, done.exchange)


@probes.add
async def tasks_are_told(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "tasks")
    values = [json_of(frame) for frame in done.of("tasks")]
    begun = [dig(each, "id") for each in values if "input" in (each or {})]
    ended = [dig(each, "id") for each in values if "result" in (each or {})]
    check(bool(begun), "tasks with their input", values, done.exchange)
    check(sorted(map(str, ended)) == sorted(map(str, begun)), "each task with its result", values, done.exchange)


@probes.add
async def checkpoints_are_told(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "checkpoints")
    ids = [dig(json_of(frame), "config", "configurable", "checkpoint_id") for frame in done.of("checkpoints")]
    states = await ctx.target.history(done.thread_id)
    there = [dig(each, "checkpoint", "checkpoint_id") for each in reversed(states)]
    check(bool(ids) and ids == there, "the checkpoints of the history, oldest first", ids, done.exchange)


@probes.add
async def debug_tells_tasks_and_checkpoints(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "debug")
    kinds = {dig(json_of(frame), "type") for frame in done.of("debug")}
    expected = "the types checkpoint, task and task_result"
    check({"checkpoint", "task", "task_result"} <= kinds, expected, sorted(map(str, kinds)), done.exchange)


@probes.add
async def custom_has_nothing_else(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "custom")
    strange = [each.event for each in done.exchange.frames if each.event not in ("custom", "metadata", "end")]
    check(not strange, "only the data that the agent writes", strange, done.exchange)
    thread = await ctx.target.thread(done.thread_id)
    check(dig(thread.json, "status") == "idle", "the run has ended with the stream", thread.json, thread)


@probes.add
async def events_are_those_of_langchain(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "events")
    values = [json_of(frame) for frame in done.of("events")]
    if not values:
        raise NotApplicable("the agent sends no such events")
    for each in values:
        is_whole = all(isinstance(dig(each, name), str) for name in ("event", "name", "run_id")) and "data" in each
        check(is_whole, "an event with its name, its run_id and its data", each, done.exchange)


@probes.add
async def stream_is_not_cached(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "values")
    found = done.exchange.header("cache-control") or ""
    check("no-store" in found or "no-cache" in found, "Cache-Control: no-store", found, done.exchange)


@probes.add
async def error_of_a_stream_has_a_message(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, LAYOUT, "values", "fail")
    errors = [json_of(frame) for frame in done.of("error")]
    check(bool(errors), "an event named error", [each.event for each in done.exchange.frames], done.exchange)
    found = [dig(errors, 0, name) for name in ("error", "message")]
    check(all(isinstance(each, str) for each in found), "an error and its message", errors, done.exchange)
    check(done.exchange.frames[-1].event in ("error", "end"), "nothing after it", errors, done.exchange)
