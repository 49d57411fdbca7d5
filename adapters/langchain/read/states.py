"""Decoding of the values and checkpoints in a run's frames as revisions of its thread."""

from collections.abc import Sequence

from babelgate.adapters.langchain.read.messages import Place
from babelgate.adapters.langchain.read.run_state import RunState
from babelgate.adapters.langchain.read.state_changes import StateChanges
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import Event, FaultCode, FaultError
from babelgate.canonical.difference import StateChange
from babelgate.canonical.event import Native, StateSaved
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject


class StateReader:
    """Reader of the states in one run's frames.

    - `known_checkpoints`: namespace and id of each checkpoint that existed before the run.
    - `base`: id of the revision that the run starts from, if the server does not have it.
    - `keeps_last`: only the last checkpoint of each namespace is recorded (`durability: exit`).
    """

    def __init__(
        self,
        run: RunState,
        changes: StateChanges,
        known_checkpoints: set[tuple[Place, str]],
        base: str | None,
        *,
        keeps_last: bool,
    ) -> None:
        self._run = run
        self._changes = changes
        self._known = set(known_checkpoints)
        self._recorded: set[tuple[Place, str]] = set()
        """Namespace and id of checkpoints that this run saved in the log before it was interrupted."""
        self._base = base
        self._keeps_last = keeps_last
        self._held: dict[Place, StateSaved] = {}
        """Newest state of each namespace that waits for the end of the run. Empty unless `keeps_last`."""
        self._newest: dict[Place, tuple[str, JsonObject]] = {}
        """Id and values of the newest checkpoint of each namespace."""
        self._shown: set[Place] = set()
        """Namespaces with a frame `values` since their last checkpoint. The next checkpoint contains the same
        values."""
        self._unshown: set[Place] = set()
        """Namespaces whose newest checkpoint was not preceded by a frame `values`."""
        self._recalled: JsonObject | None = None
        """Values of the newest state that an earlier reader of this run saved in the log. None: there was no such
        state."""

    def know(self, ns: Place, checkpoint_id: str, *, is_recorded: bool) -> None:
        """Record a checkpoint that is not new: one from before the run or, with `is_recorded`, one that this run saved
        before it was interrupted."""
        (self._recorded if is_recorded else self._known).add((ns, checkpoint_id))

    def note_values(self, ns: Place) -> None:
        """Record that callers see the values of a namespace now. Its next checkpoint has the same values and is marked
        as shown."""
        self._shown.add(ns)

    def recall(self, event: StateSaved) -> None:
        """Update the reader by a state that an earlier reader of this run saved in the log."""
        self._known.add((event.ns, event.checkpoint_id or ""))
        if not event.ns:
            self._recalled = event.values if event.change is None else self._changes.resolve(event.change)
            self._run.checkpoint_id = event.checkpoint_id or ""

    def read_values(self, ns: Place, values: Json) -> Sequence[Event]:
        """Read a frame `values`. Return a `Native` event for callers of LangGraph if no later checkpoint will show
        these values, else nothing."""
        if not ns:
            self._run.values = values
        if self._run.dialect == "agent-protocol":
            return ()
        newest = self._newest.get(ns)
        # Another Babelgate sends the values after their checkpoint.
        is_late = self._run.is_server and newest is not None and ns in self._unshown and newest[1] == values
        if is_late or self._keeps_last:
            self._unshown.discard(ns)
            return (_show("values", ns, values, self._changes.find(ns, values)),)
        self.note_values(ns)
        return ()

    def read_checkpoint(self, ns: Place, checkpoint: w.Checkpoint, data: Json) -> Sequence[Event]:
        """Return the events of a checkpoint in a namespace. `data` is its JSON as received. A checkpoint that this run
        saved before gives nothing; one from before the run gives only `Native` events. Raises invalid for one without
        an id."""
        checkpoint_id = checkpoint.config.configurable.checkpoint_id
        if checkpoint_id is None:
            raise FaultError(FaultCode.INVALID, "A checkpoint has no id.")
        values = _as_state(checkpoint.values)
        if not ns:
            run = self._run
            run.values, run.next, run.checkpoint_id = values, tuple(checkpoint.next or ()), checkpoint_id
        is_shown = ns in self._shown
        self._shown.discard(ns)
        key = (ns, checkpoint_id)
        if key in self._recorded:
            values = self._changes.values_of(checkpoint_id) or values
            self._newest[ns] = (checkpoint_id, values)
            self._changes.save(ns, checkpoint_id, values)
            return ()
        if key in self._known:
            return self._repeat(ns, checkpoint_id, values, data, is_shown=is_shown)
        self._known.add(key)
        return self._save(ns, checkpoint_id, values, checkpoint, is_shown=is_shown)

    def read_state(self, state: w.State) -> Sequence[Event]:
        """Return the events of the thread's state after the run, for a server whose stream contains no checkpoints.
        Raises invalid for a state without a checkpoint id."""
        self.note_values(())
        checkpoint = w.Checkpoint(
            config=w.Config(configurable=state.checkpoint or w.Configurable()),
            parent_config=None if state.parent_checkpoint is None else w.Config(configurable=state.parent_checkpoint),
            values=state.values,
            metadata=state.metadata,
            next=state.next,
        )
        return self.read_checkpoint((), checkpoint, checkpoint.model_dump())

    def _save(
        self, ns: Place, checkpoint_id: str, values: JsonObject, checkpoint: w.Checkpoint, *, is_shown: bool
    ) -> Sequence[Event]:
        """Return the `StateSaved` of a new checkpoint. With `keeps_last`, store it until the end and return nothing.
        `is_shown`: a frame `values` with its values has preceded it."""
        parent_id = None if checkpoint.parent_config is None else checkpoint.parent_config.configurable.checkpoint_id
        parent_id = parent_id or (self._base if not ns else None)
        ended_nodes = self._run.ended_nodes.pop(ns, [])
        metadata = checkpoint.metadata or w.CheckpointMetadata()
        change = self._changes.find(ns, values, parent_id)
        is_whole = change is None or change.since == checkpoint_id
        saved = StateSaved(
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            source=metadata.source or "loop",
            step=metadata.step or 0,
            as_node=ended_nodes[0] if len(ended_nodes) == 1 else None,
            values=values if is_whole else None,
            change=None if is_whole else change,
            next=tuple(checkpoint.next or ()),
            ns=ns,
            extra={"langgraph": {"shown": is_shown}},
        )
        if is_shown:
            self._unshown.discard(ns)
        else:
            self._unshown.add(ns)
        self._base = None if not ns else self._base
        self._newest[ns] = (checkpoint_id, values)
        if self._keeps_last:
            self._held[ns] = saved
            return ()
        self._changes.save(ns, checkpoint_id, values)
        return (saved,)

    def _repeat(
        self, ns: Place, checkpoint_id: str, values: JsonObject, data: Json, *, is_shown: bool
    ) -> Sequence[Event]:
        """Return `Native` events for a checkpoint from before the run, which a LangGraph server sends again at the
        start. Only callers of LangGraph receive them. `is_shown`: a frame `values` has preceded it and is repeated,
        too."""
        self._changes.start_at(ns, checkpoint_id)
        change = self._changes.find(ns, values, checkpoint_id)
        events = [_show("values", ns, values, change)] if is_shown else []
        if change is None:
            return [*events, _show("checkpoints", ns, as_object(data), None)]
        rest = {name: value for name, value in as_object(data).items() if name != "values"}
        change = change.replace(member="values")
        return [*events, Native(protocol="langgraph", event="checkpoints", ns=ns, data=rest, change=change)]

    # The end

    def close(self) -> Sequence[Event]:
        """Return the `StateSaved` events that were held until the end of the run. Empty unless `keeps_last`."""
        held = [*self._held.values()]
        self._held.clear()
        return held

    def save_last(self, next_: tuple[str, ...]) -> Sequence[Event]:
        """Return the newest values as a `StateSaved` without an id, if the server sent no checkpoint during this run.
        `next_` are the next nodes of that state."""
        run = self._run
        if run.dialect != "langgraph" or self._newest or not isinstance(run.values, dict):
            return ()
        # A server that sends no checkpoints still has a state. If a run ended while the gateway did not follow it, only
        # its last state is available.
        has_changed = self._recalled is not None and self._recalled != run.values
        return (StateSaved(values=run.values, next=next_),) if has_changed or not run.checkpoint_id else ()


def _show(event: str, ns: Place, data: Json, change: StateChange | None) -> Native:
    """Return the `Native` event that shows a state to callers of LangGraph only. The event stores the `change` from an
    earlier state if there is one, else the whole `data`."""
    return Native(protocol="langgraph", event=event, ns=ns, data=data if change is None else None, change=change)


def _as_state(values: Json) -> JsonObject:
    """Return the values of a state as an object. Any other value becomes the member `__root__` of one."""
    return values if isinstance(values, dict) else {"__root__": values}
