"""Differences between a new state and earlier states of the thread, which keep the log small."""

from babelgate.adapters.langchain.read.messages import Place
from babelgate.canonical import StateHistory
from babelgate.canonical.difference import StateChange, state_change
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject


class StateChanges:
    """Finder of short differences between a new state of a run and states that are already in the log. `log` contains
    the states from before the run."""

    def __init__(self, log: StateHistory | None) -> None:
        self._log = log or StateHistory("")
        self._saved: dict[Place, tuple[str, JsonObject]] = {}
        """Id and values of the newest state that this run has saved, by namespace."""
        self._origins: dict[Place, str] = {}
        """Id of the checkpoint from which the run continues, by namespace."""

    def save(self, ns: Place, checkpoint_id: str, values: JsonObject) -> None:
        """Record a state of this run that is stored in the log, so that later states can be differences to it."""
        self._saved[ns] = (checkpoint_id, values)

    def start_at(self, ns: Place, checkpoint_id: str) -> None:
        """Record the checkpoint from which the run continues in a namespace."""
        self._origins[ns] = checkpoint_id

    def values_of(self, checkpoint_id: str) -> JsonObject | None:
        """Return the values of a state from before the run, or None if the log does not have it."""
        return self._log.values_of(checkpoint_id)

    def resolve(self, change: StateChange) -> JsonObject:
        """Return the whole values of a state that is stored as a difference."""
        return as_object(self._log.resolve(change, None))

    def find(self, ns: Place, values: Json, parent_id: str | None = None) -> StateChange | None:
        """Return a state as its difference to an earlier one, or None if no difference is much shorter.

        Tries the state `parent_id`, if any, and then the newest states of the namespace and of the namespaces around
        it, with which a subgraph often begins.
        """
        if not isinstance(values, dict):
            return None
        around = [ns[:depth] for depth in range(len(ns), -1, -1)]
        saved = dict(self._saved[place] for place in around if place in self._saved)
        origins = [self._origins[place] for place in around if place in self._origins]
        for since in dict.fromkeys((parent_id, *saved, *origins, self._log.head_id)):
            before = None if since is None else saved.get(since) or self._log.values_of(since)
            change = None if since is None or before is None else state_change(since, before, values)
            if change is not None:
                return change
        return None

    def find_within(self, ns: Place, value: Json) -> tuple[Json, StateChange | None]:
        """Find a state inside a task's input. Return the input without it, and the state as a difference to an earlier
        one.

        The state is the whole input or one of its members, as in the inputs that LangChain's agents pass to their
        tools. Returns the unchanged input and None if no short difference exists.
        """
        change = self.find(ns, value)
        if change is not None:
            return None, change
        for name, member in as_object(value).items():
            change = self.find(ns, member)
            if change is not None:
                rest = {key: item for key, item in as_object(value).items() if key != name}
                return rest, change.replace(member=name)
        return value, None
