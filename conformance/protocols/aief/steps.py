"""Probes that test the steps of AIEF tasks."""

import asyncio
from contextlib import suppress
from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.aief.scenes import (
    Executed,
    execute,
    execute_step,
    new_task,
    play_past_end,
    play_task,
)
from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx, agent_for, items_of
from babelgate.conformance.samples import WORDS, check_repeated
from babelgate.conformance.verdict import BUSY, NotObserved, check, check_shown
from babelgate.conformance.wire.exchange import dig
from babelgate.conformance.wire.http import Unanswered

probes: Final = Probes[AiefTarget]()

_POLL_INTERVAL: Final = 0.1
"""Seconds between two reads of a running step, because AIEF has no request that waits for it. Chosen."""


@probes.add
async def step_is_executed(ctx: Ctx) -> None:
    await ctx.once(execute_step)


@probes.add
async def executed_step_is_completed(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    check(dig(done.step, "status") == "completed", "the status completed", done.step, done.exchange)


@probes.add
async def step_names_its_task(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    check(dig(done.step, "task_id") == done.task_id, f"the task_id {done.task_id}", done.step, done.exchange)


@probes.add
async def step_keeps_its_input(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    text = ctx.triggers["plain"].text
    check(dig(done.step, "input") == text, f"the step's input is {text!r}", done.step, done.exchange)


@probes.add
async def step_has_an_output(ctx: Ctx) -> None:
    done = await ctx.once(play_task, "plain")
    texts = [dig(step, "output") for step in done.steps]
    check(any(isinstance(text, str) and text for text in texts), "an output that is not empty", done.steps)


@probes.add
async def step_needs_no_body(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    agent = await agent_for(ctx, "plain")
    exchange = await agent.execute_step(await new_task(agent, ctx.triggers["plain"].text))
    check(exchange.status == 200, "a step without a body is executed", exchange.status, exchange)


@probes.add
async def step_is_found_again(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    step_id = dig(done.step, "step_id")
    exchange = await done.agent.step(done.task_id, step_id)
    check(exchange.status == 200, "the step is found with status 200", exchange.status, exchange)
    check(dig(exchange.json, "step_id") == step_id, f"the step {step_id}", exchange.json, exchange)


@probes.add
async def step_is_found_as_it_was_answered(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    exchange = await done.agent.step(done.task_id, dig(done.step, "step_id"))
    for name in ("status", "output", "is_last"):
        check(dig(exchange.json, name) == dig(done.step, name), f"{name} as it was answered", exchange.json, exchange)


@probes.add
async def first_step_is_planned(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    agent = await agent_for(ctx, "plain")
    exchange = await agent.steps(await new_task(agent, ctx.triggers["plain"].text))
    steps = items_of(exchange, "steps")
    check(bool(steps), "a new task lists its first step", exchange.json, exchange)
    check(dig(steps, 0, "status") == "created", "the status created", steps[0], exchange)


@probes.add
async def planned_step_keeps_its_id(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    agent = await agent_for(ctx, "plain")
    task_id = await new_task(agent, ctx.triggers["plain"].text)
    planned = dig(items_of(await agent.steps(task_id), "steps"), 0, "step_id")
    if planned is None:
        raise NotObserved("a new task lists no step")
    done = await execute(agent, task_id, ctx.triggers["plain"].text)
    check(dig(done.step, "step_id") == planned, f"the step {planned}, which was listed", done.step, done.exchange)


@probes.add
async def agent_comes_to_an_end(ctx: Ctx) -> None:
    done = await ctx.once(play_task, "plain")
    is_last = dig(done.steps[-1], "is_last")
    check(is_last is True, f"is_last within {len(done.steps)} steps", done.steps[-1], done.exchanges[-1])


@probes.add
async def only_the_last_step_is_last(ctx: Ctx) -> None:
    done = await ctx.once(play_task, "plain")
    listed = items_of(await done.agent.steps(done.task_id, page_size=100), "steps")
    last = [dig(step, "step_id") for step in listed if dig(step, "is_last") is True]
    check(last == [dig(done.steps[-1], "step_id")], "one listed step with is_last true", listed)


@probes.add
async def step_after_the_last_is_taken(ctx: Ctx) -> None:
    done = await ctx.once(play_past_end)
    check(done.exchange.status == 200, "one more step is answered with 200", done.exchange.status, done.exchange)


@probes.add
async def steps_have_unique_ids(ctx: Ctx) -> None:
    several = await ctx.once(play_task, "steps" if "steps" in ctx.triggers else "plain")
    other = await ctx.once(execute_step)
    ids = [str(dig(each, "step_id")) for each in (*several.steps, other.step)]
    check(len(ids) == len(set(ids)), f"{len(ids)} steps have {len(ids)} ids", ids, other.exchange)


@probes.add
async def steps_at_once_are_two_steps(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    agent = await agent_for(ctx, "plain")
    text = ctx.triggers["plain"].text
    task_id = await new_task(agent, text)
    answers = await asyncio.gather(*(agent.execute_step(task_id, {"input": text}) for _ in range(2)))
    for each in answers:
        check(each.status == 200, "two concurrent steps are answered with 200", each.status, each)
    ids = [dig(each.json, "step_id") for each in answers]
    check(ids[0] != ids[1], "two different steps", ids, answers[1])


@probes.add
async def text_beyond_ascii_is_taken(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    agent = await agent_for(ctx, "plain")
    task_id = await new_task(agent, WORDS)
    task = await agent.task(task_id)
    # Other requirements test whether a task has an input at all.
    check(dig(task.json, "input") in (WORDS, None), f"the input as it was sent, {WORDS!r}", task.json, task)
    done = await execute(agent, task_id, WORDS)
    check(dig(done.step, "input") in (WORDS, None), f"the input as it was sent, {WORDS!r}", done.step, done.exchange)
    check_repeated(str(dig(done.step, "output")), done.exchange)


@probes.add
async def question_is_not_the_last_step(ctx: Ctx) -> None:
    question = await ctx.once(_run_question)
    check(dig(question.step, "status") == "completed", "the status completed", question.step, question.exchange)
    check(dig(question.step, "is_last") is False, "is_last is false: the agent waits", question.step, question.exchange)


@probes.add
async def question_is_told(ctx: Ctx) -> None:
    question = await ctx.once(_run_question)
    check(bool(dig(question.step, "output")), "the question in the output", question.step, question.exchange)


@probes.add
async def answer_goes_into_the_next_step(ctx: Ctx) -> None:
    question = await ctx.once(_run_question)
    answer = str(ctx.triggers["question"].answer)
    done = await execute(question.agent, question.task_id, answer)
    check(dig(done.step, "is_last") is True, "the answered agent ends", done.step, done.exchange)
    output = str(dig(done.step, "output"))
    check(answer in output, f"an output that uses the answer {answer!r}", done.step, done.exchange)


@probes.add
async def failure_is_told(ctx: Ctx) -> None:
    agent = await agent_for(ctx, "fail")
    text = ctx.triggers["fail"].text
    exchange = await agent.execute_step(await new_task(agent, text), {"input": text})
    if exchange.status == 200:
        explanation = dig(exchange.json, "additional_output") or dig(exchange.json, "output")
        check(dig(exchange.json, "is_last") is True, "the failed step is the last", exchange.json, exchange)
        check(bool(explanation), "an explanation of the failure", exchange.json, exchange)
    else:
        check((exchange.status or 0) >= 400, "an error", exchange.status, exchange)
        check(bool(exchange.content), "an error with a body", exchange.status, exchange)


@probes.add
async def failed_step_does_not_run_for_ever(ctx: Ctx) -> None:
    agent = await agent_for(ctx, "fail")
    text = ctx.triggers["fail"].text
    task_id = await new_task(agent, text)
    await agent.execute_step(task_id, {"input": text})
    listed = await agent.steps(task_id, page_size=100)
    running = [each for each in items_of(listed, "steps") if dig(each, "status") == "running"]
    check(listed.status == 200, "its steps are listed", listed.status, listed)
    check(not running, "no step is still running", running, listed)


@probes.add
async def step_at_work_is_shown_as_running(ctx: Ctx) -> None:
    agent = await agent_for(ctx, "long")
    await ctx.once(_stay_busy)
    text = ctx.triggers["long"].text
    task_id = await new_task(agent, text)
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        working = group.create_task(_execute_until(agent, task_id, text, ctx.options.timeout / 2, is_over))
        statuses = await _watch(agent, task_id, is_over)
        working.cancel()
    check("running" in statuses, "the step of a running task is running", sorted(statuses))


async def _stay_busy(ctx: Ctx) -> None:
    """Execute a step with the trigger `long` and disconnect after BUSY seconds. Raises NotShown if the response arrives
    before."""
    agent = await agent_for(ctx, "long")
    text = ctx.triggers["long"].text
    try:
        await agent.execute_step(await new_task(agent, text), {"input": text}, bound=BUSY)
    except Unanswered:
        return
    check_shown(False, "long", f"was done within {BUSY:g} s")


async def _watch(agent: AiefTarget, task_id: str, is_over: asyncio.Event) -> set[str]:
    """Read the steps of a task again and again until one is running or `is_over` is set. Return all statuses that were
    seen."""
    statuses: set[str] = set()
    while not is_over.is_set() and "running" not in statuses:
        listed = await agent.steps(task_id, page_size=100)
        statuses |= {str(dig(each, "status")) for each in items_of(listed, "steps")}
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_INTERVAL):
                await is_over.wait()
    return statuses


async def _execute_until(agent: AiefTarget, task_id: str, text: str, bound: float, is_over: asyncio.Event) -> None:
    """Execute a step with this text. When the response arrives, or after `bound` seconds, set `is_over`."""
    try:
        await agent.execute_step(task_id, {"input": text}, bound=bound)
    except Unanswered:
        return
    finally:
        is_over.set()


async def _run_question(ctx: Ctx) -> Executed:
    """Execute the first step of a task with the trigger `question`, and return the step. Raises NotShown if it is the
    last one, so that the agent did not ask."""
    agent = await agent_for(ctx, "question")
    text = ctx.triggers["question"].text
    question = await execute(agent, await new_task(agent, text), text)
    # Only `is_last` distinguishes a question from an answer.
    check_shown(dig(question.step, "is_last") is not True, "question", "was done with its first step")
    return question
