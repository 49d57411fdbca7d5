"""Records → the events of a thread, run after run, as the Agent Protocol's event streaming tells them (CDDL 0.0.13).

The shapes are those that LangGraph Platform sends: names in snake_case, where the CDDL has camelCase. Which spelling is
spoken follows from the dialect.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from adapters.langchain.blocks import Blocks
from adapters.langchain.content import decoded_arguments, json_text, members_of
from adapters.langchain.fault import encode_error
from adapters.langchain.message import TYPES, encode_usage
from adapters.langchain.modes import View
from adapters.langchain.question import encode_interrupts
from adapters.langchain.writer import EventWriter, Payload, encode_artifact
from canonical import Record, Revision, RunStatus, ToolCallPart, ToolResultPart
from canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
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
from canonical.thread import Interrupt
from canonical.value import Json, JsonObject

__all__ = ("EVENTS_PER_RECORD", "ThreadEvent", "ThreadEvents", "spelled")

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
    RunStatus.CANCELLED: "interrupted",
}
_SPELLED: Final = frozenset({"messages", "tools", "lifecycle", "input", "checkpoints"})
"""Channels whose payload is the protocol's own."""
_OPAQUE: Final = frozenset({"args", "extras", "input", "metadata", "output", "payload", "value", "values"})


class ThreadEvent(NamedTuple):
    seq: int
    method: str
    data: bytes
    """The whole event, JSON."""


class ThreadEvents(EventWriter):
    """Fed with every record of a thread, from its first one on."""

    def __init__(self, view: View, wanted: Wanted) -> None:
        super().__init__(view)
        self.places: dict[tuple[str, ...], str] = {}
        """How it stands with the newest run, and with each place inside its agent: by namespace, a status."""
        self._wanted_by = wanted
        self._events: list[ThreadEvent] = []
        self._said: dict[str, tuple[MessageStarted, Blocks]] = {}
        self._tools_told: set[str] = set()
        """Ids of the calls that have begun in the run."""
        self._agent = ""

    def tell(self, record: Record) -> Sequence[ThreadEvent]:
        """The events that the record becomes, of those that are wanted."""
        self._events = []
        self.write(record)
        return self._events

    @property
    def tree(self) -> JsonObject | None:
        """`AgentTreeNode` of the newest run; None before the first."""
        return self._tree(()) if self.places else None

    def _tree(self, ns: tuple[str, ...]) -> JsonObject:
        below = [self._tree(place) for place in self.places if len(place) == len(ns) + 1 and place[: len(ns)] == ns]
        node = {"namespace": list(ns), "status": self.places[ns], "graph_name": self._name(ns)}
        return {**node, "children": below} if below else node

    # Events

    def _frame(self, mode: str, event: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        channel = _CHANNELS.get(mode)
        if channel is None:
            return
        if channel == "updates":
            self._tell("updates", lambda: _update(payload()), ns)
        elif channel == "custom":
            self._tell("custom", lambda: {"payload": payload()}, ns)
        else:
            self._tell(channel, payload, ns)

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
        self._enter(tuple(ns))
        seq = self._record.seq * EVENTS_PER_RECORD + self._n
        self._n += 1
        if not self._wanted_by(seq, channel, ns, name):
            return
        camel = self.view.dialect == "agent-protocol"
        data = payload()
        params: JsonObject = {
            "namespace": list(ns),
            "timestamp": self._record.at // 1000,
            "data": spelled(data) if camel and channel in _SPELLED else data,
        }
        if node:
            params["node"] = node
        event = {
            "type": "event",
            "eventId" if camel else "event_id": f"{self._record.seq}-{self._n - 1}",
            "seq": seq,
            "method": method or channel,
            "params": params,
        }
        self._events.append(ThreadEvent(seq, method or channel, to_json(event)))

    def _enter(self, ns: tuple[str, ...]) -> None:
        """A place inside the agent begins where it is first heard of."""
        if not ns or ns in self.places or not self.places:
            return
        self._enter(ns[:-1])
        self.places[ns] = "started"
        self._lifecycle("started", ns)

    def _lifecycle(self, status: str, ns: tuple[str, ...] = (), error: str | None = None) -> None:
        data: JsonObject = {"event": status, "graph_name": self._name(ns)}
        if ns and ":" in ns[-1]:
            data["trigger_call_id"] = ns[-1].partition(":")[2]
        if error is not None:
            data["error"] = error
        self._tell("lifecycle", lambda: data, ns)

    def _name(self, ns: tuple[str, ...]) -> str:
        return ns[-1].partition(":")[0] if ns else self._agent

    def _named(self, name: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        self._tell("custom", lambda: {"name": name, "payload": payload()}, ns, name=name)

    # Runs

    def _start(self, event: RunStarted, revision: Revision | None) -> None:
        self._agent = self._agent_of(self._record)
        self._said.clear()
        self._tools_told.clear()
        self.places = {(): "running"}
        self._lifecycle("running")
        super()._start(event, revision)

    def _end(self, event: RunEnded, revision: Revision | None) -> None:
        super()._end(event, revision)
        if self._run is not None:  # it was cancelled while it waited for this one, of which all is told
            return
        status, self._agent = _ENDS[event.status], self._agent_of(self._record)
        if event.status is RunStatus.PAUSED:
            for question in self._history.fold.open_interrupts(self._record.task_id):
                self._ask(question)
        for ns in [place for place, state in reversed(self.places.items()) if place and state == "started"]:
            self.places[ns] = status
            self._lifecycle(status, ns)
        self.places[()] = status
        self._lifecycle(status, error=encode_error(event.fault)["message"] if status == "failed" else None)

    def _agent_of(self, record: Record) -> str:
        task = self._history.task(record.task_id)
        return "" if task is None else task.agent

    def _interrupted(self, revision: Revision | None, questions: Sequence[Interrupt]) -> None:
        self._revision(revision)

    def _ask(self, question: Interrupt) -> None:
        asked = encode_interrupts([question])[0]
        wire_id, value = asked.pop("id"), asked["value"]
        # The protocol has `payload`; LangGraph's own Python client reads `value`.
        data = {"interrupt_id": wire_id, "payload": value, **asked}
        self._tell("input", lambda: data, question.ns, method="input.requested", node=question.node)

    def _checkpoint(self, revision: Revision) -> JsonObject:
        made: JsonObject = {"id": revision.checkpoint_id, "step": revision.step, "source": revision.source}
        return made if revision.parent_id is None else {**made, "parent_id": revision.parent_id}

    # Work

    def _work(self, event: StepStarted | StepEnded | ToolStarted | ToolEnded) -> None:
        if isinstance(event, ToolStarted | ToolEnded):
            self._tool(event)
        else:
            super()._work(event)

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        call_id = event.call_id or ""
        if isinstance(event, ToolStarted):
            self._call(call_id, event.name, event.input, node=event.node)
        elif event.fault is not None:
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
        for part in () if message is None else message.parts:
            if isinstance(part, ToolCallPart) and part.side == "agent":
                args = decoded_arguments(part.arguments)
                self._call(part.call_id, part.name, part.arguments if args is None else args, started.ns, started.node)
            elif isinstance(part, ToolResultPart) and part.call_id in self._tools_told:
                told = _result(part)
                self._tell("tools", lambda told=told: told, started.ns, node=started.node)

    def _artifact(self, event: ArtifactAdded) -> None:
        self._named("artifact", lambda: encode_artifact(event))

    def _custom(self, event: Custom) -> None:
        if event.name:
            self._named(event.name, lambda: event.value, event.ns)
        else:
            self._tell("custom", lambda: {"payload": event.value}, event.ns)

    # Messages

    def _write(self, record: Record, revision: Revision | None) -> None:
        if isinstance(record.event, PartEnded):
            self._speech(record.event)
        else:
            super()._write(record, revision)

    def _speech(self, event: MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        run, message_id = self._run, event.message_id or ""
        if run is None:
            return
        if isinstance(event, MessageStarted):
            if not members_of(event.extra.get("langgraph")).get("derived"):
                self._said[message_id] = event, Blocks()
                if event.role != "tool" and not self._is_aside(event):
                    self._say(event, {"event": "message-start", "role": TYPES[event.role], **self._from(event)})
            return
        if message_id not in self._said:
            return
        started, blocks = self._said[message_id]
        if self._is_aside(started):
            self._on_the_way(event, started)
            return
        match event:
            case PartAdded():
                told = blocks.add(event)
            case PartDelta():
                told = blocks.delta(event)
            case PartEnded():
                told = blocks.end(event)
            case MessageEnded():
                told = blocks.close()
        if started.role != "tool":  # there is no such role here: the channel `tools` has what tools gave
            for data in told:
                self._say(started, data)
        if isinstance(event, MessageEnded):
            del self._said[message_id]
            if started.role != "tool":
                usage = encode_usage(event.usage)
                self._say(started, {"event": "message-finish", **({} if usage is None else {"usage": usage})})
            self._calls_of(started)
            if run.stateful:  # it tells of its updates itself
                return
            node, whole = started.node or run.node, self._whole_with_usage(message_id, event)
            self._tell("updates", lambda: {"node": node, "values": {"messages": [whole()]}}, started.ns)

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
        return {"metadata": spelled(known) if self.view.dialect == "agent-protocol" else known}

    def _on_the_way(self, event: PartAdded | PartDelta | PartEnded | MessageEnded, started: MessageStarted) -> None:
        if isinstance(event, MessageEnded):
            del self._said[event.message_id or ""]
            found = self._history.fold.message(event.message_id or "")
            self._named("progress", lambda: "" if found is None else found.text, started.ns)


def _result(part: ToolResultPart) -> JsonObject:
    told: JsonObject = {"tool_call_id": part.call_id}
    if not part.error:
        return {"event": "tool-finished", **told, "output": part.output}
    message = part.output if isinstance(part.output, str) else json_text(part.output)
    return {"event": "tool-error", **told, "message": message}


def _update(value: Any) -> JsonObject:
    """`{node: values}` of one node as the protocol has it."""
    if isinstance(value, dict) and len(value) == 1:  # pyright: ignore[reportUnknownArgumentType]
        node, values = next(iter(members_of(value).items()))
        return {"node": node, "values": values if isinstance(values, dict) else {"value": values}}
    return {"values": value if isinstance(value, dict) else {"value": value}}


def spelled(value: Any) -> Any:
    """The protocol's own members in camelCase; what agents and callers said stays as it is."""
    if isinstance(value, list):
        return [spelled(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    made: JsonObject = {}
    for name, member in members_of(value).items():
        first, *rest = name.split("_")
        made[first + "".join(word.capitalize() for word in rest)] = member if name in _OPAQUE else spelled(member)
    return made
