"""Revisions of the thread's values → the shared state: snapshots and deltas (RFC 6902)."""

from collections.abc import Callable

from pydantic_core import to_json

from babelgate.adapters.ag_ui.codec.patch import make_patch
from babelgate.canonical.difference import apply_difference
from babelgate.canonical.event import StateSaved
from babelgate.canonical.value import JsonObject


class StateWriter:
    """Writer of the shared state of one run. The first revision is a snapshot; a later one is a delta if that is
    shorter."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._values: JsonObject | None = None
        self._saved: dict[str, JsonObject] = {}
        """Values of the run's revisions, by checkpoint id."""

    def _resolve(self, event: StateSaved) -> JsonObject | None:
        """Return all values of a revision, which may be stored as its difference to an earlier revision. Return None if
        the earlier revision is not of this run, or if the event has no values."""
        if event.values is not None:
            return event.values
        if event.change is not None:
            before = self._saved.get(event.change.since)
            return None if before is None else apply_difference(before, event.change.new)
        if event.delta is not None:
            return {**self._saved.get(event.parent_id or "", {}), **event.delta}
        return None

    def save(self, event: StateSaved) -> None:
        """Emit a revision that differs from the one before it. Revisions of graphs inside the agent are not sent. The
        event must hold the whole state, or its difference to a revision of this run."""
        values = self._resolve(event)
        if values is None:
            return
        self._saved[event.checkpoint_id or ""] = values
        if event.ns:
            return
        before, self._values = self._values, values
        if before is not None:
            patch = make_patch(before, values)
            if not patch:
                return
            if len(to_json(patch)) < len(to_json(values)):
                self._emit("STATE_DELTA", delta=patch)
                return
        self._emit("STATE_SNAPSHOT", snapshot=values)
