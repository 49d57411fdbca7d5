"""Differences between a new state and the states that the log has."""

from babelgate.adapters.langchain.read.messages import Place
from babelgate.canonical import StateHistory
from babelgate.canonical.difference import StateChange, state_change
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject


class StateChanges:
    """States of one thread that the log has. `log` contains those from before the run."""

    def __init__(self, log: StateHistory | None) -> None:
        self._log = log or StateHistory("")
        self._saved: dict[Place, tuple[str, JsonObject]] = {}
        """Id and values of the newest state of this run, by place."""
        self._origins: dict[Place, str] = {}
        """Ids of the checkpoints that the run continues, by place."""

    def save(self, ns: Place, checkpoint_id: str, values: JsonObject) -> None:
        """Record a state that the log gets from this run."""
        self._saved[ns] = (checkpoint_id, values)

    def start_at(self, ns: Place, checkpoint_id: str) -> None:
        """Record the checkpoint that the run continues in a place."""
        self._origins[ns] = checkpoint_id

    def values_of(self, checkpoint_id: str) -> JsonObject | None:
        """Return the values of a state from before the run, or None if the log does not have it."""
        return self._log.values_of(checkpoint_id)

    def resolve(self, change: StateChange) -> JsonObject:
        """Return the values that a difference describes."""
        return as_object(self._log.resolve(change, None))

    def find(self, ns: Place, values: Json, parent_id: str | None = None) -> StateChange | None:
        """Return a state as its difference to a known one, or None if that is not much shorter.

        Tries its parent `parent_id`, if it has one, the newest state of its place, and those of the places around it,
        with which a subgraph often begins.
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
        """Return a value without the state in it, and that state as a difference.

        The state is the value itself or one of its members, as in the inputs that LangChain's agents pass to their
        tools. Returns the value and None if it contains no known state.
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
