"""Probes that test the questions of agents on LangGraph Platform (interrupts), and the answers to them."""

from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import (
    Waited,
    run_and_wait,
    run_of,
    run_until_question,
    stream_run,
)
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, json_of, trigger_for
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[LangChainTarget]()


@dataclass(frozen=True, slots=True)
class _Answered:
    thread_id: str
    exchange: Exchange
    answer: str


async def _answer_question(ctx: Ctx) -> _Answered:
    """Run an agent until it asks a question, answer it by `command.resume`, and return the response. Raises Failed if
    the answer is refused."""
    done = await _ask(ctx)
    answer = str(trigger_for(ctx, "question").answer)
    exchange = await ctx.target.create(LAYOUT, done.thread_id, _resume(ctx, answer), "wait")
    check(exchange.status == 200, "command.resume is answered with 200", exchange.status, exchange)
    return _Answered(done.thread_id, exchange, answer)


async def _ask(ctx: Ctx) -> Waited:
    """Run an agent on a new thread until it asks a question, and return the response. Raises Failed if the response has
    no `__interrupt__`."""
    done = await run_until_question(ctx, LAYOUT)
    check(bool(_interrupts(done.exchange.json)), "an agent that asks", done.exchange.json, done.exchange)
    return done


def _resume(ctx: Ctx, answer: Any) -> dict[str, Any]:
    body = ctx.target.body(trigger_for(ctx, "question"), command={"resume": answer})
    return {name: value for name, value in body.items() if name != "input"}


def _interrupts(values: Any) -> list[Any]:
    return as_list(dig(values, "__interrupt__"))


async def _state(ctx: Ctx, thread_id: str) -> Exchange:
    return await ctx.target.ask("GET", f"/threads/{thread_id}/state", receives="ThreadState")


@probes.add
async def question_is_told_by_a_wait(ctx: Ctx) -> None:
    done = await ctx.once(run_until_question, LAYOUT)
    found = _interrupts(done.exchange.json)
    check(bool(found), "__interrupt__ with the question", done.exchange.json, done.exchange)
    for each in found:
        check(isinstance(dig(each, "id"), str), "the id of the question", each, done.exchange)
        check("value" in (as_object(each) or {}), "the value of the question", each, done.exchange)


@probes.add
async def run_that_asks_is_a_success(ctx: Ctx) -> None:
    await ctx.once(run_until_question, LAYOUT)
    trigger = trigger_for(ctx, "question")
    thread_id = await ctx.target.new_thread()
    created = await ctx.target.create(LAYOUT, thread_id, ctx.target.body(trigger))
    exchange = await ctx.target.run_to_end(LAYOUT, thread_id, run_of(created))
    check(dig(exchange.json, "status") == "success", "the status success", exchange.json, exchange)


@probes.add
async def question_is_told_by_the_thread(ctx: Ctx) -> None:
    done = await ctx.once(run_until_question, LAYOUT)
    wanted = _ids(_interrupts(done.exchange.json))
    exchange = await ctx.target.thread(done.thread_id)
    by_task = as_object(dig(exchange.json, "interrupts")) or {}
    found = _ids([each for interrupts in by_task.values() for each in as_list(interrupts)])
    check(bool(found) and found == wanted, "interrupts, by the id of their task", exchange.json, exchange)


@probes.add
async def question_is_told_by_the_state(ctx: Ctx) -> None:
    done = await ctx.once(run_until_question, LAYOUT)
    wanted = _ids(_interrupts(done.exchange.json))
    exchange = await _state(ctx, done.thread_id)
    check(
        _ids(as_list(dig(exchange.json, "interrupts"))) == wanted,
        "the interrupts of the thread",
        exchange.json,
        exchange,
    )


@probes.add
async def task_that_asks_is_next(ctx: Ctx) -> None:
    done = await ctx.once(run_until_question, LAYOUT)
    exchange = await _state(ctx, done.thread_id)
    tasks = as_list(dig(exchange.json, "tasks"))
    check(bool(dig(exchange.json, "next")), "the node that asks is next", exchange.json, exchange)
    found = _ids([one for task in tasks for one in as_list(dig(task, "interrupts"))])
    wanted = _ids(_interrupts(done.exchange.json))
    check(found == wanted, "a task that has the question", tasks, exchange)


@probes.add
async def question_is_streamed_in_values(ctx: Ctx) -> None:
    await _check_streamed(ctx, "values")


@probes.add
async def question_is_streamed_in_updates(ctx: Ctx) -> None:
    await _check_streamed(ctx, "updates")


async def _check_streamed(ctx: Ctx, mode: str) -> None:
    done = await ctx.once(stream_run, LAYOUT, mode, "question")
    values = [json_of(frame) for frame in done.of(mode)]
    found = [each for each in values if _interrupts(each)]
    check(bool(found), f"an event {mode} with __interrupt__", values, done.exchange)


@probes.add
async def answer_ends_the_question(ctx: Ctx) -> None:
    done = await ctx.subject(_answer_question)
    check(not _interrupts(done.exchange.json), "no further question", done.exchange.json, done.exchange)
    answers = ctx.target.answers(as_list(dig(done.exchange.json, "messages")))
    check(bool(answers), "the agent continues", done.exchange.json, done.exchange)


@probes.add
async def answer_reaches_the_agent(ctx: Ctx) -> None:
    done = await ctx.once(_answer_question)
    text = " ".join(ctx.target.answers(as_list(dig(done.exchange.json, "messages"))))
    check(done.answer in text, f"the agent uses {done.answer!r}", text, done.exchange)


@probes.add
async def thread_is_idle_after_the_answer(ctx: Ctx) -> None:
    done = await ctx.once(_answer_question)
    exchange = await ctx.target.thread(done.thread_id)
    check(dig(exchange.json, "status") == "idle", "the status idle", exchange.json, exchange)
    state = await _state(ctx, done.thread_id)
    check(dig(state.json, "interrupts") == [], "no open interrupts", state.json, state)


@probes.add
async def answer_can_name_its_question(ctx: Ctx) -> None:
    done = await _ask(ctx)
    id = str(dig(_interrupts(done.exchange.json), 0, "id"))
    answer = str(trigger_for(ctx, "question").answer)
    exchange = await ctx.target.create(LAYOUT, done.thread_id, _resume(ctx, {id: answer}), "wait")
    check(exchange.status == 200, "an answer by the interrupt's id is accepted", exchange.status, exchange)
    check(not _interrupts(exchange.json), "no further question", exchange.json, exchange)
    text = " ".join(ctx.target.answers(as_list(dig(exchange.json, "messages"))))
    check(bool(text) and id not in text, "the agent receives the answer, and not the id", text, exchange)


@probes.add
async def answer_can_be_streamed(ctx: Ctx) -> None:
    done = await _ask(ctx)
    answer = str(trigger_for(ctx, "question").answer)
    body = {**_resume(ctx, answer), "stream_mode": ["values"]}
    async with ctx.target.stream(LAYOUT, done.thread_id, body) as stream:
        frames = await stream.rest_of_it()
    last = next((json_of(each) for each in reversed(frames) if each.event == "values"), None)
    answers = ctx.target.answers(as_list(dig(last, "messages")))
    check(bool(answers) and not _interrupts(last), "values of the continued run", last, stream.exchange)


@probes.add
async def answer_needs_a_thread(ctx: Ctx) -> None:
    await ctx.once(run_until_question, LAYOUT)
    exchange = await ctx.target.create(LAYOUT, None, _resume(ctx, "Ada"), "wait")
    check(exchange.status == 400, "the status 400", exchange.status, exchange)


@probes.add
async def several_questions_are_answered_at_once(ctx: Ctx) -> None:
    trigger = trigger_for(ctx, "questions")
    done = await ctx.once(run_and_wait, LAYOUT, "questions")
    thread_id, exchange = done.thread_id, done.exchange
    ids = _ids(_interrupts(exchange.json))
    state = await _state(ctx, thread_id)
    check_shown(len(ids) > 1 or len(as_list(dig(state.json, "interrupts"))) > 1, "questions", "asked once")
    check(len(ids) > 1, "several questions", exchange.json, exchange)
    body = ctx.target.body(trigger, command={"resume": dict.fromkeys(ids, trigger.answer)})
    body.pop("input")
    answered = await ctx.target.create(LAYOUT, thread_id, body, "wait")
    check(answered.status == 200, "answers by their ids are accepted", answered.status, answered)
    check(not _interrupts(answered.json), "no question is left", answered.json, answered)


@probes.add
async def run_can_stop_before_a_node(ctx: Ctx) -> None:
    thread_id = await ctx.target.new_thread()
    body = ctx.target.body(trigger_for(ctx, "plain"))
    stopped = await ctx.target.create(LAYOUT, thread_id, {**body, "interrupt_before": "*"}, "wait")
    check(stopped.status == 200, "interrupt_before is answered with 200", stopped.status, stopped)
    state = await _state(ctx, thread_id)
    check(bool(dig(state.json, "next")), "a node is next", state.json, state)
    thread = await ctx.target.thread(thread_id)
    check(dig(thread.json, "status") == "interrupted", "the thread is interrupted", thread.json, thread)
    exchange = await ctx.target.create(LAYOUT, thread_id, {**body, "input": None}, "wait")
    answers = ctx.target.answers(as_list(dig(exchange.json, "messages")))
    check(bool(answers), "the run continues with an input of null", exchange.json, exchange)


def _ids(interrupts: list[Any]) -> list[str]:
    return sorted(str(dig(each, "id")) for each in interrupts)
