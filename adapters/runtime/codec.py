"""Conversion between the minimal runtime and the canonical model: decodes inputs and answers, and encodes threads,
runs, questions and events.

Events are encoded as the records of the gateway's log, with the same member names.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.time import encode_time
from babelgate.adapters.runtime import wire as w
from babelgate.canonical import DataPart, FilePart, Interrupt, Message, Part, Record, Run, ThreadView, ToolCallPart
from babelgate.canonical.event import RunCreated
from babelgate.canonical.fault import Fault
from babelgate.canonical.history import Revision
from babelgate.canonical.message import ReasoningPart, RefusalPart, TextPart, ToolResultPart
from babelgate.canonical.thread import Artifact
from babelgate.canonical.value import Json, JsonObject, Value

_HIDDEN: Final = frozenset({"extra", "headers", "key_id", "subject", "takes_text", "uploaded"})
"""Members of canonical values that are not encoded.

They are private data of adapters, headers that may contain credentials, the id of the caller's key and its name. The
protocol has no place for the number of uploaded files, and for whether a question takes texts.
"""
_STATUS: Final = {"paused": "input_required"}
"""Status in this protocol (docs/protocols/runtime.md) by canonical status of a run, where the names differ."""


# Decoding


def decode_input(value: Json) -> tuple[tuple[Message, ...], Json]:
    """Return the messages of a run's input, and its data or None. A string is a message of the user, a list consists of
    messages, and an object may have messages in its member `messages`. All else is data. Raises invalid for a malformed
    message."""
    if isinstance(value, str):
        return (Message.of(value, "user"),), None
    if isinstance(value, list):
        return decode_messages(value), None
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        rest: JsonObject = {name: member for name, member in value.items() if name != "messages"}
        messages = decode_messages(value["messages"])
        return messages, rest if rest or not messages else None
    return (), value


def decode_messages(value: Json) -> tuple[Message, ...]:
    """Decode a list of messages. Raises invalid for a malformed message."""
    return tuple(map(_decode_message, validate(w.Messages, {"messages": value}).messages))


def _decode_message(message: w.Message) -> Message:
    role = "agent" if message.role == "assistant" else message.role
    if message.parts is None:
        parts: tuple[Part, ...] = (TextPart(text=message.content or ""),)
    else:
        parts = tuple(map(_decode_part, message.parts))
    return Message(role=role, name=message.name, parts=parts, metadata=message.metadata)


def _decode_part(part: w.Part) -> Part:
    common: dict[str, Any] = {"media_type": part.media_type, "metadata": part.metadata}
    match part:
        case w.TextPart():
            return TextPart(text=part.text, **common)
        case w.ReasoningPart():
            return ReasoningPart(text=part.text, **common)
        case w.RefusalPart():
            return RefusalPart(text=part.text, **common)
        case w.DataPart():
            return DataPart(data=part.data, **common)
        case w.FilePart():
            return FilePart(name=part.name, inline=part.inline, url=part.url, blob=part.blob, **common)
        case w.ToolCallPart():
            return ToolCallPart(call_id=part.call_id, name=part.name, arguments=part.arguments, **common)
        case w.ToolResultPart():
            return ToolResultPart(call_id=part.call_id, output=part.output, error=part.error, **common)


def response_format(schema: JsonObject) -> JsonObject:
    """Return the member of a run's configuration that demands output of this JSON Schema. It has the form of chat
    completions (openai-python 3.54.0, types/shared_params/response_format_json_schema.py), which agents in front of
    models read."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}}


def output_schema_of(config: JsonObject) -> JsonObject | None:
    """Return the JSON Schema that a run's configuration demands of its output, as `response_format` stored it. None: no
    schema."""
    schema: Any = config
    for name in ("response_format", "json_schema", "schema"):
        schema = cast("JsonObject", schema).get(name) if isinstance(schema, dict) else None
    return cast("JsonObject", schema) if isinstance(schema, dict) else None


# Encoding


def encode_value(value: Any) -> Any:
    """Return a canonical value, with all members except `_HIDDEN`, as JSON. Bytes of files that are loaded are in
    Base64."""
    if isinstance(value, Value):
        encoded = {name: encode_value(member) for name, member in value.members().items() if name not in _HIDDEN}
        if isinstance(value, FilePart):
            encoded["inline"] = None if value.inline is None else b64encode(value.inline).decode()
        return encoded
    return [encode_value(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def encode_event(record: Record, run_id: str) -> JsonObject:
    """Return a record of the run `run_id` as an event. Its `event_id` is the record's seq in the thread, and its
    `payload` the canonical event."""
    payload = encode_value(record.event)
    return {
        "event_id": record.seq,
        "run_id": run_id,
        "event_type": payload.pop("kind"),
        "attempt": record.attempt,
        "timestamp": encode_time(record.at),
        "payload": payload,
    }


def encode_interrupt(interrupt: Interrupt, thread_id: str) -> JsonObject:
    """Return a question as the JSON object that callers receive. Its id is the member `resume_state_pointer`."""
    return {
        "task_id": interrupt.task_id,
        "run_id": interrupt.run_id,
        "thread_id": thread_id,
        "type": interrupt.ask,
        "message": encode_value(interrupt.message),
        "value": interrupt.value,
        "expected_input_schema": interrupt.answer_schema,
        "resume_state_pointer": interrupt.interrupt_id,
    }


def encode_error(fault: Fault | None) -> JsonObject | None:
    """Return a fault as `{code, message}`, or None for None."""
    return None if fault is None else {"code": str(fault.code), "message": fault.message}


def encode_status(run: Run) -> str:
    """Return the status of a run under the name that the protocol has for it."""
    return _STATUS.get(run.status, str(run.status))


def encode_run(
    run: Run,
    created: RunCreated,
    messages: Sequence[Message],
    artifacts: Iterable[Artifact],
    questions: Iterable[Interrupt],
    base_url: str,
) -> JsonObject:
    """Return a run as JSON. `created` has its input, `messages` and `artifacts` are its output, and `questions` are
    open. `base_url` begins the URL of its event stream."""
    open_questions = [encode_interrupt(each, run.thread_id) for each in questions]
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "task_id": run.task_id,
        "assistant_id": run.agent,
        "status": encode_status(run),
        "input": {"messages": encode_value(created.messages), "data": created.data},
        "output": {
            "messages": encode_value(tuple(messages)),
            "data": run.output,
            "artifacts": encode_value(tuple(artifacts)),
        },
        "error": encode_error(run.fault),
        "interrupt_state": open_questions or None,
        "event_log_reference": f"{base_url}/v1/runs/{run.run_id}/stream",
        "multitask_strategy": run.strategy,
        "metadata": dict(run.metadata),
        "usage": dict(run.usage) or None,
        "timestamps": {
            "created_at": encode_time(run.created_at),
            "started_at": None if run.started_at is None else encode_time(run.started_at),
            "ended_at": None if run.ended_at is None else encode_time(run.ended_at),
        },
    }


def encode_thread(view: ThreadView, state: Revision | None, last_run_id: str | None) -> JsonObject:
    """Return a thread as JSON, with its newest `state` and the id of its newest run. Both can be None."""
    thread = view.thread
    return {
        "thread_id": thread.thread_id,
        "status": view.status,
        "metadata": dict(thread.metadata),
        "state_snapshot": None if state is None else encode_state(state),
        "last_run_id": last_run_id,
        "timestamps": {"created_at": encode_time(thread.created_at), "updated_at": encode_time(view.updated_at)},
    }


def encode_state(state: Revision) -> JsonObject:
    """Return a revision of a thread's state as JSON. The thread's messages are in its `values`."""
    values: Mapping[str, Any] = state.values
    messages = {"messages": encode_value(state.messages)} if state.messages else {}
    return {
        "checkpoint_id": state.checkpoint_id,
        "created_at": encode_time(state.at),
        "values": {**values, **messages},
        "next": list(state.next),
    }
