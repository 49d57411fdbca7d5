"""Revisions of the thread's values → the shared state: snapshots and deltas (RFC 6902)."""

from collections.abc import Callable

from pydantic_core import to_json

from babelgate.adapters.ag_ui.codec.patch import make_patch
from babelgate.canonical.event import StateSaved
from babelgate.canonical.value import JsonObject


class StateWriter:
    """Writer of the shared state of one run. The first revision is a snapshot; a later one is a delta if that is
    shorter."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._values: JsonObject | None = None

    def save(self, event: StateSaved) -> None:
        """Emit a revision. States of graphs inside the agent are not shared. The record must hold the whole state, or
        its difference to the parent."""
        if event.ns or event.pruned:
            return
        if event.values is not None:
            values = event.values
        elif event.delta is not None:
            values = {**(self._values or {}), **event.delta}
        else:
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
