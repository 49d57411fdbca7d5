"""Records of a thread → its messages in AG-UI's form, equal to those of a client that has read the streams of all
runs."""

from collections.abc import Iterable
from contextlib import suppress

from babelgate.adapters.ag_ui.codec.messages import encode_message, result_text
from babelgate.adapters.ag_ui.codec.names import own_of, result_id
from babelgate.adapters.ag_ui.codec.patch import apply_patch
from babelgate.adapters.ag_ui.codec.questions import called_part
from babelgate.adapters.ag_ui.write.run_events import RunEventWriter
from babelgate.canonical import Record
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunCreated,
    RunRemoved,
    RunStarted,
    StateSaved,
)
from babelgate.canonical.growing import GrowingParts
from babelgate.canonical.message import Message
from babelgate.canonical.value import JsonObject


class ConversationReducer:
    """Reducer of the records of a thread to its messages in AG-UI's form. Apply all records in order."""

    def __init__(self, thread_id: str, *, base_url: str = "", agent: str = "") -> None:
        self._thread_id = thread_id
        self._base_url = base_url
        self._agent = agent
        self._writer: RunEventWriter | None = None
        self._messages: dict[str, JsonObject] = {}
        self._sources: dict[str, tuple[str | None, str | None]] = {}
        """Run id and canonical message id of each AG-UI message, by its id on the wire. The run id is None for inputs,
        for results of callers and for messages outside runs."""
        self._asked: set[str] = set()
        """Ids of the questions that ask for a call of a caller's tool."""
        self._given: tuple[MessageStarted, GrowingParts] | None = None
        """Start of a message outside runs, with its parts so far; None if no such message is open."""

    def messages(self) -> list[JsonObject]:
        """Return the AG-UI messages for a `MESSAGES_SNAPSHOT`, oldest first."""
        return list(self._messages.values())

    def apply(self, record: Record) -> None:
        """Update the messages with the next record of the thread."""
        event = record.event
        match event:
            case RunCreated():
                self._writer = RunEventWriter(event.run_id, self._thread_id, base_url=self._base_url, agent=self._agent)
                self._add_inputs(event.messages)
            case RunRemoved():
                self._drop([name for name, (run_id, _) in self._sources.items() if run_id == event.run_id])
            case RunStarted() if event.is_restart:
                void = [
                    name
                    for name, (run_id, message_id) in self._sources.items()
                    if run_id is not None and run_id == record.run_id and event.is_void(message_id)
                ]
                self._drop(void)
            case InterruptRaised() if called_part(event) is not None:
                self._asked.add(event.interrupt_id or "")
            case InterruptAnswered() if event.interrupt_id in self._asked:
                self._add_result(event)
            case StateSaved() if event.removed_ids:
                removed = {*event.removed_ids}
                self._drop([name for name, (_, message_id) in self._sources.items() if message_id in removed])
            case _:
                pass
        if record.run_id is None:
            self._apply_outside(record)
        elif self._writer is not None:
            for each in self._writer.write(record):
                self._read(each, record.run_id)

    def _add_result(self, event: InterruptAnswered) -> None:
        """Add the tool message with the result of a call that the caller executed, unless another input has superseded
        the question."""
        if event.action == "superseded":
            return
        name = result_id(event.interrupt_id)
        message = {"id": name, "role": "tool", "toolCallId": event.interrupt_id, "content": result_text(event.value)}
        self._put(message, None, None)

    def _add_inputs(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._put(encode_message(message), None, message.message_id)

    def _apply_outside(self, record: Record) -> None:
        """Apply a record outside of runs. Messages that a caller has added to the thread are collected from such
        records, and added when they are complete."""
        event = record.event
        if isinstance(event, MessageStarted):
            self._given = (event, GrowingParts())
        elif isinstance(event, PartAdded) and self._given is not None:
            self._given[1].append(event.part)
        elif isinstance(event, MessageEnded) and self._given is not None:
            started, parts = self._given
            self._given = None
            message = Message(
                message_id=started.message_id,
                role=started.role,
                name=started.name,
                parts=parts.join_all(),
                metadata=started.metadata,
                extra=started.extra,
            )
            self._add_inputs((message,))

    def _put(self, message: JsonObject, run_id: str | None, message_id: str | None) -> None:
        name = message["id"]
        self._messages[name] = message
        self._sources[name] = (run_id, message_id)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            del self._messages[name], self._sources[name]

    def _read(self, event: JsonObject, run_id: str) -> None:
        """Apply an AG-UI event of a run to the messages, as a client does."""
        marks = own_of(event)
        match event["type"]:
            case "TEXT_MESSAGE_START":
                message: JsonObject = {"id": event["messageId"], "role": event["role"], "content": ""}
                message |= {name: event[name] for name in ("name", "metadata") if name in event}
                self._put(message, run_id, event["messageId"])
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                message = self._messages[event["messageId"]]
                message["content"] += event["delta"]
            case "REASONING_MESSAGE_START":
                reasoning = {"id": event["messageId"], "role": "reasoning", "content": ""}
                self._put(reasoning, run_id, marks.get("messageId"))
            case "TOOL_CALL_START":
                self._add_call(event, run_id)
            case "TOOL_CALL_ARGS":
                self._call(event["toolCallId"])["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                result = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                self._put({**result, "content": event["content"]}, run_id, None)
            case _:
                self._read_activity(event, run_id)

    def _read_activity(self, event: JsonObject, run_id: str) -> None:
        match event["type"]:
            case "ACTIVITY_SNAPSHOT":
                activity = {"id": event["messageId"], "role": "activity", "activityType": event["activityType"]}
                self._put({**activity, "content": event["content"]}, run_id, own_of(event).get("messageId"))
            case "ACTIVITY_DELTA":
                activity = self._messages.get(event["messageId"])
                if activity is not None:
                    self._patch_activity(activity, event["patch"])
            case "REASONING_ENCRYPTED_VALUE":
                self._encrypt(event)
            case _:
                pass

    def _patch_activity(self, activity: JsonObject, patch: list[JsonObject]) -> None:
        """Change an activity. A patch of another server that does not apply changes nothing."""
        with suppress(ValueError):
            activity["content"] = apply_patch(activity["content"], patch)

    def _encrypt(self, event: JsonObject) -> None:
        """Add the value of a `REASONING_ENCRYPTED_VALUE` to its message or tool call. The server that has encrypted the
        value expects it in later requests."""
        target = self._messages.get(event.get("entityId", ""))
        if event.get("subtype") == "tool-call":
            calls = [call for message in self._messages.values() for call in message.get("toolCalls", ())]
            target = next((call for call in calls if call["id"] == event.get("entityId")), None)
        if target is not None:
            target["encryptedValue"] = event.get("encryptedValue")

    def _add_call(self, event: JsonObject, run_id: str) -> None:
        parent = event["parentMessageId"]
        if parent not in self._messages:
            self._put({"id": parent, "role": "assistant"}, run_id, None)
        function = {"name": event["toolCallName"], "arguments": ""}
        call = {"id": event["toolCallId"], "type": "function", "function": function}
        self._messages[parent].setdefault("toolCalls", []).append(call)

    def _call(self, call_id: str) -> JsonObject:
        return next(
            call
            for message in reversed(self._messages.values())
            for call in message.get("toolCalls", ())
            if call["id"] == call_id
        )
