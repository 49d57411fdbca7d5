"""Probes that test SendStreamingMessage of A2A: its events, and their order."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import INTERRUPTED, TERMINAL, A2aEventStream, state_of
from babelgate.conformance.protocols.a2a.scenes import (
    A2aStream,
    each_binding,
    get,
    plain,
    require_http,
    require_stream,
    shown_stream,
    stay_busy,
    stream_message,
    task_of,
)
from babelgate.conformance.verdict import Failed, NotObserved, Prerequisite, check
from babelgate.conformance.wire.exchange import as_list, dig
from babelgate.conformance.wire.http import Unanswered

probes: Final = Probes[A2aTarget]()


async def task_stream(ctx: Ctx, binding: str, behaviour: str) -> A2aStream:
    """Return the stream of a message that triggers a behaviour, if it is about a task. Raises NotObserved if the agent
    answers with a message, and Prerequisite if the stream has no task."""
    streamed = await shown_stream(ctx, binding, behaviour)
    if dig(streamed.payloads[0], "message") is not None:
        raise NotObserved("the agent answers with messages, not with tasks", behaviour)
    if streamed.task is None:
        raise Prerequisite("a stream about a task", streamed.payloads[0], streamed.exchange)
    return streamed


async def first_of(stream: A2aEventStream) -> Any:
    """Read the first event of a stream and return the task in it, or its ids. Raises Prerequisite if the response is no
    stream, or has no task."""
    require_stream(stream)
    first = await stream.next()
    task = task_of(first)
    if not isinstance(dig(task, "id"), str):
        raise Prerequisite("a stream about a task", first, stream.exchange)
    return task


_Content = tuple[str, list[Any]]
"""Text of an artifact, and those of its parts that are not text."""


def streamed_artifacts(streamed: A2aStream) -> list[tuple[str, _Content]]:
    """Return the artifacts that result from all artifact updates of a stream, as pairs of id and content, sorted by
    id."""
    contents = {str(dig(each, "artifactId")): _content(each) for each in as_list(dig(streamed.task, "artifacts"))}
    for update in streamed.updates:
        artifact = dig(update, "artifact")
        if artifact is not None:
            id = str(dig(artifact, "artifactId"))
            text, others = contents.get(id, ("", [])) if dig(update, "append") is True else ("", [])
            more = _content(artifact)
            contents[id] = text + more[0], [*others, *more[1]]
    return sorted(contents.items(), key=lambda each: each[0])


def kept_artifacts(task: Any) -> list[tuple[str, _Content]]:
    """Return the artifacts that a stored task has, as pairs of id and content, sorted by id, to be compared with
    `streamed_artifacts`. An id that occurs twice in the task is in the list twice."""
    found = [(str(dig(each, "artifactId")), _content(each)) for each in as_list(dig(task, "artifacts"))]
    return sorted(found, key=lambda each: each[0])


def _content(artifact: Any) -> _Content:
    parts = as_list(dig(artifact, "parts"))
    others = [{name: value for name, value in part.items() if value} for part in parts if dig(part, "text") is None]
    return "".join(str(dig(part, "text") or "") for part in parts), others


@probes.add
@each_binding
async def stream_is_an_event_stream(ctx: Ctx, binding: str) -> None:
    require_http(binding, "streams messages of its own")
    agent = await agent_for(ctx, "plain")
    await ctx.once(plain, binding)
    params = {"message": message(ctx.triggers["plain"].text)}
    async with agent[binding].stream("SendStreamingMessage", params) as stream:
        check(stream.exchange.status == 200, "status 200", stream.exchange.status, stream.exchange)
        check(stream.exchange.is_stream, "text/event-stream", stream.exchange.media_type, stream.exchange)
        check(await stream.next() is not None, "an event", None, stream.exchange)


@probes.add
@each_binding
async def stream_begins_with_the_task(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(stream_message, binding, "plain")
    first = streamed.payloads[0]
    is_start = dig(first, "task") is not None or dig(first, "message") is not None
    check(is_start, "the first event is a task or a message", first, streamed.exchange)


@probes.add
@each_binding
async def after_the_task_come_updates(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    for each in streamed.payloads[1:]:
        check(dig(each, "message") is None, "status and artifact updates only", each, streamed.exchange)


@probes.add
@each_binding
async def stream_of_a_message_is_one_event(ctx: Ctx, binding: str) -> None:
    streamed = await shown_stream(ctx, binding, "message")
    check(dig(streamed.payloads[0], "message") is not None, "a message", streamed.payloads[0], streamed.exchange)
    check(
        len(streamed.payloads) == 1 and streamed.exchange.is_ended,
        "nothing after it",
        streamed.payloads,
        streamed.exchange,
    )


@probes.add
@each_binding
async def stream_ends_with_the_task(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "plain")
    last = streamed.states[-1] if streamed.states else None
    check(last in TERMINAL | INTERRUPTED, "a last state that is terminal or interrupted", last, streamed.exchange)


@probes.add
@each_binding
async def stream_is_closed_at_the_end(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(stream_message, binding, "plain")
    check(streamed.exchange.is_ended, "the agent closes the stream", streamed.exchange.error, streamed.exchange)
    check(not streamed.rest, "no unfinished event at the end", streamed.rest, streamed.exchange)


@probes.add
@each_binding
async def nothing_comes_after_the_end(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    carriers = [dig(each, "task") or dig(each, "statusUpdate") for each in streamed.payloads]
    ends = [at for at, each in enumerate(carriers) if state_of(each) in TERMINAL]
    check(bool(ends), "a terminal state", streamed.states, streamed.exchange)
    after = streamed.payloads[ends[0] + 1 :]
    check(not after, "no event after the first terminal state", after, streamed.exchange)


@probes.add
@each_binding
async def updates_are_about_the_task(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    expected = (dig(streamed.task, "id"), dig(streamed.task, "contextId"))
    for update in streamed.updates:
        actual = (dig(update, "taskId"), dig(update, "contextId"))
        check(actual == expected, f"taskId and contextId of the task, {expected}", actual, streamed.exchange)


@probes.add
@each_binding
async def stream_adds_up_to_the_task(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    task = await get(await agent_for(ctx, "stream"), binding, str(dig(streamed.task, "id")))
    artifacts, expected = kept_artifacts(task), streamed_artifacts(streamed)
    check(artifacts == expected, f"the artifacts that were streamed, {expected}", artifacts)


@probes.add
@each_binding
async def stream_and_task_end_alike(ctx: Ctx, binding: str) -> None:
    ends = await ctx.once(task_stream, binding, "stream")
    for behaviour in ("stream", "question", "fail"):
        if behaviour != "stream" and (behaviour not in ctx.triggers or ctx.triggers[behaviour].is_never):
            continue
        # The task must report the same end as the stream, even if the agent did not show the behaviour.
        streamed = ends if behaviour == "stream" else await ctx.once(stream_message, binding, behaviour)
        if streamed.task is not None:
            task = await get(await agent_for(ctx, behaviour), binding, str(dig(streamed.task, "id")))
            last = streamed.states[-1] if streamed.states else None
            check(state_of(task) == last, f"the last state that was streamed, {last}", state_of(task))


@probes.add
@each_binding
async def pieces_are_appended_to_what_began(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    begun = {str(dig(each, "artifactId")) for each in as_list(dig(streamed.task, "artifacts"))}
    for update in streamed.updates:
        id = dig(update, "artifact", "artifactId")
        if id is None:
            continue
        is_first = str(id) not in begun
        check(not (is_first and dig(update, "append") is True), "append only for an artifact that has begun", update)
        begun.add(str(id))


@probes.add
@each_binding
async def last_piece_says_so(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "stream")
    pieces: dict[str, list[Any]] = {}
    for update in streamed.updates:
        id = dig(update, "artifact", "artifactId")
        if id is not None:
            pieces.setdefault(str(id), []).append(dig(update, "lastChunk"))
    parted = {id: flags for id, flags in pieces.items() if len(flags) > 1}
    if not parted:
        raise NotObserved("no artifact had several chunks", "stream")
    for id, flags in parted.items():
        check(flags[-1] is True and True not in flags[:-1], f"lastChunk only on the last chunk of {id}", flags)


@probes.add
@each_binding
async def streams_come_as_the_agent_works(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "long")
    await ctx.once(stay_busy, binding)
    params = {"message": message(ctx.triggers["long"].text)}
    async with agent[binding].stream("SendStreamingMessage", params) as stream:
        try:
            task = await first_of(stream)
        except Unanswered as error:
            raise Failed("an event while the agent runs", str(error), error.exchange) from None
        state = state_of(await get(agent, binding, task["id"]))
        check(state not in TERMINAL, "a task that is still running", state, stream.exchange)
    await agent[binding].call("CancelTask", {"id": task["id"]})


@probes.add
@each_binding
async def failure_ends_the_stream(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "fail")
    last = streamed.states[-1] if streamed.states else None
    check(last == "TASK_STATE_FAILED", "failed as the last state", last, streamed.exchange)
    check(streamed.exchange.is_ended, "the agent closes the stream", streamed.exchange.error, streamed.exchange)


@probes.add
@each_binding
async def one_working_task_has_one_end(ctx: Ctx, binding: str) -> None:
    streamed = await ctx.once(task_stream, binding, "plain")
    ends = [state for state in streamed.states if state in TERMINAL]
    check(len(ends) == 1, "one terminal state", streamed.states, streamed.exchange)


@probes.add
@each_binding
async def a_reader_that_leaves_stops_nothing(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "long")
    await ctx.once(stay_busy, binding)
    params = {"message": message(ctx.triggers["long"].text)}
    async with agent[binding].stream("SendStreamingMessage", params) as stream:
        try:
            task = await first_of(stream)
        except Unanswered as error:
            raise Prerequisite("an event while the agent runs", str(error), error.exchange) from None
    state = state_of(await get(agent, binding, task["id"]))
    check(state in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"), "a task that continues", state)
    await agent[binding].call("CancelTask", {"id": task["id"]})
