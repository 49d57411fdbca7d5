"""Scenes for AIEF: requests whose results several probes examine. Each is played once per check."""

from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx, agent_for
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, dig

_MAX_STEPS: Final = 25
"""Maximum number of steps that a task is given to reach its last step. Chosen."""


@dataclass(frozen=True, slots=True)
class Executed:
    agent: AiefTarget
    task_id: str
    exchange: Exchange
    step: Any
    """Step as in the response to the POST that executed it."""


@dataclass(frozen=True, slots=True)
class ExecutedTask:
    """Task whose steps were executed up to the last one, or up to the limit."""

    agent: AiefTarget
    task_id: str
    steps: list[Any]
    exchanges: list[Exchange]


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    task_id: str
    exchange: Exchange
    artifact: Any
    content: bytes


INPUT: Final = {"input": "Hello", "additional_input": {"deep": {"list": [1, None, "ä"]}, "is_set": True}}


async def create_task(ctx: Ctx) -> Exchange:
    """Create a task whose request has every member that the protocol defines, and return the exchange. Raises Failed if
    the server does not create it."""
    exchange = await ctx.target.create_task({**INPUT, "input": ctx.triggers["plain"].text})
    check(exchange.status == 200, "a task is created with status 200", exchange.status, exchange)
    check(isinstance(dig(exchange.json, "task_id"), str), "the task has a task_id", exchange.json, exchange)
    return exchange


async def new_task(agent: AiefTarget, text: str) -> str:
    """Create a task with this input and return its id. Each call creates another one, for probes that change the task.
    Raises Failed if the server does not create it."""
    exchange = await agent.create_task({"input": text})
    task_id = dig(exchange.json, "task_id")
    check(exchange.status == 200 and isinstance(task_id, str), "a task is created", exchange.json, exchange)
    return task_id


async def execute(agent: AiefTarget, task_id: str, text: str | None, bound: float | None = None) -> Executed:
    exchange = await agent.execute_step(task_id, {"input": text} if text is not None else None, bound=bound)
    check(exchange.status == 200, "a step is executed with status 200", exchange.status, exchange)
    check(isinstance(dig(exchange.json, "step_id"), str), "the step has a step_id", exchange.json, exchange)
    return Executed(agent, task_id, exchange, exchange.json)


async def execute_step(ctx: Ctx) -> Executed:
    """Create a task and execute its first step, with the trigger `plain`. Return the step. Raises Failed if the server
    refuses a request."""
    agent = await agent_for(ctx, "plain")
    text = ctx.triggers["plain"].text
    return await execute(agent, await new_task(agent, text), text)


async def play_task(ctx: Ctx, behaviour: str) -> ExecutedTask:
    """Create a task that triggers a behaviour, execute steps up to its last one, and return all of them. Only the first
    step has an input. Raises Failed if the server refuses a request."""
    agent = await agent_for(ctx, behaviour)
    text = ctx.triggers[behaviour].text
    task_id = await new_task(agent, text)
    steps: list[Any] = []
    exchanges: list[Exchange] = []
    for number in range(_MAX_STEPS):
        done = await execute(agent, task_id, text if number == 0 else None)
        steps.append(done.step)
        exchanges.append(done.exchange)
        if dig(done.step, "is_last") is True:
            break
    return ExecutedTask(agent, task_id, steps, exchanges)


async def play_to_end(ctx: Ctx) -> Executed:
    """Create a task, execute steps up to its last one, and return the step that was executed last. Raises Failed if the
    server refuses a request."""
    agent = await agent_for(ctx, "plain")
    text = ctx.triggers["plain"].text
    task_id = await new_task(agent, text)
    done = await execute(agent, task_id, text)
    for _ in range(_MAX_STEPS - 1):
        if dig(done.step, "is_last") is True:
            break
        done = await execute(agent, task_id, None)
    return done


async def play_past_end(ctx: Ctx) -> Executed:
    """Execute one more step of a task after its last one, and return the response. Raises NotObserved if the task does
    not reach a last step."""
    done = await ctx.once(play_to_end)
    if dig(done.step, "is_last") is not True:
        raise NotObserved("the agent does not reach its last step")
    exchange = await done.agent.execute_step(done.task_id, {"input": ctx.triggers["plain"].text})
    return Executed(done.agent, done.task_id, exchange, exchange.json)


async def upload_file(ctx: Ctx) -> StoredArtifact:
    """Upload a file that contains every byte value to a new task, and return the artifact. Raises Failed if the server
    refuses the file."""
    content = bytes(range(256)) + b"\r\n--not the boundary--\r\n"
    task_id = await new_task(ctx.target, "Hello")
    exchange = await ctx.target.upload(task_id, content, "bytes.bin", "data/raw")
    check(exchange.status == 200, "an upload is answered with status 200", exchange.status, exchange)
    check(isinstance(dig(exchange.json, "artifact_id"), str), "it has an artifact_id", exchange.json, exchange)
    return StoredArtifact(task_id, exchange, exchange.json, content)


async def page_of_tasks(ctx: Ctx) -> Exchange:
    """Create two tasks, and return the response to a request for the first page of the list, with one task per page."""
    for _ in range(2):
        await new_task(ctx.target, "Hello")
    exchange = await ctx.target.tasks(current_page=1, page_size=1)
    check(exchange.status == 200, "tasks are listed with status 200", exchange.status, exchange)
    return exchange
