"""Which of a server's threads a run goes into, and changes of its state."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from babelgate.adapters.kit.client.blame import decode_reply
from babelgate.adapters.langchain.client.attempt import Attempt
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.resume import NOT_THERE
from babelgate.adapters.langchain.client.urls import Layout, Route, check_id
from babelgate.adapters.langchain.errors.decode import status_of
from babelgate.adapters.langchain.request import encode_update
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import FaultCode, FaultError, Invocation
from babelgate.canonical.event import LossNoted, StateSaved
from babelgate.canonical.feature import Feature
from babelgate.canonical.json import as_object


async def place(http: HttpClient, work: Attempt, call: Invocation, layout: Layout, *, forks: bool = False) -> None:
    """`forks` = a thread that begins does so with the state of another one. Raises agent_invalid."""
    work.route = Route(layout, None)
    if call.answers:
        # Where this task asked: another one of the same conversation may have gone on in a copy.
        known = call.upstream.get("task")
        if known is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this thread")
        work.route.thread_id = known
        return
    known = call.upstream.get("thread")
    if known is not None:
        asks_again = not call.messages and call.data is None and call.input.checkpoint is None
        work.route.thread_id = await _going_on(http, known, asks_again=asks_again)
        if work.route.thread_id is not None:
            work.checkpoint = call.input.checkpoint
            return
        work.notes.append(LossNoted(feature=Feature.HISTORY, how="the agent's server has forgotten the thread"))
    await _begin(http, work, call, forks=forks)


async def _begin(http: HttpClient, work: Attempt, call: Invocation, *, forks: bool) -> None:
    """A thread of its own, which is told what was said before, unless it knows that."""
    work.forks = forks
    work.history = () if forks else call.history
    if not forks and call.input.checkpoint is not None and work.route.layout == "langgraph":
        how = "the branch begins a thread of its own upstream: of the state it has the messages"
        work.notes.append(LossNoted(feature=Feature.FORK, how=how))
    if work.route.layout == "langgraph":
        work.route.thread_id, work.fresh = str(uuid4()), True
        return
    try:
        work.route.thread_id = check_id(decode_reply(w.Thread, await http.post("/threads", {})).thread_id)
    except FaultError as error:
        if status_of(error.fault) not in NOT_THERE:
            raise
        # Threads are an optional stage of the Agent Protocol (its README).
        how = "the agent's server has no threads: it does not remember"
        work.notes.append(LossNoted(feature=Feature.HISTORY, how=how))


async def _going_on(http: HttpClient, thread_id: str, *, asks_again: bool) -> str | None:
    """The thread to go on in; None if the server does not know it any more. One that waits for an answer stays as it
    is, because new input would take its question away: what is new is said to a copy. `asks_again` = there is no new
    input, so the thread asks the same question again."""
    path = Route("langgraph", thread_id).thread
    try:
        thread = decode_reply(w.Thread, await http.get(path))
    except FaultError as error:
        if status_of(error.fault) == 404:
            return None
        raise
    # Threads of OpenAPI 0.1.6 have no `interrupts`: there the status alone tells.
    waits = thread.status == "interrupted" and (thread.interrupts is None or bool(thread.interrupts))
    if not waits or asks_again:
        return thread_id
    try:
        return check_id(decode_reply(w.Thread, await http.post(f"{path}/copy")).thread_id)
    except FaultError as error:
        if status_of(error.fault) in NOT_THERE:
            return thread_id
        raise


async def update_state(
    http: HttpClient, call: Invocation, removed_ids: Sequence[str], as_node: str | None
) -> StateSaved:
    """A revision that a caller makes, where the state is kept. Raises unsupported where the server has no thread for it
    yet, and invalid for what the server refuses."""
    thread_id = call.upstream.get("thread")
    if thread_id is None:
        raise FaultError(
            FaultCode.UNSUPPORTED,
            "The agent's server keeps the state, and has no thread for it yet: run the agent first.",
        )
    path = f"{Route('langgraph', thread_id).thread}/state"
    try:
        await http.post(path, encode_update(call, removed_ids, as_node))
    except FaultError as error:
        if status_of(error.fault) in (400, 409, 422):
            raise FaultError(FaultCode.INVALID, error.fault.message) from error
        raise
    state = as_object(await http.get(path))
    metadata, next_ = as_object(state.get("metadata")), state.get("next")
    step: Any = metadata.get("step")
    return StateSaved(
        checkpoint_id=_id_of(state.get("checkpoint")),
        parent_id=_id_of(state.get("parent_checkpoint")),
        source=str(metadata.get("source", "update")),
        step=step if isinstance(step, int) else 0,
        as_node=as_node,
        values=as_object(state.get("values")),
        next=tuple(map(str, next_)) if isinstance(next_, list) else (),  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    )


def _id_of(checkpoint: Any) -> str | None:
    found = as_object(checkpoint).get("checkpoint_id")
    return found if isinstance(found, str) else None
