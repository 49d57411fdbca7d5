"""Records of one turn → its updates, and the result of its prompt.

A turn begins with a prompt. An answer to a permission request or a form continues the turn. An answer by another prompt
ends it, and begins the next turn.
"""

from collections.abc import Callable
from typing import Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import PROTOCOL
from babelgate.adapters.agent_client.write.updates import UpdateWriter
from babelgate.canonical import Fault, FaultCode, Record, RunStatus, Task, TaskState
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    PartAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskChanged,
)
from babelgate.canonical.message import RefusalPart
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_RESTARTED: Final = Fault(
    code=FaultCode.AGENT_FAILED,
    message="The agent was started again, and what it had sent is void. Load the session again.",
)
_FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed.")


def prompt_key(event: RunCreated) -> str | None:
    """Return the key that a client gave the prompt that created a run, which may be empty. Return None if no prompt of
    this protocol created the run."""
    extra: JsonObject = event.extra.get(PROTOCOL) or {}
    key: object = extra.get("prompt")
    return key if isinstance(key, str) else None


class TurnWriter:
    """Writer of the updates of one turn and the result of its prompt. Records before the run `run_id` have no updates.
    `is_whole` is True if the updates cover all runs of the task, those of later prompts included."""

    def __init__(
        self,
        task: Task,
        run_id: str,
        url_of: Callable[[str], str],
        elicitation: w.Elicitations | None,
        *,
        is_whole: bool = False,
    ) -> None:
        self._task = task
        self._first_run = run_id
        self._is_whole = is_whole
        self._updates = UpdateWriter(url_of, elicitation, is_replay=False)
        self._has_begun = False
        self._has_sent = False
        """True if updates were sent for the current run, which a restart of the run would make void."""
        self._losses: dict[Loss, None] = {}
        self._open: dict[str, None] = {}
        self.run_id = run_id
        """Id of the newest run of the turn."""
        self.is_paused = False
        """True if the newest run has stopped for questions."""
        self.result: JsonObject | None = None
        """Result of the prompt; None if the turn is active or has failed."""
        self.fault: Fault | None = None
        """Fault with which the turn has ended; None if it is active or has a result."""
        self._begin_run()

    def _begin_run(self) -> None:
        self._usage: JsonObject = {}
        self._output: Json = None
        self._stop: w.StopReason = "end_turn"
        self._has_sent = False
        self.is_paused = False

    @property
    def has_ended(self) -> bool:
        return self.result is not None or self.fault is not None

    def write(self, record: Record) -> list[w.Update]:
        """Return the updates for the next record of the task."""
        event = record.event
        if isinstance(event, InterruptRaised):
            self._open[event.interrupt_id or ""] = None
            if not self._has_begun:
                self._updates.write(record)
        elif isinstance(event, InterruptAnswered):
            self._open.pop(event.interrupt_id, None)
        if isinstance(event, RunCreated):
            return self._create_run(event)
        if not self._has_begun or self.has_ended:
            return []
        match event:
            case RunStarted() if event.is_restart and self._has_sent:
                self.fault = _RESTARTED
                return []
            case RunEnded() if record.run_id == self.run_id:
                self._end_run(event)
                return []
            case TaskChanged():
                self._change_task(event)
                return []
            case LossNoted():
                self._losses[Loss(feature=event.feature, how=event.how)] = None
            case MessageEnded():
                self._count(event)
            case PartAdded(part=RefusalPart()):
                self._stop = "refusal"
            case _:
                pass
        updates = self._updates.write(record)
        self._has_sent = self._has_sent or bool(updates)
        return updates

    def _create_run(self, event: RunCreated) -> list[w.Update]:
        """Return the update with the ids of a new run. If another prompt created the run, end the turn and return no
        update."""
        if event.run_id == self._first_run:
            self._has_begun = True
        elif not self._has_begun or self.has_ended:
            return []
        elif self.is_paused and not self._is_whole and prompt_key(event) is not None:
            self.pause()
            return []
        self.run_id = event.run_id
        self._begin_run()
        ids: JsonObject = {"thread": self._task.thread_id, "task": self._task.task_id, "run": event.run_id}
        return [{"sessionUpdate": "session_info_update", "_meta": {w.OWN: ids}}]

    def _count(self, event: MessageEnded) -> None:
        for name, count in event.usage.items():
            if isinstance(count, int):
                self._usage[name] = self._usage.get(name, 0) + count
        if event.finish == "length" and self._stop == "end_turn":
            self._stop = "max_tokens"
        elif event.finish == "refusal":
            self._stop = "refusal"

    def _end_run(self, event: RunEnded) -> None:
        self._usage, self._output = event.usage or self._usage, event.output
        match event.status:
            case RunStatus.PAUSED:
                self.is_paused = True
            case RunStatus.SUCCESS:
                self.result = self._result(self._stop)
            case RunStatus.CANCELLED:
                self.result = self._result("cancelled")
            case _:
                self.fault = event.fault or _FAILED

    def _change_task(self, event: TaskChanged) -> None:
        """End the turn if its task has ended while the turn waits for an answer, for example because it was
        cancelled."""
        if not self.is_paused or event.state not in TERMINAL:
            return
        if event.state is TaskState.CANCELLED:
            self.result = self._result("cancelled")
        else:
            self.fault = event.fault or _FAILED

    def pause(self) -> None:
        """End the turn with the result `end_turn`. Its questions stay open."""
        self.result = self._result("end_turn")

    def own_members(self) -> JsonObject:
        """Return the object `_meta.babelgate` of the prompt's result or error: the ids of thread, task and run, and
        open questions, usage, output and losses if any."""
        marks: JsonObject = {"thread": self._task.thread_id, "task": self._task.task_id, "run": self.run_id}
        if self._open:
            marks["questions"] = list(self._open)
        if self._usage:
            marks["usage"] = self._usage
        if self._output is not None:
            marks["output"] = self._output
        if self._losses:
            marks["loss"] = losses_by_feature(self._losses)
        return marks

    def _result(self, stop: w.StopReason) -> JsonObject:
        return {"stopReason": stop, "_meta": {w.OWN: self.own_members()}}
