"""Delta decoding of states, for readers of records who may not know the run before: a state that is told as its
difference to a revision which they have not been told is told whole."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from babelgate.canonical import Hub, Record, StateHistory
from babelgate.canonical.event import Event, Native, StateSaved, StepStarted


async def tell_states_whole(
    hub: Hub, owner: str, thread_id: str, batches: AsyncGenerator[Sequence[Record]]
) -> AsyncGenerator[Sequence[Record]]:
    """`batches` are closed with it, and begin where the readers' knowledge of the thread does."""
    told: set[str] = set()
    history: StateHistory | None = None
    async with aclosing(batches):
        async for batch in batches:
            ready: list[Record] = []
            for record in batch:
                since = _revision_needed(record.event)
                if since is not None and since not in told:
                    if history is None or history.seq < record.seq:
                        history = await hub.reads.snapshot(
                            owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner)
                        )
                    record = record.replace(event=_whole(record.event, history))
                if isinstance(record.event, StateSaved) and record.event.checkpoint_id is not None:
                    told.add(record.event.checkpoint_id)
                ready.append(record)
            yield ready


def _revision_needed(event: Event) -> str | None:
    """The one whose values have to be known."""
    match event:
        case StateSaved(change=None):
            return None if event.delta is None else event.parent_id
        case StateSaved(change=change) | Native(change=change) | StepStarted(input_change=change):
            return None if change is None else change.since
        case _:
            return None


def _whole(event: Event, history: StateHistory) -> Event:
    match event:
        case StateSaved():
            return event.replace(values=history.values_of(event.checkpoint_id or ""), delta=None, change=None)
        case StepStarted():
            return event.replace(input=history.resolve(event.input_change, event.input), input_change=None)
        case Native():
            return event.replace(data=history.resolve(event.change, event.data), change=None)
        case _:
            return event
