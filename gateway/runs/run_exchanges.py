"""HTTP exchanges of runs with the servers of their agents, which are kept in memory for the console."""

from collections import OrderedDict
from typing import Final

from babelgate.adapters.kit.client.exchanges import ExchangeRecorder
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.runs.pump import RunKey
from babelgate.gateway.storage.thread_keys import ThreadKeys

_MAX_SIZE: Final = 32 * 2**20
"""Maximum size of all stored exchanges, in bytes. Chosen: 64 exchanges whose two bodies are as large as possible."""


class RunExchanges:
    """Recorders of the HTTP exchanges of runs, the oldest first. If all together exceed the size limit, the oldest run
    loses its exchanges."""

    def __init__(self, clock: Clock | None = None, max_size: int = _MAX_SIZE) -> None:
        self._clock = clock or Clock()
        self._max_size = max_size
        self._size = 0
        self._recorders: OrderedDict[RunKey, ExchangeRecorder] = OrderedDict()
        self._keys = ThreadKeys[RunKey]()

    @property
    def size(self) -> int:
        """Size of all stored exchanges, in bytes."""
        return self._size

    def open(self, start: StartedRun, wire: str) -> ExchangeRecorder | None:
        """Return the recorder for an attempt of a run, or None if the setting `wire` is `off`. All attempts of a run
        have the same recorder."""
        if wire == "off":
            return None
        name = (start.pk, start.run.run_id)
        recorder = self._recorders.get(name)
        if recorder is None:
            recorder = self._recorders[name] = ExchangeRecorder(self._clock.now, self._count)
            self._keys.add(start.pk, name)
        recorder.is_kept = False
        return recorder

    def close(self, start: StartedRun, wire: str, *, has_failed: bool) -> None:
        """End the recording of an attempt. Remove its exchanges if the setting `wire` is `failures` and the attempt has
        not failed. Otherwise keep them, without secrets."""
        name = (start.pk, start.run.run_id)
        recorder = self._recorders.get(name)
        if recorder is None:
            return
        if not recorder.exchanges or (wire == "failures" and not has_failed):
            self._drop(name)
        else:
            recorder.keep()

    def find(self, pk: int, run_id: str) -> ExchangeRecorder | None:
        """Return the recorder of a run, or None if there is none in memory. `pk` is the key of the run's thread."""
        return self._recorders.get((pk, run_id))

    def find_any(self, run_id: str) -> ExchangeRecorder | None:
        """Return the recorder of a run with this id, of any owner, or None if there is none in memory. If several runs
        have the id, return the recorder of the newest."""
        return next((self._recorders[key] for key in reversed(self._recorders) if key[1] == run_id), None)

    def forget_thread(self, pk: int) -> None:
        """Remove the exchanges of all runs of an erased thread."""
        for name in self._keys.of(pk):
            self._drop(name)

    def _count(self, recorder: ExchangeRecorder, size: int) -> None:
        self._size += size
        while self._size > self._max_size:
            self._drop(next(iter(self._recorders)))

    def _drop(self, name: RunKey) -> None:
        recorder = self._recorders.pop(name)
        self._keys.discard(name[0], name)
        self._size -= recorder.size
        recorder.drop()
