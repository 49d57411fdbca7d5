"""Events of the wire → canonical events of one run. Reading is lenient: unknown events are passed on to AG-UI callers,
and ends that a server omits are added."""

import json
from collections.abc import Container, Mapping, Set
from typing import Any, ClassVar, Final

from babelgate.adapters.ag_ui.codec import names
from babelgate.adapters.ag_ui.codec.files import decode_content, decode_file
from babelgate.adapters.ag_ui.codec.names import PROTOCOL, own_of
from babelgate.adapters.ag_ui.codec.patch import apply_patch
from babelgate.adapters.ag_ui.codec.questions import decode_interrupt
from babelgate.adapters.ag_ui.codec.usage import decode_usage
from babelgate.adapters.ag_ui.errors import decode_run_error
from babelgate.adapters.ag_ui.read.messages import MessageReader
from babelgate.adapters.ag_ui.read.tools import CallReader
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import Event, FaultError, Feature, Message, RunReason, RunStatus
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    Native,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    UpstreamBound,
)
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

_ON_INTERRUPT: Final = "on_interrupt"
"""Name of the custom event by which ag-ui-langgraph 0.0.47 asks a question, unless it is configured to put questions
into the outcome of the run."""
LEGACY: Final = "legacy"
"""Prefix of the ids of questions from `on_interrupt` events without an id, such as `legacy-1`. The answer to such a
question is sent as `forwardedProps.command`."""
_STATE_LOST: Final = "a shared state that is not an object, or a patch that does not apply"
_TEXT_KEPT: Final = "text that the agent's server has withdrawn; the log keeps it"
_CHUNKS: Final = {
    "TEXT_MESSAGE_CHUNK": ("TEXT_MESSAGE", "messageId"),
    "TOOL_CALL_CHUNK": ("TOOL_CALL", "toolCallId"),
    "REASONING_MESSAGE_CHUNK": ("REASONING_MESSAGE", "messageId"),
}
"""Chunk events, which begin an item or continue it. The values are the prefix of the equivalent separate events, and
the member that holds the item's id."""
_WITHIN_CHUNKS: Final = frozenset({"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE"})
"""Events that may come between two chunks of one item. Any other event ends the item (§ Chunk events of the
specification)."""


class _Output:
    """Canonical events of one event of the wire, and the ids that the gateway chooses for the run. It is separate from
    the reader: the parts of the reader refer to it, and only the collector would free a cycle."""

    __slots__ = ("_count", "_run_id", "events")

    def __init__(self, run_id: str) -> None:
        self.events: list[Event] = []
        self._run_id = run_id
        self._count = 0

    def add(self, event: Event) -> None:
        self.events.append(event)

    def new_id(self, name: str) -> str:
        self._count += 1
        return f"{self._run_id}-{self._count}"


class EventReader:
    """Decoder of one run's AG-UI events. `tools` are the names of the caller's tools. `known_ids` are the ids of
    messages in the request. `earlier` has the tool names of earlier runs' calls, by call id."""

    def __init__(
        self,
        run_id: str,
        *,
        tools: Container[str] = frozenset(),
        known_ids: Set[str] = frozenset(),
        earlier: Mapping[str, str] | None = None,
    ) -> None:
        self.has_ended = False
        self.state: Any = None
        """Shared state after the snapshots and deltas so far; None if the server has sent neither."""
        self._output = _Output(run_id)
        self._add, self._new_id = self._output.add, self._output.new_id
        self._messages = MessageReader(self._add, known_ids, self._new_id)
        self._tools = CallReader(self._add, tools, earlier or {})
        self._chunk: tuple[str, str] | None = None
        """Event prefix and id of the item that chunks have begun, for example `TEXT_MESSAGE` and `m1`. None if no such
        item is open."""
        self._steps: dict[str, tuple[str, str]] = {}
        """Step id and canonical name of each open step, by its `stepName` on the wire."""
        self._subagents: dict[str, str] = {}
        self._is_state_changed = False
        self._asked: dict[str, InterruptRaised] = {}
        """Questions of `on_interrupt` events, by question id. They are raised at the end of the run, unless its outcome
        has interrupts."""
        self._losses: set[str] = set()

    def read(self, value: Json) -> list[Event]:
        """Return the canonical events for one AG-UI event. The list is empty if the event adds nothing, or the run has
        ended.

        Raises agent_failed, or the `agent_` code that another gateway has sent, if the run has failed.
        """
        events = self._output.events = []
        event = as_object(value)
        kind = as_text(event.get("type"))
        if self.has_ended or not kind:
            return []
        if kind in _CHUNKS:
            self._read_chunk(kind, event)
            return events
        if self._chunk is not None and kind not in _WITHIN_CHUNKS:
            self._end_chunk()
        read = self._READS.get(kind)
        if read is None:
            self._read_unknown(event)
        else:
            read(self, event)
        return events

    def _lose(self, feature: Feature, how: str) -> None:
        if how not in self._losses:
            self._losses.add(how)
            self._add(LossNoted(feature=feature, how=how))

    # Runs

    def _run_started(self, event: JsonObject) -> None:
        ids = {"context": as_text(event.get("threadId")), "run": as_text(event.get("runId"))}
        bound = {name: value for name, value in ids.items() if value}
        if bound:
            self._add(UpstreamBound(protocol=PROTOCOL, ids=bound))

    def _run_finished(self, event: JsonObject) -> None:
        self.has_ended = True
        outcome = as_object(event.get("outcome"))
        self._close()
        interrupts = [each for each in map(decode_interrupt, objects_in(outcome.get("interrupts"))) if each is not None]
        waiting = {as_text(each.get("toolCallId")) for each in objects_in(outcome.get("interrupts"))}
        # A cancelled run waits for nothing.
        has_questions = bool(interrupts or self._asked) or outcome.get("type") == "cancelled"
        self._tools.close(outcome.get("pendingToolCallIds"), waiting, has_questions=has_questions)
        self._save_state()
        # If both forms came, the outcome alone counts.
        for question in interrupts or self._asked.values():
            self._add(question)
        usage = as_object(own_of(event).get("usage")) or decode_usage(event.get("usage"))
        is_paused = any(isinstance(each, InterruptRaised) for each in self._output.events)
        if outcome.get("type") == "cancelled":
            self._add(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=usage))
        elif is_paused:
            if usage:
                self._add(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=usage))
        elif usage or event.get("result") is not None:
            self._add(RunEnded(output=event.get("result"), usage=usage))

    def _run_error(self, event: JsonObject) -> None:
        self.has_ended = True
        code = as_text(event.get("code")) or None
        if code == names.CANCELLED:
            self._close()
            self._add(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER))
            return
        fault = decode_run_error(as_text(event.get("message")) or "The agent failed and did not say why.", code)
        raise FaultError.of(fault)

    def _close(self) -> None:
        self._messages.close()
        for step_id, name in list(self._steps.values()):
            self._add(StepEnded(step_id=step_id, name=name))
        for step_id, name in list(self._subagents.items()):
            self._add(StepEnded(step_id=step_id, name=name))
        self._steps.clear()
        self._subagents.clear()

    # Chunks

    def _read_chunk(self, kind: str, event: JsonObject) -> None:
        prefix, member = _CHUNKS[kind]
        name = as_text(event.get(member)) or (self._chunk[1] if self._chunk and self._chunk[0] == prefix else "")
        if self._chunk != (prefix, name):
            self._end_chunk()
            self._chunk = (prefix, name)
            self._READS[f"{prefix}_START"](self, {**event, member: name})
        content = "ARGS" if prefix == "TOOL_CALL" else "CONTENT"
        self._READS[f"{prefix}_{content}"](self, {**event, member: name})

    def _end_chunk(self) -> None:
        if self._chunk is not None:
            prefix, name = self._chunk
            self._chunk = None
            self._READS[f"{prefix}_END"](self, {"messageId": name, "toolCallId": name})

    # Messages and tools

    def _text_start(self, event: JsonObject) -> None:
        self._messages.start(event)

    def _text_content(self, event: JsonObject) -> None:
        self._messages.say(event)
        if as_text(event.get("delta")):
            self._tools.note_text()

    def _text_end(self, event: JsonObject) -> None:
        self._messages.end(event)

    def _thought_start(self, event: JsonObject) -> None:
        self._messages.start_thought(event)

    def _thought_content(self, event: JsonObject) -> None:
        self._messages.think(event)

    def _thought_end(self, event: JsonObject) -> None:
        self._messages.end_thought(as_text(event.get("messageId")))

    def _call_start(self, event: JsonObject) -> None:
        self._tools.start(event)

    def _call_arguments(self, event: JsonObject) -> None:
        self._tools.add_arguments(event)

    def _call_end(self, event: JsonObject) -> None:
        self._tools.end(as_text(event.get("toolCallId")))

    def _call_result(self, event: JsonObject) -> None:
        self._tools.add_result(event)

    def _messages_snapshot(self, event: JsonObject) -> None:
        """Add the messages and tool calls of a `MESSAGES_SNAPSHOT` that no earlier event has shown. ag-ui-langgraph
        0.0.47 sends an answer that no model has streamed only in a snapshot. A shown message that is absent is a
        loss."""
        messages = [each for each in objects_in(event.get("messages")) if as_text(each.get("id"))]
        listed = {each["id"] for each in messages}
        shown_ids = {name for name, message_id in self._messages.seen.items() if name == message_id}
        if shown_ids - listed and not any(name.startswith(("file-", "reasoning-")) for name in shown_ids - listed):
            self._lose(Feature.TEXT, _TEXT_KEPT)
        self._tools.read_snapshot(messages)
        for each in messages:
            if each.get("role") in ("assistant", "reasoning") and not self._messages.has_message(each["id"]):
                self._messages.add_whole(each)
                if as_text(each.get("content")):
                    self._tools.note_text()

    # Steps

    def _step_started(self, event: JsonObject) -> None:
        wire_name, marks = as_text(event.get("stepName")), own_of(event)
        if not wire_name or wire_name in self._steps:
            return
        step_id = as_text(marks.get("id")) or self._new_id(wire_name)
        name = as_text(marks.get("name")) or wire_name
        self._steps[wire_name] = (step_id, name)
        node = as_text(marks.get("node"))
        ns = tuple(each for each in as_list(marks.get("ns")) if isinstance(each, str))
        self._add(StepStarted(step_id=step_id, name=name, node=node, ns=ns, input=marks.get("input")))

    def _step_finished(self, event: JsonObject) -> None:
        marks, found = own_of(event), self._steps.pop(as_text(event.get("stepName")), None)
        if found is None:
            return
        fault = as_object(marks.get("fault"))
        decoded = None
        if fault:
            decoded = decode_run_error(as_text(fault.get("message")), as_text(fault.get("code")) or None)
        self._add(StepEnded(step_id=found[0], name=found[1], update=marks.get("update"), fault=decoded))

    def _subagent_started(self, event: JsonObject) -> None:
        step_id, name = as_text(event.get("subagentRunId")), as_text(event.get("name")) or "subagent"
        if step_id and step_id not in self._subagents:
            self._subagents[step_id] = name
            self._add(StepStarted(step_id=step_id, name=name, ns=(step_id,)))

    def _subagent_finished(self, event: JsonObject) -> None:
        step_id = as_text(event.get("subagentRunId"))
        name = self._subagents.pop(step_id, None)
        if name is not None:
            self._add(StepEnded(step_id=step_id, name=name, ns=(step_id,), update=event.get("result")))

    def _subagent_error(self, event: JsonObject) -> None:
        step_id = as_text(event.get("subagentRunId"))
        name = self._subagents.pop(step_id, None)
        if name is not None:
            fault = decode_run_error(as_text(event.get("message")), as_text(event.get("code")) or None)
            self._add(StepEnded(step_id=step_id, name=name, ns=(step_id,), fault=fault))

    # State

    def _state_snapshot(self, event: JsonObject) -> None:
        self.state, self._is_state_changed = event.get("snapshot"), True

    def _state_delta(self, event: JsonObject) -> None:
        try:
            self.state = apply_patch({} if self.state is None else self.state, objects_in(event.get("delta")))
        except ValueError:
            self._lose(Feature.STATE, _STATE_LOST)
        else:
            self._is_state_changed = True

    def _save_state(self) -> None:
        """Add the shared state at the end of the run as a revision, if the server has sent one. Servers send the state
        many times in a run, so only the last one becomes a revision."""
        if not self._is_state_changed:
            return
        if isinstance(self.state, dict):
            self._add(StateSaved(values=self.state))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        elif self.state is not None:
            self._lose(Feature.STATE, _STATE_LOST)

    # Activities and events of other kinds

    def _activity_snapshot(self, event: JsonObject) -> None:
        content, marks = as_object(event.get("content")), own_of(event)
        file = decode_file(content)
        match event.get("activityType"):
            case names.FILE if file is not None:
                self._messages.add_file(file, marks)
            case names.PROGRESS:
                self._messages.add_progress(as_text(event.get("messageId")), content)
            case names.ARTIFACT if objects_in(content.get("parts")):
                self._read_artifact(content)
            case _:
                self._add_activity(event, content)

    def _read_artifact(self, content: JsonObject) -> None:
        parts = [part for part in map(decode_content, objects_in(content.get("parts"))) if part is not None]
        is_complete = content.get("complete") is not False
        for number, part in enumerate(parts):
            self._add(
                ArtifactAdded(
                    artifact_id=as_text(content.get("artifactId")) or None,
                    name=as_text(content.get("name")) or None,
                    description=as_text(content.get("description")) or None,
                    folder=as_text(content.get("folder")) or None,
                    metadata=as_object(content.get("metadata")),
                    part=part,
                    append=number > 0,
                    last=is_complete and number == len(parts) - 1,
                )
            )

    def _activity_delta(self, event: JsonObject) -> None:
        artifact, patch = as_object(own_of(event).get("artifact")), objects_in(event.get("patch"))
        if event.get("activityType") != names.ARTIFACT or not as_text(artifact.get("id")):
            self._add_activity(event, event.get("patch"))
            return
        added = [decode_content(each.get("value")) for each in patch if each.get("path") == "/parts/-"]
        is_last = any(each.get("path") == "/complete" and each.get("value") is True for each in patch)
        name = as_text(artifact.get("name")) or None
        for part in added:
            if part is not None:
                self._add(ArtifactAdded(artifact_id=artifact["id"], name=name, part=part, append=True, last=is_last))

    def _add_activity(self, event: JsonObject, value: Json) -> None:
        """Add an activity of another server as a `Custom` event with this value. AG-UI callers receive the original
        event."""
        name, message_id = as_text(event.get("activityType")), as_text(event.get("messageId"))
        is_valid = name and message_id and isinstance(value, list if "patch" in event else dict)
        extra = {PROTOCOL: {"event": _without_time(event)}} if is_valid else {}
        self._add(Custom(name=name or "activity", value=value, extra=extra))

    def _custom(self, event: JsonObject) -> None:
        name, value, marks = as_text(event.get("name")), event.get("value"), own_of(event)
        if name == names.LOSS:
            loss = as_object(value)
            self._add(LossNoted(feature=as_text(loss.get("feature")), how=as_text(loss.get("how"))))
        elif name == _ON_INTERRUPT:
            self._ask(event)
        else:
            ns = tuple(each for each in as_list(marks.get("ns")) if isinstance(each, str))
            self._add(Custom(name="" if marks.get("isUnnamed") is True else name, value=value, ns=ns))

    def _ask(self, event: JsonObject) -> None:
        """Store the question of an `on_interrupt` event until the run has ended. Its value may be JSON text. Its id is
        in `rawEvent`, if the server sends that."""
        value, raw = event.get("value"), as_object(event.get("rawEvent"))
        parsed = parse_text(value) if isinstance(value, str) else value
        value = event.get("value") if parsed is ABSENT else parsed
        name = as_text(raw.get("id")) or f"{LEGACY}-{len(self._asked) + 1}"
        text = value if isinstance(value, str) else _question_text(value)
        self._asked[name] = InterruptRaised(
            interrupt_id=name, message=Message.of(text), value=None if isinstance(value, str) else value
        )

    def _ignore(self, event: JsonObject) -> None:
        """Ignore an event whose content other events have, such as `RAW`, or that only marks the begin or end of a
        group, such as `REASONING_START`."""

    def _read_unknown(self, event: JsonObject) -> None:
        self._add(Native(protocol=PROTOCOL, event=as_text(event.get("type")), data=_without_time(event)))

    _READS: ClassVar[Mapping[str, Any]] = {
        "RUN_STARTED": _run_started,
        "RUN_FINISHED": _run_finished,
        "RUN_ERROR": _run_error,
        "TEXT_MESSAGE_START": _text_start,
        "TEXT_MESSAGE_CONTENT": _text_content,
        "TEXT_MESSAGE_END": _text_end,
        "REASONING_MESSAGE_START": _thought_start,
        "REASONING_MESSAGE_CONTENT": _thought_content,
        "REASONING_MESSAGE_END": _thought_end,
        "REASONING_START": _ignore,
        "REASONING_END": _ignore,
        # Names before 0.1.11, without ids.
        "THINKING_START": _ignore,
        "THINKING_END": _ignore,
        "THINKING_TEXT_MESSAGE_START": _thought_start,
        "THINKING_TEXT_MESSAGE_CONTENT": _thought_content,
        "THINKING_TEXT_MESSAGE_END": _thought_end,
        "TOOL_CALL_START": _call_start,
        "TOOL_CALL_ARGS": _call_arguments,
        "TOOL_CALL_END": _call_end,
        "TOOL_CALL_RESULT": _call_result,
        "MESSAGES_SNAPSHOT": _messages_snapshot,
        "STEP_STARTED": _step_started,
        "STEP_FINISHED": _step_finished,
        "SUBAGENT_STARTED": _subagent_started,
        "SUBAGENT_FINISHED": _subagent_finished,
        "SUBAGENT_ERROR": _subagent_error,
        "STATE_SNAPSHOT": _state_snapshot,
        "STATE_DELTA": _state_delta,
        "ACTIVITY_SNAPSHOT": _activity_snapshot,
        "ACTIVITY_DELTA": _activity_delta,
        "CUSTOM": _custom,
        "RAW": _ignore,
    }


def _without_time(event: JsonObject) -> JsonObject:
    return {name: value for name, value in event.items() if name not in ("timestamp", "rawEvent") and value is not None}


def _question_text(value: Json) -> str:
    """Return the text of a question whose value is not a string. It is the first text among the members `question`,
    `message`, `prompt` and `text`, or else the value as JSON."""
    texts = [as_text(as_object(value).get(name)) for name in ("question", "message", "prompt", "text")]
    return next((text for text in texts if text), "") or json.dumps(value, ensure_ascii=False)
