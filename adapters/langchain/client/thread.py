"""Choice of the thread on the upstream server for a run, and changes of the state of such a thread."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from babelgate.adapters.kit.client.blame import decode_reply
from babelgate.adapters.langchain.client.attempt import UpstreamRunState
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


async def place(
    http: HttpClient, work: UpstreamRunState, call: Invocation, layout: Layout, *, forks: bool = False
) -> None:
    """Set the route of a run, with the server's thread in which it will run: that of the answered question, the
    conversation's existing thread, or a new one.

    `forks`: a new thread begins with the state of another one. Raises agent_invalid if the run answers a question, but
    the server never reported the thread's id.
    """
    work.route = Route(layout, None)
    if call.answers:
        # The thread where this task asked. Another task of the conversation may have continued in a copy.
        thread_id = call.upstream.get("task")
        if thread_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never sent the id of this thread")
        work.route.thread_id = thread_id
        return
    thread_id = call.upstream.get("thread")
    if thread_id is not None:
        asks_again = not call.messages and call.data is None and call.input.checkpoint is None
        work.route.thread_id = await _continue_thread(http, thread_id, asks_again=asks_again)
        if work.route.thread_id is not None:
            work.checkpoint = call.input.checkpoint
            return
        work.notes.append(LossNoted(feature=Feature.HISTORY, how="the agent's server has forgotten the thread"))
    await _begin_thread(http, work, call, forks=forks)


async def _begin_thread(http: HttpClient, work: UpstreamRunState, call: Invocation, *, forks: bool) -> None:
    """Start a new thread for the run, in the route of `work`. The run's request will contain the earlier messages,
    unless it `forks`: the new thread then begins with a state that has them."""
    work.forks = forks
    work.history = () if forks else call.history
    if not forks and call.input.checkpoint is not None and work.route.layout == "langgraph":
        how = "the branch starts a new thread upstream, with only the messages of the state"
        work.notes.append(LossNoted(feature=Feature.FORK, how=how))
    if work.route.layout == "langgraph":
        work.route.thread_id, work.creates_thread = str(uuid4()), True
        return
    try:
        work.route.thread_id = check_id(decode_reply(w.Thread, await http.post("/threads", {})).thread_id)
    except FaultError as error:
        if status_of(error.fault) not in NOT_THERE:
            raise
        # Threads are an optional stage of the Agent Protocol (its README).
        how = "the agent's server has no threads, and stores no history"
        work.notes.append(LossNoted(feature=Feature.HISTORY, how=how))


async def _continue_thread(http: HttpClient, thread_id: str, *, asks_again: bool) -> str | None:
    """Return the id of the thread in which to run, or None if the server does not have the thread any more.

    New input would remove the open question of a waiting thread, so the run then goes into a copy of the thread.
    `asks_again`: there is no new input, so the thread itself is used and asks the same question again.
    """
    path = Route("langgraph", thread_id).thread
    try:
        thread = decode_reply(w.Thread, await http.get(path))
    except FaultError as error:
        if status_of(error.fault) == 404:
            return None
        raise
    # Threads of OpenAPI 0.1.6 have no `interrupts`: there the status alone shows it.
    is_waiting = thread.status == "interrupted" and (thread.interrupts is None or bool(thread.interrupts))
    if not is_waiting or asks_again:
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
    """Change the state of the server's thread for a caller, and return the resulting revision. The change counts as the
    output of the node `as_node`; the server chooses the node if it is None.

    Raises unsupported if the server has no thread yet, and invalid if it refuses the change.
    """
    thread_id = call.upstream.get("thread")
    if thread_id is None:
        raise FaultError(
            FaultCode.UNSUPPORTED,
            "The agent's server has no state for this thread yet: run the agent first.",
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
    """Return the member `checkpoint_id` of a checkpoint, or None if it is missing or no string."""
    checkpoint_id = as_object(checkpoint).get("checkpoint_id")
    return checkpoint_id if isinstance(checkpoint_id, str) else None
