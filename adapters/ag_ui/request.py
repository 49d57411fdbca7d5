"""Invocation → the request to another AG-UI server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.codec.messages import encode_message, result_text
from babelgate.adapters.ag_ui.codec.names import PROTOCOL, result_id
from babelgate.adapters.ag_ui.codec.questions import called_part, encode_answer, encode_confirmation, is_confirmation
from babelgate.adapters.ag_ui.read.run_events import LEGACY
from babelgate.adapters.ag_ui.write.transcript import ConversationReducer
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import AnnotationPart, FilePart, Invocation, Message, ReasoningPart, Record
from babelgate.canonical.event import InterruptAnswered, InterruptRaised, ToolStarted
from babelgate.canonical.json import as_object, objects_in
from babelgate.canonical.value import Json, JsonObject

_UNSENT: Final = (ReasoningPart, FilePart, AnnotationPart)
DECLINED: Final = "The caller declined to execute the tool."
"""Content and error of the tool message for a call that the caller declined to execute."""


@dataclass(frozen=True, slots=True)
class RunCall:
    """Body of the request for a run on another AG-UI server, with the ids and names that `EventReader` needs to read
    the response."""

    body: JsonObject
    sent_ids: frozenset[str]
    """Ids of all messages in the body."""
    earlier: dict[str, str] = field(default_factory=dict[str, str])
    """Names of the tools that earlier runs of the task called, by call id."""


def encode_run(call: Invocation, past: Sequence[Record], state: JsonObject) -> RunCall:
    """Return the request for a run. `past` holds the records of the task, so that its earlier runs and questions are
    known. `state` is the shared state to send."""
    questions = {
        record.event.interrupt_id: record.event for record in past if isinstance(record.event, InterruptRaised)
    }
    earlier = [record for record in past if record.run_id != call.run_id]
    new = () if call.answers else tuple(_new_messages(call))
    messages = [*_conversation(call, earlier, new), *new]
    resume, command = list[JsonObject](), dict[str, Json]()
    for answer in call.answers:
        question = questions.get(answer.interrupt_id)
        if question is not None and called_part(question) is not None:
            messages.append(_tool_message(answer))
        elif question is not None and is_confirmation(question):
            result = encode_confirmation(answer.value, declined=answer.action == "decline")
            messages.append(_result_message(answer, json_text(result)))
        elif answer.interrupt_id.startswith(f"{LEGACY}-"):
            command["resume"] = answer.value
        else:
            schema = None if question is None else question.answer_schema
            answer_members = encode_answer(schema, answer.value, declined=answer.action == "decline")
            resume.append({"interruptId": answer.interrupt_id, **answer_members})
    body: JsonObject = {
        "threadId": call.thread_id,
        # A run id is never used twice on a thread.
        "runId": call.run_id if call.attempt == 1 else f"{call.run_id}-{call.attempt}",
        "protocolVersion": w.VERSION,
        "state": state,
        "messages": messages,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in call.tools
        ],
        "context": objects_in(as_object(call.config.get(PROTOCOL)).get("context")),
        "forwardedProps": _forwarded_props(call, command),
    }
    if resume:
        body["resume"] = resume
    return RunCall(body, frozenset(each["id"] for each in messages), _tool_names(earlier))


def _forwarded_props(call: Invocation, command: JsonObject) -> JsonObject:
    """Return the `forwardedProps` of the request. They hold the members that an AG-UI caller sent, the rest of the
    run's configuration as `config`, the answers in `command`, and the gateway's own as `babelgate`."""
    forwarded = dict(as_object(as_object(call.config.get(PROTOCOL)).get("forwardedProps")))
    config = {name: value for name, value in call.config.items() if name not in ("tools", PROTOCOL)}
    if config:
        forwarded.setdefault("config", config)
    if command:
        forwarded["command"] = command
    # The gateway stops reading only if the run is to be cancelled.
    marks: JsonObject = {"onDisconnect": "cancel"}
    if call.metadata:
        marks["metadata"] = call.metadata
    return {**forwarded, w.OWN: marks}


def _new_messages(call: Invocation) -> Iterator[JsonObject]:
    for number, message in enumerate(call.input_messages):
        wire = encode_message(message)
        yield wire if wire["id"] else {**wire, "id": f"{call.run_id}-input-{number}"}


def _conversation(call: Invocation, earlier: Sequence[Record], new: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the messages before this run. Those of other tasks come from the history, and those of this task, with
    their tool calls, from the records `earlier`. Messages that are also in `new`, and activities, are omitted."""
    transcript = ConversationReducer(call.thread_id)
    for record in earlier:
        transcript.apply(record)
    of_task = [each for each in transcript.messages() if each["role"] != "activity"]
    sent = {each["id"] for each in (*of_task, *new)}
    wire = [encode_message(message) for message in call.history if _is_sent(message)]
    return [*(each for each in wire if each["id"] not in sent), *of_task]


def _is_sent(message: Message) -> bool:
    """Return True if a message of the history is sent to the server. Empty messages, progress messages, and an agent's
    messages with only reasoning, files or annotations are not."""
    if message.role != "agent":
        return bool(message.parts)
    return message.phase == "answer" and any(not isinstance(part, _UNSENT) for part in message.parts)


def _result_message(answer: InterruptAnswered, content: str) -> JsonObject:
    """Return the tool message whose call has the id of the answered question."""
    call_id = answer.interrupt_id
    return {"id": result_id(call_id), "role": "tool", "toolCallId": call_id, "content": content}


def _tool_message(answer: InterruptAnswered) -> JsonObject:
    """Return the tool message with the result of a tool that the caller executed, or with the error `DECLINED`."""
    message = _result_message(answer, result_text(answer.value))
    return message if answer.action == "answer" else {**message, "content": DECLINED, "error": DECLINED}


def _tool_names(earlier: Sequence[Record]) -> dict[str, str]:
    found = {
        record.event.call_id or "": record.event.name for record in earlier if isinstance(record.event, ToolStarted)
    }
    for record in earlier:
        part = called_part(record.event) if isinstance(record.event, InterruptRaised) else None
        if part is not None:
            found[part.call_id] = part.name
    return found
