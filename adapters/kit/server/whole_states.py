"""Delta decoding of states, for readers that may not have the earlier records of a run.

If a state is stored as a difference to a revision that the reader does not have, the whole state is sent.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from babelgate.canonical import Hub, Principal, Record, StateHistory
from babelgate.canonical.event import Event, Native, StateSaved, StepStarted


async def complete_states(
    hub: Hub, principal: Principal, thread_id: str, batches: AsyncGenerator[Sequence[Record]]
) -> AsyncGenerator[Sequence[Record]]:
    """Yield the batches of records. A state that is stored as a difference is replaced by the whole state if the
    readers lack the revision to which it refers. `batches` begin at the first record that the readers have, and are
    closed at the end."""
    sent: set[str] = set()
    history: StateHistory | None = None
    async with aclosing(batches):
        async for batch in batches:
            ready: list[Record] = []
            for record in batch:
                base_id = _revision_needed(record.event)
                if base_id is not None and base_id not in sent:
                    if history is None or history.seq < record.seq:
                        history = await hub.reads.snapshot(
                            principal, thread_id, StateHistory, partial(StateHistory, thread_id, principal.owner)
                        )
                    record = record.replace(event=_whole(record.event, history))
                if isinstance(record.event, StateSaved) and record.event.checkpoint_id is not None:
                    sent.add(record.event.checkpoint_id)
                ready.append(record)
            yield ready


def _revision_needed(event: Event) -> str | None:
    """Return the id of the revision that a reader needs to decode the event's state. Return None if the event has no
    state, or a whole one."""
    match event:
        case StateSaved(change=None):
            return None if event.delta is None else event.parent_id
        case StateSaved(change=change) | Native(change=change) | StepStarted(input_change=change):
            return None if change is None else change.since
        case _:
            return None


def _whole(event: Event, history: StateHistory) -> Event:
    """Return the event with its whole state instead of a difference."""
    match event:
        case StateSaved():
            return event.replace(values=history.values_of(event.checkpoint_id or ""), delta=None, change=None)
        case StepStarted():
            return event.replace(input=history.resolve(event.input_change, event.input), input_change=None)
        case Native():
            return event.replace(data=history.resolve(event.change, event.data), change=None)
        case _:
            return event
