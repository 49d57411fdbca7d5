"""Encoding of records as the events of a thread, run after run, in the Agent Protocol's event streaming (CDDL 0.0.13).

Events have the form that LangGraph Platform sends. Names are in snake_case in its dialect, and in camelCase, as in the
CDDL, in that of the Agent Protocol.
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
from babelgate.adapters.langchain.codec.stream_modes import StreamParameters
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
"""Factor of an event's `seq`, which is the seq of its record times this factor, plus the event's number within the
record. So an event has the same `seq` for every subscription and after every restart. Chosen."""

Wanted = Callable[[int, str, Sequence[str], str], bool]
"""Function that returns True if a subscription includes an event. Takes the event's seq, channel and namespace, and the
name of a custom event or ""."""

_CHANNELS: Final = {
    "values": "values",
    "state_update": "values",
    "updates": "updates",
    "checkpoints": "checkpoints",
    "tasks": "tasks",
    "custom": "custom",
}
"""Channel by stream mode, for events that have the same payload as the frame of the stream mode. Events of all other
channels have a payload of a different form."""
_LIFECYCLE_ENDS: Final = {
    RunStatus.SUCCESS: "completed",
    RunStatus.ERROR: "failed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.PAUSED: "interrupted",
}
"""Event of the channel `lifecycle` by the status of a run that has ended."""
_CANCELLED: Final = "The run was cancelled"
_STATE_CHANNELS: Final = frozenset({"values", "checkpoints"})
"""Channels whose events do not mark a namespace as started. The first task in the namespace does that, because its
metadata may have the name of the agent there."""
_PROTOCOL_CHANNELS: Final = frozenset({"messages", "tools", "lifecycle", "input", "checkpoints"})
"""Channels whose payload the protocol defines. Its members are in camelCase in the Agent Protocol's dialect."""
_OPAQUE_MEMBERS: Final = frozenset({"args", "extras", "input", "metadata", "output", "payload", "value", "values"})
"""Members whose value comes from an agent or a caller, so that the names inside are not changed to camelCase."""


class ThreadEvent(NamedTuple):
    """One encoded event of a thread. `method` is its name, which is mostly that of its channel."""

    seq: int
    method: str
    data: bytes | LargeJson
    """JSON of the whole event."""


@dataclass(slots=True)
class _OpenMessage:
    """A message of which the start was written, but not yet the end."""

    started: MessageStarted
    blocks: Blocks = field(default_factory=Blocks)
    held: list[JsonObject] | None = None
    """Events that wait until the message has content, because messages without content are not sent. None: events are
    sent at once."""


class ThreadEvents(EventWriter):
    """Writer of a thread's events. It encodes those for which `wanted` returns True.

    It must receive every record of the thread that follows `history`, or every one from the first on. No run may be
    active at the end of `history`.
    """

    def __init__(self, view: StreamParameters, wanted: Wanted, history: StateHistory | None = None) -> None:
        super().__init__(view, history)
        self.places = Places()
        self._is_wanted = wanted
        self._events: list[ThreadEvent] = []
        self._open_messages: dict[str, _OpenMessage] = {}
        """Open messages, by id."""
        self._started_calls: set[str] = set()
        """Ids of the tool calls for which the current run has had an event `tool-started`."""

    def encode(self, record: Record) -> Sequence[ThreadEvent]:
        """Return those events of a record for which `wanted` returned True."""
        self._events = []
        self.write(record)
        return self._events

    # Events

    def _frame(self, mode: str, event: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        channel = _CHANNELS.get(mode)
        if channel is None:
            return
        shaped = self._update if channel == "updates" else self._wrap_payload if channel == "custom" else None
        self._emit(channel, payload if shaped is None else lambda: shaped(payload()), ns)

    def _update(self, value: Any) -> Any:
        """Return a node's update in the dialect's form. LangGraph Platform sends `{node: update}` as in its stream
        mode; the CDDL has `{"node": …, "values": …}`."""
        return _by_node(value) if self.view.dialect == "agent-protocol" else value

    def _wrap_payload(self, value: Any) -> Any:
        """Return a custom value in the dialect's form. LangGraph Platform sends the value itself; the CDDL has
        `{"payload": value}`."""
        return {"payload": value} if self.view.dialect == "agent-protocol" else value

    def _emit(
        self,
        channel: str,
        payload: Payload,
        ns: Sequence[str] = (),
        *,
        method: str = "",
        node: str = "",
        name: str = "",
    ) -> None:
        """Add an event if `wanted` accepts it. Increase the event number in any case. The first event in a namespace is
        preceded by the start of this namespace."""
        if channel not in _STATE_CHANNELS:
            self._lifecycle(self.places.enter(tuple(ns)))
        seq = self._record.seq * EVENTS_PER_RECORD + self._n
        self._n += 1
        if not self._is_wanted(seq, channel, ns, name):
            return
        camel = self.view.dialect == "agent-protocol"
        data = payload()
        params: JsonObject = {
            "namespace": list(ns),
            # Milliseconds (CDDL 0.0.13, Timestamp).
            "timestamp": self._record.at // 1000,
            "data": to_camel_case(data) if camel and channel in _PROTOCOL_CHANNELS else data,
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
            self._emit("lifecycle", lambda data=data: data, ns)

    def _write_custom(self, name: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        self._emit("custom", lambda: {"name": name, "payload": payload()}, ns, name=name)

    # Runs

    def _start(self, event: RunStarted, revision: Revision | None) -> None:
        """Write the start of a run, and forget the open messages that the restart has voided. `revision` is the one
        that the current record has created, if any."""
        self._open_messages = {
            name: message
            for name, message in self._open_messages.items()
            if event.void is not None and not event.is_void(name)
        }
        self._started_calls.clear()
        self._lifecycle([((), self.places.begin(self._agent()))])
        super()._start(event, revision)

    def _end(self, event: RunEnded, revision: Revision | None) -> None:
        super()._end(event, revision)
        if self._run is not None:  # it was cancelled while it waited behind an active run, and has no other events
            return
        status = self._lifecycle_end(event)
        if event.status is RunStatus.PAUSED:
            for question in self._history.fold.open_interrupts(self._record.task_id):
                self._emit_question(question)
        self._lifecycle(self.places.leave((), status))
        error = _CANCELLED if event.fault is None else encode_error(event.fault)["message"]
        self._lifecycle([((), self.places.end(self._agent(), status, error if status == "failed" else None))])

    def _lifecycle_end(self, event: RunEnded) -> str:
        """Return the event of the channel `lifecycle` for the end of a run.

        LangGraph Platform reports every cancelled run as `interrupted`. Its own client then waits indefinitely if there
        is no question (langgraph-sdk 0.4.14, `_is_root_terminal_lifecycle`). So a cancelled run is `interrupted` only
        if another run replaces it, and `failed` otherwise.
        """
        if event.status is not RunStatus.CANCELLED:
            return _LIFECYCLE_ENDS[event.status]
        has_pending_run = any(run.status is RunStatus.PENDING for run in self._history.fold.runs.values())
        return "interrupted" if has_pending_run and event.reason is not RunReason.CALLER else "failed"

    def _agent(self) -> str:
        """Return the name of the agent that the current record belongs to, or ""."""
        task = self._history.task(self._record.task_id)
        return "" if task is None else task.agent

    def _write_interrupts(self, revision: Revision | None, questions: Sequence[Interrupt]) -> None:
        state = revision or self._history.head
        self._write_revision(revision, values=lambda: self._values(state))

    def _emit_question(self, question: Interrupt) -> None:
        interrupt = encode_interrupts([question])[0]
        wire_id, value = interrupt.pop("id"), interrupt["value"]
        # CDDL 0.0.13 has `payload`; langgraph-sdk 0.4.14 reads `value` (`_sync/stream.py`, _apply_lifecycle_event).
        data = {"interrupt_id": wire_id, "payload": value, **interrupt}
        self._emit("input", lambda: data, question.ns, method="input.requested", node=question.node)

    def _checkpoint(self, revision: Revision) -> JsonObject:
        wire: JsonObject = {"id": revision.checkpoint_id, "step": revision.step, "source": revision.source}
        return wire if revision.parent_id is None else {**wire, "parent_id": revision.parent_id}

    # Work

    def _write_activity(self, event: StepStarted | StepEnded | ToolStarted | ToolEnded) -> None:
        match event:
            case StepStarted():
                self.places.identify(event)
                super()._write_activity(event)
            case StepEnded():
                super()._write_activity(event)
                self._lifecycle(self.places.step_ended(event))
            case _:
                self._tool(event)

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        call_id = event.call_id or ""
        if isinstance(event, ToolStarted):
            self._call(call_id, event.name, event.input, node=event.node)
        elif event.fault is not None:
            # CDDL 0.0.13: tool-started, tool-output-delta, tool-finished and tool-error are the events of the channel.
            result = {"event": "tool-error", "message": event.fault.message, "code": event.fault.code}
            self._emit("tools", lambda: {"tool_call_id": call_id, **result})
        else:
            result = {"event": "tool-finished", "output": event.output}
            self._emit("tools", lambda: {"tool_call_id": call_id, **result})

    def _call(self, call_id: str, name: str, arguments: Json, ns: Sequence[str] = (), node: str = "") -> None:
        if call_id in self._started_calls:
            return
        self._started_calls.add(call_id)
        data = {"event": "tool-started", "tool_call_id": call_id, "tool_name": name, "input": arguments}
        self._emit("tools", lambda: data, ns, node=node)

    def _write_calls(self, started: MessageStarted) -> None:
        """Write `tools` events for the calls and results in a complete message. Graphs report their tools only in
        messages."""
        message = self._history.fold.message(started.message_id or "")
        is_stateful = self._run is not None and self._run.stateful
        for part in () if message is None else message.parts:
            if isinstance(part, ToolCallPart) and part.side == "agent":
                args = decode_arguments(part.arguments)
                self._call(part.call_id, part.name, part.arguments if args is None else args, started.ns, started.node)
            elif isinstance(part, ToolResultPart) and part.call_id in self._started_calls:
                # A graph's tool returns a message, which LangGraph Platform sends whole.
                output = part.output if message is None or not is_stateful else self._message(message)
                result = _result(part, output)
                self._emit("tools", lambda result=result: result, started.ns, node=started.node)

    def _artifact(self, event: ArtifactAdded) -> None:
        self._write_custom("artifact", lambda: encode_artifact(event))

    def _custom(self, event: Custom) -> None:
        if event.name:
            self._write_custom(event.name, lambda: event.value, event.ns)
        else:
            # A graph can put a name only into the value that it writes, and clients subscribe by that name.
            name: Any = as_object(event.value).get("name")
            event_name = name if isinstance(name, str) else ""
            self._emit("custom", lambda: self._wrap_payload(event.value), event.ns, name=event_name)

    # Messages

    def _write(self, record: Record, revision: Revision | None) -> None:
        match record.event:
            case PartEnded():
                self._write_message(record.event)
            # The checkpoint that the run continues from
            case Native(event="checkpoints", ns=ns, data=data) if data is not None:
                self._emit("checkpoints", lambda: _encode_checkpoint(as_object(data)), ns)
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
                self._begin_message(message_id, event, stateful=run.stateful)
            return
        message = self._open_messages.get(message_id)
        if message is None:
            return
        if self._is_progress(message.started):
            self._write_progress(event, message.started)
            return
        self._continue_message(message, event)
        if isinstance(event, MessageEnded):
            del self._open_messages[message_id]
            self._finish_message(message, event)
            self._write_calls(message.started)
            if run.stateful:  # the agent reports its updates itself
                return
            node, whole = message.started.node or run.node, self._whole_with_usage(message_id, event)
            self._emit("updates", lambda: self._update({node: {"messages": [whole()]}}), message.started.ns)

    def _begin_message(self, message_id: str, event: MessageStarted, *, stateful: bool) -> None:
        message = self._open_messages[message_id] = _OpenMessage(event)
        if event.role == "tool" or self._is_progress(event):
            return
        start = {"event": "message-start", "role": TYPES[event.role], **self._start_metadata(event)}
        if stateful:
            message.held = [start]
        else:
            self._emit_message(event, start)

    def _continue_message(self, message: _OpenMessage, event: PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        """Write the content blocks of a message that an event starts, continues or ends. A block is held back while an
        earlier one is open."""
        match event:
            case PartAdded():
                events = message.blocks.add(event)
            case PartDelta():
                events = message.blocks.delta(event)
            case PartEnded():
                events = message.blocks.end(event)
            case MessageEnded():
                events = message.blocks.close()
        if message.started.role == "tool":  # the channel has no such role: results of tools are in the channel `tools`
            return
        if message.held is not None:
            message.held += events
            # A message that a node adds whole to a graph's conversation is sent if it has content. LangGraph Platform
            # sends only what models stream. A tool call is in the channel `tools` in either case.
            if not isinstance(event, PartAdded) or (isinstance(event.part, ToolCallPart) and not event.open):
                return
            events, message.held = message.held, None
        for data in events:
            self._emit_message(message.started, data)

    def _finish_message(self, message: _OpenMessage, event: MessageEnded) -> None:
        if message.started.role == "tool" or message.held is not None:
            return
        usage = encode_usage(event.usage)
        self._emit_message(message.started, {"event": "message-finish", **({} if usage is None else {"usage": usage})})

    def _emit_message(self, started: MessageStarted, data: JsonObject) -> None:
        """Add an event of a message, with the id of the message, because several messages may be open at once."""
        run = self._run
        node = started.node or ("" if run is None else run.node)
        self._emit("messages", lambda: {**data, "id": started.message_id}, started.ns, node=node)

    def _start_metadata(self, started: MessageStarted) -> JsonObject:
        """Return the member `metadata` for the start of a message: its node, run and thread, as far as they are
        known."""
        run = self._run
        node = started.node or ("" if run is None else run.node)
        ids = {"langgraph_node": node, "run_id": self._record.run_id, "thread_id": self.view.thread_id}
        metadata = {name: value for name, value in ids.items() if value}
        return {"metadata": to_camel_case(metadata) if self.view.dialect == "agent-protocol" else metadata}

    def _write_progress(self, event: PartAdded | PartDelta | PartEnded | MessageEnded, started: MessageStarted) -> None:
        if isinstance(event, MessageEnded):
            del self._open_messages[event.message_id or ""]
            message = self._history.fold.message(event.message_id or "")
            self._write_custom("progress", lambda: "" if message is None else message.text, started.ns)


def _encode_checkpoint(checkpoint: JsonObject) -> JsonObject:
    """Return a checkpoint in the form of a LangGraph frame as `{id, step, source, parent_id}`, the form of this
    protocol."""

    def checkpoint_id(config: Any) -> Any:
        return as_object(as_object(config).get("configurable")).get("checkpoint_id")

    metadata, parent = as_object(checkpoint.get("metadata")), checkpoint_id(checkpoint.get("parent_config"))
    wire = {
        "id": checkpoint_id(checkpoint.get("config")),
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }
    return wire if parent is None else {**wire, "parent_id": parent}


def _result(part: ToolResultPart, output: Json) -> JsonObject:
    call: JsonObject = {"tool_call_id": part.call_id}
    if not part.error:
        return {"event": "tool-finished", **call, "output": output}
    message = part.output if isinstance(part.output, str) else json_text(part.output)
    return {"event": "tool-error", **call, "message": message}


def _by_node(value: Any) -> JsonObject:
    """Return an update `{node: values}` as `{"node": node, "values": values}`. Values that are not an object become
    `{"value": …}`."""
    if isinstance(value, dict) and len(value) == 1:  # pyright: ignore[reportUnknownArgumentType]
        node, values = next(iter(as_object(value).items()))
        # CDDL 0.0.13: the values of an update are an object.
        return {"node": node, "values": values if isinstance(values, dict) else {"value": values}}
    return {"values": value if isinstance(value, dict) else {"value": value}}


def to_camel_case(value: Any) -> Any:
    """Return a JSON value with the names of all members in camelCase, except inside members that an agent or caller has
    written (`_OPAQUE_MEMBERS`)."""
    if isinstance(value, list):
        return [to_camel_case(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    wire: JsonObject = {}
    for name, member in as_object(value).items():
        first, *rest = name.split("_")
        wire[first + "".join(word.capitalize() for word in rest)] = (
            member if name in _OPAQUE_MEMBERS else to_camel_case(member)
        )
    return wire
