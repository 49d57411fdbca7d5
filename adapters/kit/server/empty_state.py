"""States without messages on a thread that has some, so that a run begins the conversation again."""

from collections.abc import Iterable
from contextlib import aclosing
from functools import partial

from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Revision, Scope, StateHistory, StateUpdate
from babelgate.canonical.json import objects_in
from babelgate.canonical.state import ENDED


async def save_empty_state(hub: Hub, principal: Principal, thread_id: str, run_ids: Iterable[str]) -> str:
    """Save a state without messages on the thread, and return its checkpoint id. `run_ids` are the runs of the thread
    that may be active. They are cancelled first, because an active run prevents a change of the state."""
    for run_id in run_ids:
        await _cancel(hub, principal, thread_id, run_id)
    history = await hub.reads.snapshot(
        principal, thread_id, StateHistory, partial(StateHistory, thread_id, principal.owner)
    )
    state = None if history.head_id is None else history.get(history.head_id)
    removed = () if state is None else message_ids(state)
    return await hub.update_state(principal, StateUpdate(thread_id=thread_id, removed_ids=removed))


def message_ids(state: Revision) -> tuple[str, ...]:
    """Return the ids of the messages in a state. An agent with its own state stores its messages in the state value
    `messages`."""
    messages = objects_in(state.values.get("messages"))
    ids = [message.message_id or "" for message in state.messages]
    return tuple(ids or [str(message["id"]) for message in messages if message.get("id")])


async def _cancel(hub: Hub, principal: Principal, thread_id: str, run_id: str) -> None:
    """Cancel a run of the thread unless it has ended, and wait for the end of the run."""
    run = await hub.reads.run(principal, run_id)
    if run.status in ENDED:
        return
    try:
        await hub.cancel_run(principal, run_id)
    except FaultError as error:
        if error.fault.code not in (FaultCode.TASK_ENDED, FaultCode.NOT_FOUND):
            raise
    scope = Scope(thread_id, "run", run_id)
    async with aclosing(hub.reads.follow(principal, scope, run.first_seq - 1)) as batches:
        async for _ in batches:
            pass
