"""Messages, tool calls, files and artifacts of a run as events."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.codec import names
from babelgate.adapters.ag_ui.codec.files import encode_content, encode_file
from babelgate.adapters.ag_ui.codec.messages import ROLES, result_text
from babelgate.adapters.ag_ui.write.open_message import MessageDraft, PartKind
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Extra, Json, JsonObject

_REFUSAL: Final[JsonObject] = {w.OWN: {"kind": "refusal"}}
_DATA: Final[JsonObject] = {w.OWN: {"kind": "data"}}
_SEPARATOR: Final[JsonObject] = {w.OWN: {"kind": "separator"}}


class MessageWriter:
    """Encoder of the messages, tool calls, files and artifacts of one run. It passes AG-UI events to `emit`, which adds
    the time, or to `add`, which does not."""

    def __init__(self, emit: Callable[..., None], add: Callable[[JsonObject], None], base_url: str, agent: str) -> None:
        self._emit = emit
        self._add = add
        self._base_url = base_url
        self._agent = agent
        self._messages: dict[str, MessageDraft] = {}
        self._last_shown: str | None = None
        """Id of the newest assistant message whose start was sent. Tool calls that name no other message belong to
        it."""
        self._calls: dict[str, bool] = {}
        """Ids of the tool calls that were sent. The value is True if the result was sent, too."""

    def write(self, event: Event) -> None:
        """Add the AG-UI events for one event of the log. Events that are not about messages, tool calls or artifacts
        are ignored."""
        write = self._WRITES.get(type(event))
        if write is not None:
            write(self, event)

    @property
    def has_open_calls(self) -> bool:
        """True if the run has shown a call without its result."""
        return not all(self._calls.values())

    def text_maker(self, event: PartDelta) -> Callable[[str], JsonObject] | None:
        """Return a function that returns the AG-UI event for one text of a passage. A passage is a series of text
        deltas of one part. Return None if its deltas must be written one by one."""
        message = self._messages.get(event.message_id or "")
        if message is None or message.is_progress:
            return None
        kind = message.open_parts.get(_index(message, event.index))
        if kind == "text":
            message.has_content = True
            return partial(_content, message.message_id, None)
        if kind == "refusal":
            message.has_content = True
            return partial(_content, message.message_id, _REFUSAL)
        return None

    def close(self) -> None:
        """End all open messages."""
        for message in list(self._messages.values()):
            self._end_message(message)

    def start_over(self, event: RunStarted) -> None:
        """Clear the message to which tool calls belong if the restart of the run voids it."""
        if self._last_shown is not None and event.is_void(self._last_shown):
            self._last_shown = None

    # Messages

    def _message_started(self, event: MessageStarted) -> None:
        self._messages[event.message_id or ""] = MessageDraft(event)

    def _message_ended(self, event: MessageEnded) -> None:
        message = self._messages.get(event.message_id or "")
        if message is not None:
            self._end_message(message)

    def _end_message(self, message: MessageDraft) -> None:
        del self._messages[message.message_id]
        for index in list(message.open_parts):
            self._end_part(message, index)
        if message.is_progress:
            self._show_progress(message)
            return
        if message.started.metadata or message.citations:
            self._show(message)
        if message.is_shown:
            marks: JsonObject = {"citations": message.citations} if message.citations else {}
            self._emit("TEXT_MESSAGE_END", messageId=message.message_id, metadata={w.OWN: marks} if marks else None)

    def _show(self, message: MessageDraft) -> None:
        """Emit `TEXT_MESSAGE_START` for a message, once. It is delayed until the first text, because AG-UI shows no
        message without text. Progress messages are shown as activities instead."""
        if message.is_shown or message.is_progress:
            return
        started = message.started
        message.is_shown = True
        role = ROLES[started.role]
        marks: JsonObject = {}
        if started.role == "tool":
            marks["role"], role = "tool", "assistant"
        metadata: JsonObject = dict(started.metadata)
        if metadata.keys() & {w.OWN, w.RESERVED}:
            marks["metadata"], metadata = metadata, {}
        # The name of the agent is the default, and says nothing.
        marks |= {"node": started.node} if started.node not in ("", self._agent) else {}
        marks |= {"ns": list(started.ns)} if started.ns else {}
        metadata |= {w.OWN: marks} if marks else {}
        self._emit(
            "TEXT_MESSAGE_START",
            messageId=message.message_id,
            role=role,
            name=started.name,
            metadata=metadata or None,
        )
        if role == "assistant":
            self._last_shown = message.message_id

    def _say(self, message: MessageDraft, text: str, metadata: JsonObject | None = None) -> None:
        if message.is_progress:
            message.progress.append(text)
            return
        self._show(message)
        if text:  # ag-ui-validate warns of empty deltas
            message.has_content = True
            self._add(_content(message.message_id, metadata, text))

    def _show_progress(self, message: MessageDraft) -> None:
        content: JsonObject = {"text": "".join(message.progress)}
        if message.started.metadata:
            content["metadata"] = message.started.metadata
        self._emit(
            "ACTIVITY_SNAPSHOT",
            messageId=message.message_id,
            activityType=names.PROGRESS,
            content=content,
            replace=True,
        )

    # Parts

    def _part_added(self, event: PartAdded) -> None:
        message = self._messages.get(event.message_id or "")
        if message is None:
            return
        index = message.newest + 1 if event.index is None else event.index
        message.newest = index
        kind = self._add_part(message, index, event.part, is_open=event.open)
        if event.open and kind is not None:
            message.open_parts[index] = kind

    def _add_part(self, message: MessageDraft, index: int, part: Part, *, is_open: bool) -> PartKind | None:
        """Emit the events for an added part. `is_open` is True if the part may get more text. Return the kind of the
        part if text deltas can follow, and None otherwise."""
        match part:
            case TextPart():
                self._separate(message)
                self._say(message, part.text)
                return "text"
            case RefusalPart():
                self._separate(message)
                self._say(message, part.text, _REFUSAL)
                return "refusal"
            case ReasoningPart():
                self._begin_reasoning(message, index, part)
                if not is_open:
                    self._end_reasoning(message, index)
                return "reasoning"
            case ToolCallPart():
                return self._add_call(message, index, part, is_open=is_open)
            case DataPart():
                self._say(message, ("\n" if message.has_content else "") + json_text(part.data), _DATA)
                message.is_after_data = True
            case ToolResultPart():
                self._show_result(
                    part.call_id, part.output, {"message": result_text(part.output)} if part.error else None
                )
            case FilePart():
                self._show_file(message, index, part)
            case AnnotationPart():
                members = {name: getattr(part, name) for name in ("start", "end", "url", "title", "description")}
                message.citations.append({name: value for name, value in members.items() if value is not None})
        return None

    def _show_file(self, message: MessageDraft, index: int, part: FilePart) -> None:
        self._emit(
            "ACTIVITY_SNAPSHOT",
            messageId=names.file_id(message.message_id, index),
            activityType=names.FILE,
            content=encode_file(part, self._base_url, self._agent),
            replace=True,
            metadata={w.OWN: _place(message)},
        )

    def _separate(self, message: MessageDraft) -> None:
        """Put a line break between the JSON of a data part and the text after it."""
        if message.is_after_data and not message.is_progress:
            message.is_after_data = False
            self._say(message, "\n", _SEPARATOR)

    def _part_delta(self, event: PartDelta) -> None:
        message = self._messages.get(event.message_id or "")
        if message is None:
            return
        index = _index(message, event.index)
        match message.open_parts.get(index):
            case "text":
                self._say(message, event.text)
            case "refusal":
                self._say(message, event.text, _REFUSAL)
            case "reasoning":
                self._think(message, index, event.text)
            case "call":
                call_id = message.call_ids[index]
                if event.text:
                    self._emit("TOOL_CALL_ARGS", toolCallId=call_id, delta=event.text)
            case None:
                pass

    def _part_ended(self, event: PartEnded) -> None:
        message = self._messages.get(event.message_id or "")
        if message is not None:
            self._end_part(message, _index(message, event.index))

    def _end_part(self, message: MessageDraft, index: int) -> None:
        match message.open_parts.pop(index, None):
            case "reasoning":
                self._end_reasoning(message, index)
            case "call":
                self._emit("TOOL_CALL_END", toolCallId=message.call_ids.pop(index))
            case _:
                pass

    # Reasoning

    def _begin_reasoning(self, message: MessageDraft, index: int, part: ReasoningPart) -> None:
        # Another server refers to its reasoning by its id, to send it encrypted.
        upstream_id = as_text(as_object(part.extra.get(names.PROTOCOL)).get("id"))
        name = upstream_id or names.reasoning_id(message.message_id, index)
        message.thoughts[index] = name
        self._emit("REASONING_START", messageId=name)
        metadata = {w.OWN: _place(message)}
        self._emit("REASONING_MESSAGE_START", messageId=name, role="reasoning", metadata=metadata)
        self._think(message, index, part.text)

    def _think(self, message: MessageDraft, index: int, text: str) -> None:
        if text:
            self._emit("REASONING_MESSAGE_CONTENT", messageId=message.thoughts[index], delta=text)

    def _end_reasoning(self, message: MessageDraft, index: int) -> None:
        name = message.thoughts.pop(index)
        self._emit("REASONING_MESSAGE_END", messageId=name)
        self._emit("REASONING_END", messageId=name)

    # Tools

    def show_call(self, call_id: str, part: ToolCallPart) -> None:
        """Emit the complete call of a caller's tool when its question is raised, unless it was sent. `call_id` is the
        id of the question."""
        name, arguments = part.name, part.arguments
        if call_id not in self._calls:
            self._begin_call(call_id, name, _parent(part.extra))
            if arguments:
                self._emit("TOOL_CALL_ARGS", toolCallId=call_id, delta=arguments)
            self._emit("TOOL_CALL_END", toolCallId=call_id)

    def _begin_call(self, call_id: str, name: str, parent: str | None, marks: JsonObject | None = None) -> None:
        self._calls[call_id] = False
        # Without a parent, clients make a message whose id is that of the call.
        parent = parent or self._last_shown or names.parent_id(call_id)
        metadata = {w.OWN: marks} if marks else None
        self._emit("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, parentMessageId=parent, metadata=metadata)

    def _add_call(self, message: MessageDraft, index: int, part: ToolCallPart, *, is_open: bool) -> PartKind | None:
        """Emit the call that a part of a message contains, without its end if the part `is_open` for more arguments.
        Return `call` in that case, and None otherwise. Calls of the caller's tools are sent later, when their question
        is raised."""
        if part.side == "caller" or part.call_id in self._calls:
            return None
        self._begin_call(part.call_id, part.name, message.message_id if message.is_shown else _parent(part.extra))
        if part.arguments:
            self._emit("TOOL_CALL_ARGS", toolCallId=part.call_id, delta=part.arguments)
        if not is_open:
            self._emit("TOOL_CALL_END", toolCallId=part.call_id)
            return None
        message.call_ids[index] = part.call_id
        return "call"

    def _tool_started(self, event: ToolStarted) -> None:
        call_id = event.call_id or ""
        if call_id in self._calls:
            return
        if as_object(event.extra.get(names.PROTOCOL)).get("resumed") is True:
            self._calls[call_id] = False  # an earlier run has shown the call
            return
        marks: JsonObject = {"activity": True}
        if event.input is None:
            marks["noInput"] = True
        if event.node not in ("", self._agent):
            marks["node"] = event.node
        self._begin_call(call_id, event.name, _parent(event.extra), marks)
        arguments = "{}" if event.input is None else json_text(event.input)
        self._emit("TOOL_CALL_ARGS", toolCallId=call_id, delta=arguments)
        self._emit("TOOL_CALL_END", toolCallId=call_id)

    def _tool_ended(self, event: ToolEnded) -> None:
        fault = None if event.fault is None else {"code": str(event.fault.code), "message": event.fault.message}
        if as_object(event.extra.get(names.PROTOCOL)).get("waits") is True:
            return  # the result follows in the run that the answer begins
        if event.call_id is not None and event.call_id not in self._calls:
            self._tool_started(ToolStarted(call_id=event.call_id, name=event.name))
        self._show_result(event.call_id or "", event.output, fault)

    def _show_result(self, call_id: str, output: Json, fault: JsonObject | None) -> None:
        """Emit the result of a call, unless it was sent already. A fault is sent as the JSON text `{"error": …}`,
        because the event has no member for it."""
        if self._calls.get(call_id) is not False:
            return
        self._calls[call_id] = True
        content = json_text({"error": fault["message"]}) if fault is not None else result_text(output)
        marks: JsonObject = {} if isinstance(output, str) else {"json": True}
        if fault is not None:
            marks = {"fault": fault, **({"output": output} if output is not None else {})}
        self._emit(
            "TOOL_CALL_RESULT",
            messageId=names.result_id(call_id),
            toolCallId=call_id,
            content=content,
            role="tool",
            metadata={w.OWN: marks} if marks else None,
        )

    # Artifacts

    def _artifact_added(self, event: ArtifactAdded) -> None:
        if event.origin == "caller":
            return
        name = names.artifact_id(event.artifact_id or "")
        part = encode_content(event.part, self._base_url, self._agent)
        if event.append:
            patch: list[JsonObject] = [{"op": "add", "path": "/parts/-", "value": part}]
            patch.append({"op": "replace", "path": "/complete", "value": event.last})
            marks = {"artifact": {"id": event.artifact_id, "name": event.name}}
            self._emit(
                "ACTIVITY_DELTA", messageId=name, activityType=names.ARTIFACT, patch=patch, metadata={w.OWN: marks}
            )
            return
        members = {
            "artifactId": event.artifact_id,
            "name": event.name,
            "description": event.description,
            "folder": event.folder,
            "metadata": event.metadata or None,
        }
        content: JsonObject = {name: value for name, value in members.items() if value is not None}
        content |= {"parts": [part], "complete": event.last}
        self._emit("ACTIVITY_SNAPSHOT", messageId=name, activityType=names.ARTIFACT, content=content, replace=True)

    _WRITES: ClassVar[Mapping[type, Any]] = {
        PartDelta: _part_delta,
        PartAdded: _part_added,
        PartEnded: _part_ended,
        MessageStarted: _message_started,
        MessageEnded: _message_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
        ArtifactAdded: _artifact_added,
    }


def _index(message: MessageDraft, index: int | None) -> int:
    """Return the index of the part to which a delta or an end belongs. If the event has no index, it is the newest
    part."""
    return message.newest if index is None else index


def _place(message: MessageDraft) -> JsonObject:
    """Return the gateway's own members for a file or reasoning. They name the message that it belongs to, with the
    phase and metadata that no `TEXT_MESSAGE_START` has sent."""
    place: JsonObject = {"messageId": message.message_id}
    if message.is_progress:
        place["phase"] = "progress"
    if message.started.metadata and not message.is_shown:
        place["metadata"] = message.started.metadata
    return place


def _parent(extra: Extra) -> str | None:
    """Return the id of the message that contains a call on another AG-UI server, or None if the call does not come from
    such a server."""
    return as_text(as_object(extra.get(names.PROTOCOL)).get("parent")) or None


def _content(message_id: str, metadata: JsonObject | None, text: str) -> JsonObject:
    """Return the event for one piece of text. It has no time, so that all pieces of a message share a template."""
    event: JsonObject = {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text}
    return event if metadata is None else {**event, "metadata": metadata}
