"""Reports about runs to the gateway's observer, which counts them in metrics: starts, first outputs, ends and
tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from babelgate.canonical.event import (
    LossNoted,
    MessageStarted,
    Record,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskChanged,
    TaskCreated,
    UpstreamBound,
)
from babelgate.canonical.fault import Fault
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Run
from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import Clock
from babelgate.gateway.observe import GatewayObserver
from babelgate.gateway.runs.fault_counts import FaultCounts
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.storage.transaction import Published
from babelgate.usage import normal

OTHER: Final = "other"
"""Label of metrics in place of the agent's and protocol's name, for a run that another process has started. The name
of the protocol is also unknown for a task that the gateway itself created."""
_MAX_TRACKED: Final = 100_000
"""Maximum number of tasks, and of runs, in memory. If another node ends a run, its entry stays until this limit removes
it. Chosen, not measured."""
_NO_OUTPUT: Final = frozenset(
    {TaskCreated, RunCreated, RunStarted, RunEnded, TaskChanged, LossNoted, UpstreamBound, MessageStarted}
)
"""Types of events that are no output of an agent, or announce output that follows."""


@dataclass(slots=True)
class _Tracked:
    """Run that this process executes and whose end it will report. Times are in microseconds since 1970, UTC."""

    agent: str
    protocol: str
    due_at: int
    started_at: int | None


class RunReports:
    """Reporter of the starts, first outputs and ends of this process's runs to the observer."""

    def __init__(self, observer: GatewayObserver, faults: FaultCounts | None = None) -> None:
        self._observer = observer
        self._faults = faults or FaultCounts(Clock())
        self._is_active = observer.is_active
        self.traces = observer.traces
        """Source of spans; None if the gateway sends no traces."""
        self._tasks: dict[tuple[int, str], tuple[str, str]] = {}
        """Agents and protocols of tasks whose creation was committed here, by key of the thread and task id."""
        self._runs: dict[tuple[int, str], _Tracked] = {}
        """Runs that this process executes, by key of the thread and run id."""
        self._silent: dict[int, str] = {}
        """Ids of the active runs without output, by key of the thread: at most one run of a thread is active."""
        self._handlers: Mapping[type, Callable[[int, Record], None]] = {
            TaskCreated: self._note_task,
            TaskChanged: self._note_task_changed,
            RunEnded: self._note_end,
        }

    def begin(self, start: StartedRun) -> None:
        """Report that an attempt of a run begins, and how long the run has waited if it is the first attempt."""
        run, waited = start.run, None
        if run.attempt <= 1 and run.started_at is not None:
            waited = max(0, run.started_at - _due_at(run)) / 1e6
        self._observer.note_run_started(start.task.agent, waited)
        if self._is_active:
            self.track(start)
            if run.attempt <= 1:
                self._silent[start.pk] = run.run_id

    def track(self, start: StartedRun) -> None:
        """Store the agent and protocol of a run, so that its end can be reported."""
        if self._is_active:
            run = start.run
            _trim(self._runs)
            self._runs[start.pk, run.run_id] = _Tracked(
                start.task.agent, start.task.protocol or OTHER, _due_at(run), run.started_at
            )

    def forget(self, pk: int, run_id: str) -> None:
        """Remove a run from memory that ends on another node, or was erased. Its end is not reported."""
        self._runs.pop((pk, run_id), None)
        if self._silent.get(pk) == run_id:
            del self._silent[pk]

    def note_fault(self, agent: str, fault: Fault) -> None:
        """Count a run of an agent that has ended with a fault."""
        self._faults.note(str(fault.code), agent)

    def handle_commit(self, commit: Published) -> None:
        """Report the first outputs, ends and tokens of runs that a commit contains."""
        if not self._is_active:
            return
        pk, handlers = commit.pk, self._handlers
        for record in commit.records:
            kind = type(record.event)
            handle = handlers.get(kind)
            if handle is not None:
                handle(pk, record)
            elif pk in self._silent and kind not in _NO_OUTPUT and record.run_id == self._silent[pk]:
                self._note_output(pk, record)

    def _note_task(self, pk: int, record: Record) -> None:
        event = record.event
        assert isinstance(event, TaskCreated)
        _trim(self._tasks)
        self._tasks[pk, event.task_id] = event.agent, event.protocol or OTHER

    def _note_task_changed(self, pk: int, record: Record) -> None:
        event = record.event
        if isinstance(event, TaskChanged) and event.state in TERMINAL and record.task_id is not None:
            self._tasks.pop((pk, record.task_id), None)

    def _note_output(self, pk: int, record: Record) -> None:
        tracked = self._runs.get((pk, self._silent.pop(pk)))
        if tracked is not None:
            seconds = max(0, record.at - tracked.due_at) / 1e6
            self._observer.note_first_event(tracked.agent, tracked.protocol, seconds)

    def _note_end(self, pk: int, record: Record) -> None:
        event, run_id = record.event, record.run_id or ""
        assert isinstance(event, RunEnded)
        tracked = self._runs.pop((pk, run_id), None)
        if self._silent.get(pk) == run_id:
            del self._silent[pk]
        if tracked is None:
            agent, protocol = self._tasks.get((pk, record.task_id or ""), (OTHER, OTHER))
            self._observer.note_run_ended(agent, protocol, str(event.status), None)
            return
        started_at = tracked.started_at
        seconds = None if started_at is None else max(0, record.at - started_at) / 1e6
        self._observer.note_run_ended(tracked.agent, tracked.protocol, str(event.status), seconds)
        for kind, count in count_tokens(event.usage).items():
            self._observer.note_tokens(tracked.agent, kind, count)


def count_tokens(usage: JsonObject) -> dict[str, float]:
    """Return the numbers of tokens in a run's usage, by `input` and `output`. Usage that is reported by model is
    summed."""
    found = normal(usage)
    return {kind: found[f"{kind}_tokens"] for kind in ("input", "output") if f"{kind}_tokens" in found}


def _due_at(run: Run) -> int:
    """Return the time from which a run could start, in microseconds since 1970, UTC."""
    return max(run.created_at, run.start_after or 0)


def _trim(entries: dict[Any, Any]) -> None:
    """Remove the oldest entry if the dictionary has the maximum number of entries."""
    if len(entries) >= _MAX_TRACKED:
        del entries[next(iter(entries))]
