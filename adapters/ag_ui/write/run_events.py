"""Records → the events of one run, from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.codec import names
from babelgate.adapters.ag_ui.codec.names import PROTOCOL, WireIds, decode_ids
from babelgate.adapters.ag_ui.codec.questions import called_part, encode_interrupt, is_tool_call
from babelgate.adapters.ag_ui.codec.usage import add_usage, encode_usage
from babelgate.adapters.ag_ui.write.event_list import EventList
from babelgate.adapters.ag_ui.write.message_events import MessageWriter
from babelgate.adapters.ag_ui.write.state_events import StateWriter
from babelgate.canonical import Fault, FaultCode, Feature, Record, RunReason, RunStatus, caller_tools
from babelgate.canonical.event import (
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    Native,
    PartDelta,
    RunCreated,
    RunEnded,
    RunStarted,
    StateSaved,
    StepEnded,
    StepStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import JsonObject

STOPPING: Final = Fault(
    code=FaultCode.SHUTTING_DOWN,
    message="The gateway is shutting down, and the run has not ended: connect again to read the rest.",
)
_OLD_EVENTS: Final = frozenset({"REASONING_ENCRYPTED_VALUE"})
"""Types of other servers' events that are passed on to clients older than 1.0. @ag-ui/client 0.0.59 ends a run if it
receives any other."""
_UNKNOWN_EVENT: Final = "an event that clients older than 1.0 do not accept"
_ENDED_EARLY: Final[Mapping[RunReason, str]] = {
    RunReason.SUPERSEDED: names.SUPERSEDED,
    RunReason.ROLLED_BACK: "rolled_back",
}
"""Code of the `RUN_ERROR` for a run that was cancelled for another run, by the reason of its end."""


class RunEventWriter:
    """Encoder of one run as AG-UI events. Pass it all records of the task, from the first one on, because questions and
    tools of earlier runs decide how this run ends."""

    def __init__(self, run_id: str, thread_id: str, *, base_url: str = "", agent: str = "") -> None:
        self.run_id = run_id
        self.ids = WireIds(thread_id, run_id)
        self.has_begun = False
        self.has_ended = False
        self.is_restarted = False
        """True if the record that was written last began another attempt, which voids events of the attempt before
        it."""
        # Shared, because bound methods of this object would hold it in a circle, which only the collector frees.
        self._list = EventList()
        self._emit = self._list.emit
        self._agent = agent
        self._messages = MessageWriter(self._emit, self._list.add, base_url, agent)
        self._state = StateWriter(self._emit)
        self._questions: dict[str, InterruptRaised] = {}
        self._tools: frozenset[str] = frozenset()
        self._steps: dict[str, str] = {}
        """Name on the wire (`stepName`) of each open step, by step id."""
        self._usage: JsonObject = {}
        self._losses: dict[Loss, None] = {}

    @property
    def losses(self) -> Sequence[Loss]:
        """Losses of the run so far, each once: those in the log, and events that an old client does not accept."""
        return tuple(self._losses)

    def write(self, record: Record) -> list[JsonObject]:
        """Return the AG-UI events that a record adds; empty for records of other runs. Call it once for each record of
        the task, in order."""
        event = record.event
        self._list.begin(record.at // 1000)
        self.is_restarted = False
        if isinstance(event, RunCreated):
            tools = caller_tools(event.config)
            self._tools = frozenset(tool.name for tool in tools) or self._tools
        elif isinstance(event, InterruptRaised):
            self._questions[event.interrupt_id or ""] = event
        elif isinstance(event, InterruptAnswered):
            self._questions.pop(event.interrupt_id, None)
        if record.run_id != self.run_id or self.has_ended:
            return []
        write = self._WRITES.get(type(event))
        if write is None:
            self._messages.write(event)
        else:
            write(self, event)
        return self._list.events

    def text_maker(self, record: Record) -> Callable[[str], JsonObject] | None:
        """Return a function that returns the AG-UI event for one text of a passage. A passage is a series of text
        deltas of one part, and `record` its first one. Return None if its records must be written one by one."""
        if record.run_id != self.run_id or self.has_ended or type(record.event) is not PartDelta:
            return None
        return self._messages.text_maker(record.event)

    def interrupt(self) -> JsonObject:
        """Return the `RUN_ERROR` for a stream that ends before its run does, because the gateway stops."""
        return {"type": "RUN_ERROR", "message": STOPPING.message, "code": str(STOPPING.code)}

    # Runs

    def _run_created(self, event: RunCreated) -> None:
        self.ids = decode_ids(event, self.ids.thread_id)
        self.has_begun = True
        self._emit(
            "RUN_STARTED",
            threadId=self.ids.thread_id,
            runId=self.ids.run_id,
            protocolVersion=w.VERSION,
            metadata=_mark({"metadata": event.metadata or None}),
        )

    def _run_started(self, event: RunStarted) -> None:
        if event.is_restart:
            self._close()
            self._messages.start_over(event)
            self._usage = {}
            self.is_restarted = True

    def _run_ended(self, event: RunEnded) -> None:
        self._close()
        self._report_losses()
        self.has_ended = True
        usage = event.usage or self._usage
        marks: JsonObject = {"usage": usage} if usage and not _is_whole(usage) else {}
        more: JsonObject = {"usage": encode_usage(usage) or None, "metadata": {w.OWN: marks} if marks else None}
        if event.status is RunStatus.SUCCESS:
            # Without the list, clients wait for each call without a result (§ Tools of the specification).
            none_pending: JsonObject = {"pendingToolCallIds": []} if self._messages.has_open_calls else {}
            self._finish(result=event.output, outcome=self._outcome({"type": "success", **none_pending}), **more)
        elif event.status is RunStatus.PAUSED:
            self._pause(more)
        elif event.status is RunStatus.CANCELLED and event.reason in _ENDED_EARLY:
            self._fail("Another run has replaced this one.", _ENDED_EARLY[event.reason], more)
        elif event.status is RunStatus.CANCELLED:
            self._cancel(more)
        else:
            message, code = fault_words(event.fault)
            self._fail(message, code, more)

    def _pause(self, more: JsonObject) -> None:
        calls = [name for name, each in self._questions.items() if is_tool_call(each, self._tools)]
        interrupts = [encode_interrupt(each) for name, each in self._questions.items() if name not in calls]
        if interrupts:
            self._finish(outcome={"type": "interrupt", "interrupts": interrupts}, **more)
        else:
            self._finish(outcome=self._outcome({"type": "success", "pendingToolCallIds": calls}), **more)

    def _outcome(self, outcome: JsonObject) -> JsonObject | None:
        """Return the outcome of a success, or None for a client older than 1.0. @ag-ui/client 0.0.59 ends a run if it
        receives `pendingToolCallIds`."""
        return None if self.ids.is_old else outcome

    def _cancel(self, more: JsonObject) -> None:
        # @ag-ui/client 0.0.59 ends a run for an outcome that it does not know.
        if self.ids.is_old:
            self._fail("The run was cancelled.", names.CANCELLED, more)
        else:
            self._finish(outcome={"type": "cancelled"}, **more)

    def _finish(self, **members: Any) -> None:
        self._emit("RUN_FINISHED", threadId=self.ids.thread_id, runId=self.ids.run_id, **members)

    def _fail(self, message: str, code: str, more: JsonObject) -> None:
        self._emit("RUN_ERROR", message=message, code=code, **more)

    def _close(self) -> None:
        """End all open messages and steps, because none may be open at the end of a run."""
        self._messages.close()
        for step_id in list(self._steps):
            self._emit("STEP_FINISHED", stepName=self._steps.pop(step_id))

    def _report_losses(self) -> None:
        for feature, how in losses_by_feature(self._losses).items():
            self._emit("CUSTOM", name=names.LOSS, value={"feature": feature, "how": how})

    # Questions, steps and everything else

    def _interrupt_raised(self, event: InterruptRaised) -> None:
        call = called_part(event)
        if call is not None:
            self._messages.show_call(event.interrupt_id or "", call)

    def _step_started(self, event: StepStarted) -> None:
        step_id = event.step_id or event.name
        name, number = event.name, 1
        while name in self._steps.values():  # a name is open once at a time
            number += 1
            name = f"{event.name}#{number}"
        self._steps[step_id] = name
        marks = {
            "id": step_id,
            "name": event.name if name != event.name else None,
            "input": event.input,
            "node": None if event.node in ("", self._agent) else event.node,
            "ns": list(event.ns) or None,
        }
        self._emit("STEP_STARTED", stepName=name, metadata=_mark(marks))

    def _step_ended(self, event: StepEnded) -> None:
        step_id = event.step_id or event.name
        name = self._steps.pop(step_id, None)
        if name is None:
            return
        fault = None if event.fault is None else {"code": event.fault.code, "message": event.fault.message}
        self._emit(
            "STEP_FINISHED", stepName=name, metadata=_mark({"id": step_id, "update": event.update, "fault": fault})
        )

    def _state_saved(self, event: StateSaved) -> None:
        self._state.save(event)

    def _message_ended(self, event: MessageEnded) -> None:
        self._usage = add_usage(self._usage, event.usage) if event.usage else self._usage
        self._messages.write(event)

    def _custom(self, event: Custom) -> None:
        upstream = as_object(event.extra.get(PROTOCOL)).get("event")
        if isinstance(upstream, dict):
            self._emit_native(upstream)  # pyright: ignore[reportUnknownArgumentType]
            return
        marks = {"ns": list(event.ns) or None, "isUnnamed": None if event.name else True}
        event_value = {"value": event.value}  # null is a value
        self._emit("CUSTOM", name=event.name or names.CUSTOM, metadata=_mark(marks))
        self._list.events[-1].update(event_value)

    def _native(self, event: Native) -> None:
        if event.protocol != PROTOCOL or not isinstance(event.data, dict):
            return
        if self.ids.is_old and event.event not in _OLD_EVENTS:
            self._losses[Loss(feature=Feature.CUSTOM, how=_UNKNOWN_EVENT)] = None
            return
        self._emit_native(event.data)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

    def _emit_native(self, event: JsonObject) -> None:
        """Add an event of another AG-UI server unchanged, except for its time."""
        self._list.add({**event, "timestamp": self._list.at})

    def _loss_noted(self, event: LossNoted) -> None:
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    _WRITES: ClassVar[Mapping[type, Any]] = {
        RunCreated: _run_created,
        RunStarted: _run_started,
        RunEnded: _run_ended,
        InterruptRaised: _interrupt_raised,
        StepStarted: _step_started,
        StepEnded: _step_ended,
        StateSaved: _state_saved,
        MessageEnded: _message_ended,
        Custom: _custom,
        Native: _native,
        LossNoted: _loss_noted,
    }


def fault_words(fault: Fault | None) -> tuple[str, str]:
    """Return message and code of a failed run. If its fault is not known (None), they are general ones."""
    return ("The agent failed.", str(FaultCode.AGENT_FAILED)) if fault is None else (fault.message, str(fault.code))


def _mark(members: JsonObject) -> JsonObject | None:
    """Return `metadata` with the members that are not None as the gateway's own, or None if there are no such
    members."""
    found = {name: value for name, value in members.items() if value is not None}
    return {w.OWN: found} if found else None


_COUNTS: Final = frozenset({"input_tokens", "output_tokens", "total_tokens"})


def _is_whole(usage: JsonObject) -> bool:
    """Return True if `TokenUsage` has a member for everything in a canonical usage."""
    return usage.keys() <= _COUNTS and all(type(value) is int for value in usage.values())
