"""Scenes for A2A: requests whose results several probes examine. Each is played once for each binding."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from babelgate.conformance.probe import Probe
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import (
    INTERRUPTED,
    TERMINAL,
    A2aEventStream,
    A2aReply,
    Binding,
    is_reason,
    state_of,
)
from babelgate.conformance.verdict import (
    Failed,
    NotApplicable,
    NotObserved,
    NotShown,
    Prerequisite,
    check,
    check_busy,
    check_shown,
)
from babelgate.conformance.wire.exchange import Exchange, dig
from babelgate.conformance.wire.http import Unanswered


def each_binding(probe: Callable[[Ctx, str], Awaitable[None]]) -> Probe[A2aTarget]:
    """Wrap a probe that has a binding as its second argument, so that it tests every binding of the agent.

    A failure names the binding. If one binding shows the behaviour and passes, NotObserved and NotApplicable of another
    are ignored. NotShown is not ignored: all bindings lead to the same agent, so one that does not show a behaviour may
    report it wrongly.
    """

    @wraps(probe)
    async def run(ctx: Ctx) -> None:
        unseen: list[NotObserved | NotApplicable] = []
        failed: list[Failed] = []
        for binding in ctx.target.bindings:
            try:
                await probe(ctx, binding.name)
            except Failed as error:
                failed.append(type(error)(f"{error.expected} ({binding.name})", error.actual, error.exchange))
            except Unanswered as error:
                failed.append(Failed(f"an answer: {error} ({binding.name})", None, error.exchange))
            except (NotObserved, NotApplicable) as error:
                unseen.append(error)
        if failed:
            # A failure of the probe itself says more than a failed precondition.
            raise next((each for each in failed if not isinstance(each, Prerequisite)), failed[0])
        unshown = [each for each in unseen if isinstance(each, NotShown)]
        if unshown or (unseen and len(unseen) == len(ctx.target.bindings)):
            raise (unshown or unseen)[0]

    return run


def require_http(binding: str, why: str) -> None:
    """Raise NotApplicable if the binding is gRPC. `why` is the reason, as a phrase that follows "gRPC"."""
    if binding == "GRPC":
        raise NotApplicable(f"gRPC {why}")


async def reply_to(ctx: Ctx, binding: str, behaviour: str, **configuration: Any) -> A2aReply:
    """Send a message that triggers a behaviour, and return the reply. Raises Failed if the agent refuses the message,
    and NotShown if it does not show the behaviour."""
    agent = await agent_for(ctx, behaviour)
    chosen = agent[binding]
    if chosen.is_first_generation:
        # 0.3 does not define whether a send without this setting waits.
        configuration.setdefault("returnImmediately", False)
    params: dict[str, Any] = {"message": message(ctx.triggers[behaviour].text)}
    if configuration:
        params["configuration"] = configuration
    reply = await chosen.call("SendMessage", params)
    check(not reply.reason, "SendMessage succeeds", reply.reason, reply.exchange)
    check(reply.task is not None or reply.message is not None, "a task or a message from SendMessage", reply.result)
    check_behaviour(behaviour, state_of(reply.task) if reply.task is not None else "")
    return reply


_FAILED: Final = frozenset({"TASK_STATE_FAILED", "TASK_STATE_REJECTED"})
_OTHER_STATES: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("question", "questions", "approval", "auth"), TERMINAL),
    **dict.fromkeys(("fail", "reject"), (TERMINAL | INTERRUPTED) - _FAILED),
    "message": TERMINAL | INTERRUPTED,
}
"""Final states of a task that show that the agent did not do what the trigger is for, by behaviour."""


def check_behaviour(behaviour: str, state: str) -> None:
    """Check that the final state of a task fits a behaviour. Raises NotShown if it shows that the agent did something
    else.

    An empty state means that the agent answered with a message.
    """
    others = _OTHER_STATES.get(behaviour)
    if others is not None:
        check_shown(bool(state) or behaviour == "message", behaviour, "answered with a message")
        name = state.removeprefix("TASK_STATE_").lower().replace("_", "-")
        check_shown(state not in others, behaviour, f"returned a task with the state {name}")


async def final_reply(ctx: Ctx, binding: str, behaviour: str) -> A2aReply:
    """Return the agent's whole reply to a message that triggers a behaviour (`reply_to`). The scene is played once, so
    that probes share the task."""
    return await reply_to(ctx, binding, behaviour)


async def plain(ctx: Ctx, binding: str) -> A2aReply:
    """Return the reply to a message that triggers the behaviour `plain`: it has a task or a message."""
    return await ctx.subject(final_reply, binding, "plain")


async def plain_task(ctx: Ctx, binding: str) -> A2aReply:
    """Return the reply to a plain message whose task has ended. Raises NotObserved if the agent answers with messages
    instead of tasks."""
    reply = await ctx.once(plain, binding)
    if reply.task is None:
        raise NotObserved("the agent answers with messages, not with tasks", "plain")
    check(isinstance(dig(reply.task, "id"), str), "the task has an id", reply.task, reply.exchange)
    return reply


def require_stream(stream: A2aEventStream) -> None:
    """Raise Prerequisite unless the response is a stream."""
    if not stream.exchange.is_stream:
        raise Prerequisite("a stream of events", stream.reply.reason_or_result, stream.exchange)


def context_of(reply: A2aReply) -> str:
    """Return the contextId of the task in a reply.

    Raises Prerequisite if it is missing, and NotObserved if the reply is a message without a task.
    """
    if reply.task is None and reply.message is not None:
        raise NotObserved("the agent answers with messages, not with tasks", "plain")
    context = dig(reply.task, "contextId")
    if not isinstance(context, str):
        raise Prerequisite("a task in a context", reply.reason_or_result, reply.exchange)
    return context


async def get(agent: A2aTarget, binding: str, id: str, **params: Any) -> Any:
    """Return a task by its id, by GetTask. Raises Prerequisite if the request fails."""
    reply = await agent[binding].call("GetTask", {"id": id, **params})
    if reply.reason:
        raise Prerequisite(f"an answer to GetTask of {id}", reply.reason, reply.exchange)
    return reply.result


def check_refusal(reply: A2aReply, *reasons: str) -> None:
    """Raise Failed unless the reply is an error with one of the reasons, or any error if no reason is listed."""
    expected = f"the error {' or '.join(reasons)}" if reasons else "an error"
    is_right = any(is_reason(reply, reason) for reason in reasons) if reasons else bool(reply.reason)
    check(is_right, expected, reply.reason_or_result, reply.exchange)


@dataclass(frozen=True, slots=True)
class A2aStream:
    """Stream of a message that was read to its end. `payloads` are its events as StreamResponse objects."""

    exchange: Exchange
    payloads: list[Any]
    rest: str
    """Raw text of an incomplete event at the end of the stream; empty if there is none."""

    @property
    def task(self) -> Any:
        """Task in the first event. If the first event is an update, which 0.3 allows, an object with only the ids of
        the task."""
        return task_of(self.payloads[0])

    @property
    def updates(self) -> list[Any]:
        """Status updates and artifact updates of the stream, in order."""
        found = [dig(each, "statusUpdate") or dig(each, "artifactUpdate") for each in self.payloads]
        return [each for each in found if each is not None]

    @property
    def states(self) -> list[str]:
        carriers = [dig(each, "task") or dig(each, "statusUpdate") for each in self.payloads]
        return [state_of(each) for each in carriers if each is not None]


def task_of(event: Any) -> Any:
    """Return the task in a StreamResponse. For an update, return an object with only the ids of its task, and for a
    message None."""
    task = dig(event, "task")
    update = dig(event, "statusUpdate") or dig(event, "artifactUpdate")
    if task is not None or update is None:
        return task
    return {"id": dig(update, "taskId"), "contextId": dig(update, "contextId")}


async def stream_message(ctx: Ctx, binding: str, behaviour: str) -> A2aStream:
    """Send a message that triggers a behaviour, and return its stream after the end. Raises Failed if the response is
    not a stream with events."""
    agent = await agent_for(ctx, behaviour)
    params = {"message": message(ctx.triggers[behaviour].text)}
    async with agent[binding].stream("SendStreamingMessage", params) as stream:
        check(stream.exchange.status == 200, "the stream begins with status 200", stream.exchange.status)
        actual = stream.exchange.rpc_status or stream.exchange.media_type
        check(stream.exchange.is_stream, "the stream is of type text/event-stream", actual)
        with suppress(Unanswered):  # Another probe tests whether a stream ends.
            await stream.stream.rest_of_it()
        check(bool(stream.payloads), "the stream has events")
        return A2aStream(stream.exchange, stream.payloads, stream.stream.rest)


async def shown_stream(ctx: Ctx, binding: str, behaviour: str) -> A2aStream:
    """Return the stream of a message that triggers a behaviour. Raises NotShown if the final state shows that the agent
    did something else."""
    streamed = await ctx.once(stream_message, binding, behaviour)
    is_message = dig(streamed.payloads[0], "message") is not None
    check_behaviour(behaviour, "" if is_message else (streamed.states or ["unknown"])[-1])
    return streamed


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """Question of an agent that the check has answered: the reply with the question, and the reply to the answer."""

    agent: A2aTarget
    question: A2aReply
    answer: A2aReply


async def answer_question(ctx: Ctx, binding: str, behaviour: str) -> AnsweredQuestion:
    """Send a message that makes the agent ask, answer the question, and return both replies. The probes judge whether
    the agent accepted the answer."""
    agent = await agent_for(ctx, behaviour)
    question = await ctx.once(final_reply, binding, behaviour)
    answer = follow_up(question.task, str(ctx.triggers[behaviour].answer))
    return AnsweredQuestion(agent, question, await agent[binding].call("SendMessage", {"message": answer}))


def follow_up(task: Mapping[str, Any], text: str, **members: Any) -> dict[str, Any]:
    """Return a message of the user that continues a task: it has the task's ids. `members` replace or add members."""
    ids = {"taskId": task["id"], "contextId": task.get("contextId")}
    return message(text, **{name: value for name, value in {**ids, **members}.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Long:
    """Running task of the behaviour `long`, with the agent and the binding through which it was started."""

    agent: A2aTarget
    binding: Binding
    task: Any

    @property
    def id(self) -> str:
        return self.task["id"]

    async def get(self) -> Any:
        return await get(self.agent, self.binding.name, self.id)


@asynccontextmanager
async def long_task(ctx: Ctx, binding: str, **configuration: Any) -> AsyncGenerator[Long]:
    """Start a task of the behaviour `long` and yield it while it runs; cancel it at the end. Raises NotShown if the
    agent does not work for at least BUSY seconds."""
    await ctx.once(stay_busy, binding)
    async with _start_task(ctx, binding, **configuration) as long:
        yield long


async def stay_busy(ctx: Ctx, binding: str) -> None:
    """Start a task of the behaviour `long` and read its state after BUSY seconds. Raises NotShown if it has ended by
    then."""
    since = asyncio.get_running_loop().time()
    async with _start_task(ctx, binding) as long:

        async def is_running() -> bool:
            reply = await long.binding.call("GetTask", {"id": long.id})
            return bool(reply.reason) or state_of(reply.result) not in TERMINAL | INTERRUPTED

        await check_busy(since, is_running)


@asynccontextmanager
async def _start_task(ctx: Ctx, binding: str, **configuration: Any) -> AsyncGenerator[Long]:
    agent = await agent_for(ctx, "long")
    chosen = agent[binding]
    params = {
        "message": message(ctx.triggers["long"].text),
        "configuration": {"returnImmediately": True, **configuration},
    }
    try:
        reply = await chosen.call("SendMessage", params)
    except Unanswered as error:
        raise Prerequisite("an immediate answer to a message that requests it", str(error), error.exchange) from None
    if reply.reason or reply.task is None:
        raise Prerequisite("an immediate task for a message that requests it", reply.reason_or_result, reply.exchange)
    if state_of(reply.task) in TERMINAL | INTERRUPTED:
        raise NotObserved("the agent finished immediately; it needs an input that starts a long task", "long")
    try:
        yield Long(agent, chosen, reply.task)
    finally:
        with suppress(Unanswered):
            await chosen.call("CancelTask", {"id": reply.task["id"]})
