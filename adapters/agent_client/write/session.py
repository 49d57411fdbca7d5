"""Records of a thread → the updates with which `session/load` repeats a conversation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.write.updates import UpdateWriter, encode_item_fault
from babelgate.canonical import Fault, Record, RunStatus
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    RunCreated,
    RunEnded,
    TaskChanged,
)
from babelgate.canonical.replay import without_voided
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.value import JsonObject

_STATES: Final[Mapping[str, str]] = {"success": "completed", "paused": "input_required", "cancelled": "cancelled"}
"""State of a task that is reported at the end of a run, by the status of the run. Any other status means `failed`."""


def session_updates(
    records: Iterable[Record], hidden_runs: Set[str], url_of: Callable[[str], str]
) -> Iterator[w.Update]:
    """Yield the updates for the records of a thread. Records of the runs `hidden_runs`, which are on other branches,
    are left out."""
    replay = _Replay(url_of)
    for record in without_voided(records):
        if record.run_id not in hidden_runs:
            yield from replay.write(record)


class _Replay:
    """Writer of the updates that repeat a thread's conversation, for `session/load`."""

    def __init__(self, url_of: Callable[[str], str]) -> None:
        self._writer = UpdateWriter(url_of, None, is_replay=True)
        self._open: dict[str, dict[str, None]] = {}
        """Open questions of each task: task id → ids of the questions, oldest first."""
        self._paused: set[str | None] = set()
        """Ids of the tasks whose last run has stopped for questions."""
        self._usage: JsonObject = {}

    def write(self, record: Record) -> Iterator[w.Update]:
        """Yield the updates for the next record of the thread."""
        event, questions = record.event, self._open.setdefault(record.task_id or "", {})
        match event:
            case RunCreated():
                yield from self._create_run(event, record)
            case RunEnded():
                yield from self._end_run(event, record)
            case TaskChanged() if event.state in TERMINAL and record.task_id in self._paused:
                questions.clear()
                yield _info(record, state=event.state.value, **_fault_member(event.fault))
            case _:
                if isinstance(event, InterruptRaised):
                    questions[event.interrupt_id or ""] = None
                elif isinstance(event, InterruptAnswered):
                    questions.pop(event.interrupt_id, None)
                elif isinstance(event, MessageEnded):
                    self._usage = event.usage or self._usage
                yield from self._writer.write(record)

    def _create_run(self, event: RunCreated, record: Record) -> Iterator[w.Update]:
        if event.cause != "answer":
            self._writer.begin()
        self._usage = {}
        for message in event.messages:
            if message.role == "user":
                yield from self._writer.user_updates(message)
        self._paused.discard(record.task_id)
        yield _info(record, run_id=event.run_id, **({"metadata": event.metadata} if event.metadata else {}))

    def _end_run(self, event: RunEnded, record: Record) -> Iterator[w.Update]:
        if event.fault is not None:
            yield _failure(event.fault, record.run_id)
        members: JsonObject = {"state": _STATES.get(event.status.value, "failed"), **_fault_member(event.fault)}
        if event.status is RunStatus.PAUSED:
            self._paused.add(record.task_id)
        if questions := self._open.get(record.task_id or ""):
            members["questions"] = list(questions)
        if event.output is not None:
            members["output"] = event.output
        if usage := event.usage or self._usage:
            members["usage"] = usage
        yield _info(record, **members)


def _fault_member(fault: Fault | None) -> JsonObject:
    return {} if fault is None else {"fault": encode_item_fault(fault)}


def _info(record: Record, *, run_id: str | None = None, **members: Any) -> w.Update:
    """Return an update for clients that read `_meta.babelgate`: the ids of a task and a run, and `members`, such as the
    new state."""
    marks: JsonObject = {"task": record.task_id, "run": run_id or record.run_id, **members}
    return {"sessionUpdate": "session_info_update", "_meta": {w.OWN: marks}}


def _failure(fault: Fault, run_id: str | None) -> w.Update:
    """Return an agent message with the error text of a failed run. While the run was active, the client got the error
    as the response to its prompt, and not as an update."""
    block = {"type": "text", "text": f"Error: {fault.message}"}
    update: w.Update = {"sessionUpdate": "agent_message_chunk", "content": block, "messageId": f"{run_id}/error"}
    return {**update, "_meta": {w.OWN: {"kind": "error"}}}
