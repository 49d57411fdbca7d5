"""Records → the events of a thread, run after run, as the Agent Protocol's event streaming tells them (CDDL 0.0.13).

The shapes are those that LangGraph Platform sends: names in snake_case, where the CDDL has camelCase. Which spelling is
spoken follows from the dialect.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.langchain.codec.content import decode_arguments
from babelgate.adapters.langchain.codec.interrupts import encode_interrupts
from babelgate.adapters.langchain.codec.message import TYPES, encode_usage
from babelgate.adapters.langchain.codec.places import Namespace, Places
from babelgate.adapters.langchain.codec.stream_modes import View
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.adapters.langchain.write.content_blocks import Blocks
from babelgate.adapters.langchain.write.run_frames import EventWriter, Payload, encode_artifact
from babelgate.canonical import Record, Revision, RunReason, RunStatus, StateHistory, ToolCallPart, ToolResultPart
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import Json, JsonObject

EVENTS_PER_RECORD: Final = 10_000
"""The `seq` of an event is its record's, times this, and its number among the record's events: so it is the same for
every reader, after every restart, whatever else was asked for."""

Wanted = Callable[[int, str, Sequence[str], str], bool]
"""Whether an event is told to anybody, by its seq, channel, namespace and, where it is a custom one, name."""

_CHANNELS: Final = {
    "values": "values",
    "state_update": "values",
    "updates": "updates",
    "checkpoints": "checkpoints",
    "tasks": "tasks",
    "custom": "custom",
}
"""By stream mode. Messages, tools, lifecycle and questions have forms of their own."""
_ENDS: Final = {
    RunStatus.SUCCESS: "completed",
    RunStatus.ERROR: "failed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.PAUSED: "interrupted",
}
_CANCELLED: Final = "The run was cancelled"
_STATES: Final = frozenset({"values", "checkpoints"})
"""Channels that do not open a place: its first task does, which may say the name of the agent there."""
_SPELLED: Final = frozenset({"messages", "tools", "lifecycle", "input", "checkpoints"})
"""Channels whose payload is the protocol's own."""
_OPAQUE: Final = frozenset({"args", "extras", "input", "metadata", "output", "payload", "value", "values"})


class ThreadEvent(NamedTuple):
    seq: int
    method: str
    data: bytes | LargeJson
    """The whole event, JSON."""


@dataclass(slots=True)
class _OpenMessage:
    """A message that is being said."""

    started: MessageStarted
    blocks: Blocks = field(default_factory=Blocks)
    held: list[JsonObject] | None = None
    """What is not told before it is clear that the message says something; None = nothing is held back."""


class ThreadEvents(EventWriter):
    """Fed with every record of a thread: from its first one on, or from where a history of it ends, as long as no run
    was at work then."""

    def __init__(self, view: View, wanted: Wanted, history: StateHistory | None = None) -> None:
        super().__init__(view, history)
        self.places = Places()
        self._wanted_by = wanted
        self._events: list[ThreadEvent] = []
        self._said: dict[str, _OpenMessage] = {}
        self._tools_told: set[str] = set()
        """Ids of the calls that have begun in the run."""

    def tell(self, record: Record) -> Sequence[ThreadEvent]:
        """The events that the record becomes, of those that are wanted."""
        self._events = []
        self.write(record)
        return self._events

    # Events

    def _frame(self, mode: str, event: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        channel = _CHANNELS.get(mode)
        if channel is None:
            return
        shaped = self._update if channel == "updates" else self._wrap_payload if channel == "custom" else None
        self._tell(channel, payload if shaped is None else lambda: shaped(payload()), ns)

    def _update(self, value: Any) -> Any:
        """LangGraph Platform tells updates as its stream mode does, `{node: update}`; the CDDL has the node apart."""
        return _by_node(value) if self.view.dialect == "agent-protocol" else value

    def _wrap_payload(self, value: Any) -> Any:
        """LangGraph Platform tells what an agent wrote as it was written; the CDDL has a member for it."""
        return {"payload": value} if self.view.dialect == "agent-protocol" else value

    def _tell(
        self,
        channel: str,
        payload: Payload,
        ns: Sequence[str] = (),
        *,
        method: str = "",
        node: str = "",
        name: str = "",
    ) -> None:
        if channel not in _STATES:
            self._lifecycle(self.places.enter(tuple(ns)))
        seq = self._record.seq * EVENTS_PER_RECORD + self._n
        self._n += 1
        if not self._wanted_by(seq, channel, ns, name):
            return
        camel = self.view.dialect == "agent-protocol"
        data = payload()
        params: JsonObject = {
            "namespace": list(ns),
            # Milliseconds (CDDL 0.0.13, Timestamp).
            "timestamp": self._record.at // 1000,
            "data": to_camel_case(data) if camel and channel in _SPELLED else data,
        }
        if node:
            params["node"] = node
        event = {
            "type": "event",
            # CDDL 0.0.13 has camelCase; langgraph-api 0.16.7 and langgraph-sdk 0.4.14 have
            # snake_case.
            "eventId" if camel else "event_id": f"{self._record.seq}-{self._n - 1}",
            "seq": seq,
            "method": method or channel,
            "params": params,
        }
        self._events.append(ThreadEvent(seq, method or channel, encode(event)))

    def _lifecycle(self, changes: Sequence[tuple[Namespace, JsonObject]]) -> None:
        for ns, data in changes:
            self._tell("lifecycle", lambda data=data: data, ns)

    def _write_custom(self, name: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        self._tell("custom", lambda: {"name": name, "payload": payload()}, ns, name=name)

    # Runs

    def _start(self, event: RunStarted, revision: Revision | None) -> None:
        self._said = {
            name: said for name, said in self._said.items() if event.void is not None and not event.is_void(name)
        }
        self._tools_told.clear()
        self._lifecycle([((), self.places.begin(self._agent()))])
        super()._start(event, revision)

    def _end(self, event: RunEnded, revision: Revision | None) -> None:
        super()._end(event, revision)
        if self._run is not None:  # it was cancelled while it waited for this one, of which all is told
            return
        status = self._lifecycle_end(event)
        if event.status is RunStatus.PAUSED:
            for question in self._history.fold.open_interrupts(self._record.task_id):
                self._ask(question)
        self._lifecycle(self.places.leave((), status))
        error = _CANCELLED if event.fault is None else encode_error(event.fault)["message"]
        self._lifecycle([((), self.places.end(self._agent(), status, error if status == "failed" else None))])

    def _lifecycle_end(self, event: RunEnded) -> str:
        """LangGraph Platform calls a run that was cancelled `interrupted`, too. At that its own client waits for ever
        where nobody asks (langgraph-sdk 0.4.14, `_is_root_terminal_lifecycle`), as after a run that goes on with the
        one that takes its place: that is no end."""
        if event.status is not RunStatus.CANCELLED:
            return _ENDS[event.status]
        waits = any(run.status is RunStatus.PENDING for run in self._history.fold.runs.values())
        return "interrupted" if waits and event.reason is not RunReason.CALLER else "failed"

    def _agent(self) -> str:
        task = self._history.task(self._record.task_id)
        return "" if task is None else task.agent

    def _write_interrupts(self, revision: Revision | None, questions: Sequence[Interrupt]) -> None:
        state = revision or self._history.head
        self._revision(revision, values=lambda: self._values(state))

    def _ask(self, question: Interrupt) -> None:
        asked = encode_interrupts([question])[0]
        wire_id, value = asked.pop("id"), asked["value"]
        # CDDL 0.0.13 has `payload`; langgraph-sdk 0.4.14 reads `value` (`_sync/stream.py`, _apply_lifecycle_event).
        data = {"interrupt_id": wire_id, "payload": value, **asked}
        self._tell("input", lambda: data, question.ns, method="input.requested", node=question.node)

    def _checkpoint(self, revision: Revision) -> JsonObject:
        made: JsonObject = {"id": revision.checkpoint_id, "step": revision.step, "source": revision.source}
        return made if revision.parent_id is None else {**made, "parent_id": revision.parent_id}

    # Work

    def _work(self, event: StepStarted | StepEnded | ToolStarted | ToolEnded) -> None:
        match event:
            case StepStarted():
                self.places.identify(event)
                super()._work(event)
            case StepEnded():
                super()._work(event)
                self._lifecycle(self.places.step_ended(event))
            case _:
                self._tool(event)

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        call_id = event.call_id or ""
        if isinstance(event, ToolStarted):
            self._call(call_id, event.name, event.input, node=event.node)
        elif event.fault is not None:
            # CDDL 0.0.13: tool-started, tool-output-delta, tool-finished and tool-error are the events of the channel.
            told = {"event": "tool-error", "message": event.fault.message, "code": event.fault.code}
            self._tell("tools", lambda: {"tool_call_id": call_id, **told})
        else:
            told = {"event": "tool-finished", "output": event.output}
            self._tell("tools", lambda: {"tool_call_id": call_id, **told})

    def _call(self, call_id: str, name: str, given: Json, ns: Sequence[str] = (), node: str = "") -> None:
        if call_id in self._tools_told:
            return
        self._tools_told.add(call_id)
        data = {"event": "tool-started", "tool_call_id": call_id, "tool_name": name, "input": given}
        self._tell("tools", lambda: data, ns, node=node)

    def _calls_of(self, started: MessageStarted) -> None:
        """Of an agent that tells of its tools in messages, as graphs do: the calls of its own that it says, and the
        results that it is given."""
        message = self._history.fold.message(started.message_id or "")
        stateful = self._run is not None and self._run.stateful
        for part in () if message is None else message.parts:
            if isinstance(part, ToolCallPart) and part.side == "agent":
                args = decode_arguments(part.arguments)
                self._call(part.call_id, part.name, part.arguments if args is None else args, started.ns, started.node)
            elif isinstance(part, ToolResultPart) and part.call_id in self._tools_told:
                # A graph's tool gives a message, which LangGraph Platform tells whole.
                output = part.output if message is None or not stateful else self._message(message)
                told = _result(part, output)
                self._tell("tools", lambda told=told: told, started.ns, node=started.node)

    def _artifact(self, event: ArtifactAdded) -> None:
        self._write_custom("artifact", lambda: encode_artifact(event))

    def _custom(self, event: Custom) -> None:
        if event.name:
            self._write_custom(event.name, lambda: event.value, event.ns)
        else:
            # A graph has no other place for a name than what it writes, and clients ask for it by that.
            name: Any = as_object(event.value).get("name")
            told = name if isinstance(name, str) else ""
            self._tell("custom", lambda: self._wrap_payload(event.value), event.ns, name=told)

    # Messages

    def _write(self, record: Record, revision: Revision | None) -> None:
        match record.event:
            case PartEnded():
                self._write_message(record.event)
            case Native(event="checkpoints", ns=ns, data=data) if data is not None:  # one that the run goes on from
                self._tell("checkpoints", lambda: _encode_checkpoint(as_object(data)), ns)
            case _:
                super()._write(record, revision)

    def _delta(self, event: PartDelta) -> None:
        self._write_message(event)

    def _write_message(self, event: MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        run, message_id = self._run, event.message_id or ""
        if run is None:
            return
        if isinstance(event, MessageStarted):
            if not as_object(event.extra.get("langgraph")).get("derived"):
                self._begin(message_id, event, stateful=run.stateful)
            return
        said = self._said.get(message_id)
        if said is None:
            return
        if self._is_aside(said.started):
            self._on_the_way(event, said.started)
            return
        self._go_on(said, event)
        if isinstance(event, MessageEnded):
            del self._said[message_id]
            self._finish(said, event)
            self._calls_of(said.started)
            if run.stateful:  # it tells of its updates itself
                return
            node, whole = said.started.node or run.node, self._whole_with_usage(message_id, event)
            self._tell("updates", lambda: self._update({node: {"messages": [whole()]}}), said.started.ns)

    def _begin(self, message_id: str, event: MessageStarted, *, stateful: bool) -> None:
        said = self._said[message_id] = _OpenMessage(event)
        if event.role == "tool" or self._is_aside(event):
            return
        start = {"event": "message-start", "role": TYPES[event.role], **self._from(event)}
        if stateful:
            said.held = [start]
        else:
            self._say(event, start)

    def _go_on(self, said: _OpenMessage, event: PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        match event:
            case PartAdded():
                told = said.blocks.add(event)
            case PartDelta():
                told = said.blocks.delta(event)
            case PartEnded():
                told = said.blocks.end(event)
            case MessageEnded():
                told = said.blocks.close()
        if said.started.role == "tool":  # there is no such role here: the channel `tools` has what tools gave
            return
        if said.held is not None:
            said.held += told
            # What a node puts into a graph's conversation whole is told where it says something. LangGraph Platform
            # tells of what models stream alone; `tools` has a call in either case.
            if not isinstance(event, PartAdded) or (isinstance(event.part, ToolCallPart) and not event.open):
                return
            told, said.held = said.held, None
        for data in told:
            self._say(said.started, data)

    def _finish(self, said: _OpenMessage, event: MessageEnded) -> None:
        if said.started.role == "tool" or said.held is not None:
            return
        usage = encode_usage(event.usage)
        self._say(said.started, {"event": "message-finish", **({} if usage is None else {"usage": usage})})

    def _say(self, started: MessageStarted, data: JsonObject) -> None:
        """Each event names its message: several may be said side by side."""
        run = self._run
        node = started.node or ("" if run is None else run.node)
        self._tell("messages", lambda: {**data, "id": started.message_id}, started.ns, node=node)

    def _from(self, started: MessageStarted) -> JsonObject:
        run = self._run
        node = started.node or ("" if run is None else run.node)
        about = {"langgraph_node": node, "run_id": self._record.run_id, "thread_id": self.view.thread_id}
        known = {name: value for name, value in about.items() if value}
        return {"metadata": to_camel_case(known) if self.view.dialect == "agent-protocol" else known}

    def _on_the_way(self, event: PartAdded | PartDelta | PartEnded | MessageEnded, started: MessageStarted) -> None:
        if isinstance(event, MessageEnded):
            del self._said[event.message_id or ""]
            found = self._history.fold.message(event.message_id or "")
            self._write_custom("progress", lambda: "" if found is None else found.text, started.ns)


def _encode_checkpoint(checkpoint: JsonObject) -> JsonObject:
    """As the protocol has it, of one that LangGraph told."""

    def checkpoint_id(config: Any) -> Any:
        return as_object(as_object(config).get("configurable")).get("checkpoint_id")

    metadata, parent = as_object(checkpoint.get("metadata")), checkpoint_id(checkpoint.get("parent_config"))
    made = {
        "id": checkpoint_id(checkpoint.get("config")),
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }
    return made if parent is None else {**made, "parent_id": parent}


def _result(part: ToolResultPart, output: Json) -> JsonObject:
    told: JsonObject = {"tool_call_id": part.call_id}
    if not part.error:
        return {"event": "tool-finished", **told, "output": output}
    message = part.output if isinstance(part.output, str) else json_text(part.output)
    return {"event": "tool-error", **told, "message": message}


def _by_node(value: Any) -> JsonObject:
    """`{node: values}` of one node as the CDDL has it."""
    if isinstance(value, dict) and len(value) == 1:  # pyright: ignore[reportUnknownArgumentType]
        node, values = next(iter(as_object(value).items()))
        # CDDL 0.0.13: the values of an update are an object.
        return {"node": node, "values": values if isinstance(values, dict) else {"value": values}}
    return {"values": value if isinstance(value, dict) else {"value": value}}


def to_camel_case(value: Any) -> Any:
    """The protocol's own members in camelCase; what agents and callers said stays as it is."""
    if isinstance(value, list):
        return [to_camel_case(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    made: JsonObject = {}
    for name, member in as_object(value).items():
        first, *rest = name.split("_")
        made[first + "".join(word.capitalize() for word in rest)] = member if name in _OPAQUE else to_camel_case(member)
    return made
