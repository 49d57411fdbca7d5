"""Probes that test the state of LangGraph Platform threads, and changes to it."""

from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import create_thread, long_run, run_and_wait
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, text_of, trigger_for, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[LangChainTarget]()

_NOTE: Final = "Noted by the judge."


async def _state(ctx: Ctx, thread_id: str, *steps: str) -> Exchange:
    path = "/".join((f"/threads/{thread_id}/state", *steps))
    return await ctx.target.ask("GET", path, receives="ThreadState")


async def _update(ctx: Ctx, thread_id: str, **fields: Any) -> Exchange:
    body = {"values": {"messages": [{"role": "user", "content": _NOTE}]}, **fields}
    path = f"/threads/{thread_id}/state"
    return await ctx.target.ask("POST", path, body, sends="StateUpdate.request", receives="StateUpdated")


@probes.add
async def state_of_a_new_thread_is_empty(ctx: Ctx) -> None:
    new = await ctx.once(create_thread)
    exchange = await _state(ctx, new.thread_id)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    found = [dig(exchange.json, name) for name in ("values", "next", "tasks")]
    check(found == [{}, [], []], "no values, nothing next, no tasks", exchange.json, exchange)


@probes.add
async def state_has_what_was_said(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    exchange = await _state(ctx, done.thread_id)
    there = dig(done.exchange.json, "messages")
    found = dig(exchange.json, "values", "messages")
    check(bool(there) and found == there, "the messages of the run's answer", exchange.json, exchange)
    check(dig(exchange.json, "next") == [], "nothing is next", exchange.json, exchange)


@probes.add
async def state_is_the_newest_of_the_history(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    exchange = await _state(ctx, done.thread_id)
    states = await ctx.target.history(done.thread_id)
    newest = dig(states, 0, "checkpoint", "checkpoint_id")
    here = dig(exchange.json, "checkpoint", "checkpoint_id")
    check(isinstance(here, str) and here == newest, f"the checkpoint {newest}", exchange.json, exchange)


@probes.add
async def state_names_the_one_before(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    states = await ctx.target.history(done.thread_id)
    check(len(states) >= 2, "two states", states)
    parents = [dig(each, "parent_checkpoint", "checkpoint_id") for each in states[:-1]]
    older = [dig(each, "checkpoint", "checkpoint_id") for each in states[1:]]
    check(parents == older, "the previous state as parent_checkpoint of each state", states)


@probes.add
async def older_state_is_found(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    oldest = dig(await ctx.target.history(done.thread_id), -1)
    id = str(dig(oldest, "checkpoint", "checkpoint_id"))
    exchange = await _state(ctx, done.thread_id, id)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "values") == dig(oldest, "values"), "the values of that state", exchange.json, exchange)


@probes.add
async def older_state_is_found_by_its_checkpoint(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    oldest = dig(await ctx.target.history(done.thread_id), -1)
    path = f"/threads/{done.thread_id}/state/checkpoint"
    body = {"checkpoint": dig(oldest, "checkpoint")}
    exchange = await ctx.target.ask("POST", path, body, receives="ThreadState")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "values") == dig(oldest, "values"), "the values of that state", exchange.json, exchange)


@probes.add
async def history_can_be_posted_for(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    every = await ctx.target.history(done.thread_id)
    path = f"/threads/{done.thread_id}/history"
    exchange = await ctx.target.ask("POST", path, {"limit": 1}, receives="ThreadStates")
    check(exchange.json == every[:1], "limit=1 gives the newest state", exchange.json, exchange)
    before = {"configurable": {"checkpoint_id": dig(every, 0, "checkpoint", "checkpoint_id")}}
    body = {"limit": 100, "before": before}
    exchange = await ctx.target.ask("POST", path, body, receives="ThreadStates")
    check(exchange.json == every[1:], "only older states with `before`", exchange.json, exchange)


@probes.add
async def state_of_an_unknown_thread_is_not_found(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    exchange = await _state(ctx, unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


# Changes


@dataclass(frozen=True, slots=True)
class _Changed:
    thread_id: str
    before: list[Any]
    answer: Exchange
    after: Exchange
    """Exchange that read the state after the change."""


async def _change_state(ctx: Ctx) -> _Changed:
    thread_id = await _run_thread(ctx)
    before = await ctx.target.history(thread_id)
    answer = await _update(ctx, thread_id)
    check(answer.status == 200, "an update is answered with 200", answer.status, answer)
    return _Changed(thread_id, before, answer, await _state(ctx, thread_id))


async def _run_thread(ctx: Ctx) -> str:
    """Run an agent on a new thread to its end, and return the id of the thread. Raises Failed if the server refuses the
    run."""
    thread_id = await ctx.target.new_thread()
    exchange = await ctx.target.create(LAYOUT, thread_id, ctx.target.body(trigger_for(ctx, "plain")), "wait")
    check(exchange.status == 200, "a run is answered with 200", exchange.status, exchange)
    return thread_id


@probes.add
async def state_is_changed(ctx: Ctx) -> None:
    done = await ctx.subject(_change_state)
    texts = [text_of(each) for each in ctx.target.messages(done.after.json)]
    before = ctx.target.messages(dig(done.before, 0))
    check(texts[-1:] == [_NOTE], "the message of the update is the last", texts, done.after)
    check(len(texts) == len(before) + 1, "the existing messages before it", texts, done.after)


@probes.add
async def answer_to_a_change_names_its_checkpoint(ctx: Ctx) -> None:
    done = await ctx.once(_change_state)
    there = dig(done.after.json, "checkpoint", "checkpoint_id")
    here = dig(done.answer.json, "checkpoint", "checkpoint_id")
    check(isinstance(here, str) and here == there, f"the checkpoint {there}", done.answer.json, done.answer)


@probes.add
async def change_is_in_the_history(ctx: Ctx) -> None:
    done = await ctx.once(_change_state)
    states = await ctx.target.history(done.thread_id)
    check(len(states) == len(done.before) + 1, "one state more than before", states)
    source = dig(states, 0, "metadata", "source")
    check(source == "update", "the source update", source)


@probes.add
async def change_can_branch(ctx: Ctx) -> None:
    thread_id = await _run_thread(ctx)
    oldest = dig(await ctx.target.history(thread_id), -1)
    exchange = await _update(ctx, thread_id, checkpoint=dig(oldest, "checkpoint"))
    check(exchange.status == 200, "an update from a checkpoint is answered with 200", exchange.status, exchange)
    state = await _state(ctx, thread_id)
    parent = dig(state.json, "parent_checkpoint", "checkpoint_id")
    wanted = dig(oldest, "checkpoint", "checkpoint_id")
    check(parent == wanted, f"a state whose parent is {wanted}", state.json, state)
    check(
        not ctx.target.answers(ctx.target.messages(state.json)),
        "no messages from after the checkpoint",
        state.json,
        state,
    )


@probes.add
async def busy_thread_is_not_changed(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, _, __):
        exchange = await _update(ctx, thread_id)
        check(exchange.status == 409, "the status 409", exchange.status, exchange)


@probes.add
async def run_can_begin_at_a_checkpoint(ctx: Ctx) -> None:
    thread_id = await _run_thread(ctx)
    states = await ctx.target.history(thread_id)
    body = ctx.target.body(trigger_for(ctx, "plain"))
    # The oldest state is from before the agent's first message.
    oldest = {"checkpoint_id": dig(states, -1, "checkpoint", "checkpoint_id")}
    exchange = await ctx.target.create(LAYOUT, thread_id, {**body, "checkpoint": oldest}, "wait")
    check(exchange.status == 200, "a run from a checkpoint is answered with 200", exchange.status, exchange)
    messages = as_list(dig(exchange.json, "messages"))
    check(bool(ctx.target.answers(messages)), "the agent's answer", exchange.json, exchange)
    later = {dig(each, "id") for each in ctx.target.messages(dig(states, 0)) if ctx.target.answers([each])}
    there = {dig(each, "id") for each in messages}
    check(not later & there, "no messages from after the checkpoint", exchange.json, exchange)
