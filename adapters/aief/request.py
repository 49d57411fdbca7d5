"""Encoding of an agent's invocation as bodies of requests, and files to upload, for another AIEF server."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.aief.carries import CARRIES
from babelgate.adapters.aief.codec import clean_name, contents
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    AnnotationPart,
    Artifact,
    DataPart,
    Feature,
    FilePart,
    Invocation,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.agent import prompt_of
from babelgate.canonical.caller_tool import declared_tools
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.value import Json, JsonObject

_NO_FORM: Final = "an input has no field for it"
_DECLINED: Final = "a refusal to answer is sent as an empty answer"


def task_body(call: Invocation) -> JsonObject:
    """Return the body of a new task. The history of the conversation precedes the input in its text, because the
    protocol has no other place for it."""
    first = _first_inputs(call)
    body = turn_body(call) if first is None else first[0]
    past = [f"{message.role}: {message.text}" for message in call.history if message.text]
    if past:
        lines = ["Said before in this conversation:", *past, "", body.get("input") or ""]
        body["input"] = "\n".join(lines).rstrip()
    return body


def turn_body(call: Invocation) -> JsonObject:
    """Return the body of the first step of a later turn: the text of the messages and the data in `input`, and one
    object in `additional_input`."""
    parts = [part for message in call.messages for part in message.parts]
    values = [call.data, *(part.data for part in parts if isinstance(part, DataPart))]
    values = [value for value in values if value not in (None, {}, [])]
    main_object = next((value for value in values if isinstance(value, dict)), None)
    lines = [*_message_texts(call), *(_in_words(value) for value in values if value is not main_object)]
    body: JsonObject = {}
    if lines or main_object is None:
        body["input"] = "\n".join(lines)
    elif (words := prompt_of(main_object)) is not None:
        body["input"] = words
    config_object: Any = call.config.get("additional_input")
    more: JsonObject = {**(config_object if isinstance(config_object, dict) else {}), **(main_object or {})}
    if more:  # the JavaScript SDK rejects null, although its document allows it
        body["additional_input"] = more
    return body


def _message_texts(call: Invocation) -> list[str]:
    messages = [message for message in call.messages if message.text]
    if all(message.role == "user" for message in messages):
        return [message.text for message in messages]
    return [f"{message.role}: {message.text}" for message in messages]


def _in_words(value: Json) -> str:
    return value if isinstance(value, str) else json_text(value)


def _first_inputs(call: Invocation) -> tuple[JsonObject, JsonObject] | None:
    """Return the inputs of a task and of its first step, if an AIEF caller of this gateway sent different ones. Return
    None otherwise."""
    inputs = cast("JsonObject", call.input.extra.get("aief") or {})
    if "first" not in inputs:
        return None
    first = cast("dict[str, JsonObject]", inputs["first"])
    config_object: Any = call.config.get("additional_input")
    task, step = ({name: value for name, value in first[body].items() if value} for body in ("task", "step"))
    if isinstance(config_object, dict) and config_object:
        task["additional_input"] = {**config_object, **task.get("additional_input", {})}
    return task, step


def first_step_body(call: Invocation, body: JsonObject, stored: object) -> JsonObject:
    """Return the body of a new task's first step: the caller's separate input for it, or {}. `body` is that of the
    task, and `stored` the `additional_input` that the server returned for it.

    If the server has dropped that object (the Python SDK 1.0.2 does), the step repeats it as text. The task's text is
    then repeated, too, because an agent reads only one of the inputs.
    """
    first = _first_inputs(call)
    step = {} if first is None else first[1]
    task_object: Any = body.get("additional_input")
    if task_object is None or stored == task_object:
        return step
    objects = [task_object, *([step["additional_input"]] if "additional_input" in step else [])]
    texts = [each["input"] for each in (body, step) if each.get("input")]
    return {"input": "\n".join([*texts, *map(json_text, objects)])}


def answer_body(call: Invocation, past: Sequence[Record]) -> JsonObject:
    """Return the body of a step that answers questions. `past` are the task's records, which contain the questions."""
    questions = {r.event.interrupt_id: r.event for r in past if isinstance(r.event, InterruptRaised)}
    if len(call.answers) == 1 and _is_object(call.answers[0], questions.get(call.answers[0].interrupt_id)):
        # Only if the other gateway sent the question's id: the Python SDK 1.0.2 drops the member (fixed in da31fb5,
        # which was never released).
        return {"additional_input": call.answers[0].value}
    words = [_in_words(answer.value) if answer.action == "answer" else "" for answer in call.answers]
    return {"input": "\n".join(words)}


def _is_object(answer: InterruptAnswered, question: InterruptRaised | None) -> bool:
    """Return True if the answer is sent as `additional_input`, and not as JSON text: the question is another
    Babelgate's, and has no schema by which that gateway would parse a text."""
    if question is None or question.answer_schema is not None or answer.action != "answer":
        return False
    ids: Mapping[str, Any] = question.extra.get("aief") or {}
    return "id" in ids and isinstance(answer.value, dict) and bool(answer.value)


def files_of(call: Invocation) -> list[tuple[str, bytes, str]]:
    """Return the name, bytes and media type of each file to upload. All names differ, because servers store files by
    name."""
    names: set[str] = set()
    files: list[tuple[str, bytes, str]] = []
    for part in call.files:
        content = part.inline
        name, media_type = clean_name(part.name), _media_type(part.media_type)
        if content is None and part.url is not None:  # nothing is fetched: the file holds the URL
            content = b"".join(piece for piece in contents(Artifact(parts=(part,))) if isinstance(piece, bytes))
            name, media_type = f"{name}.uri", _BYTES
        if content is not None:
            name = _free(name, names)
            names.add(name)
            files.append((name, content, media_type))
    return files


_BYTES: Final = "application/octet-stream"
"""Media type of files whose type is not known."""


def _media_type(declared: str | None) -> str:
    """Return the declared media type if it can be sent in a header, else `_BYTES`."""
    return declared if declared and len(declared) <= 200 and declared.isascii() and declared.isprintable() else _BYTES


def _free(name: str, names: set[str]) -> str:
    """Return `name`, with a number added before its suffix if `names` contains it already."""
    stem, dot, suffix = name.rpartition(".")
    candidate, number = name, 1
    while candidate in names:
        number += 1
        candidate = f"{stem}-{number}{dot}{suffix}" if stem else f"{name}-{number}"
    return candidate


def input_losses(call: Invocation, sent: Container[str] = ()) -> Iterator[tuple[Feature, str]]:
    """Yield the features of the input that the server does not receive whole, each with the text of the loss.

    `sent` has the names of members (`messages`, `metadata`, `tools`, `answers`) in which the Babelgate extension
    carries such features; these are not lost.
    """
    messages = () if "messages" in sent else call.messages
    parts = [part for message in messages for part in message.parts]
    metadata = (each.metadata for each in (*messages, *parts))
    if (call.metadata and not call.answers and "metadata" not in sent) or any(metadata):
        yield Feature.METADATA, CARRIES[Feature.METADATA].how
    yield from _part_losses(parts)
    if declared_tools(call.config) and "tools" not in sent:
        yield Feature.CALLER_TOOLS, CARRIES[Feature.CALLER_TOOLS].how
    if any(answer.action == "decline" for answer in call.answers) and "answers" not in sent:
        yield Feature.QUESTION, _DECLINED


def _part_losses(parts: Sequence[Part]) -> Iterator[tuple[Feature, str]]:
    """Yield the features of the parts that AIEF cannot carry whole, each with the text of the loss."""
    for part in parts:
        match part:
            case ReasoningPart():
                yield Feature.REASONING, _NO_FORM
            case RefusalPart():
                yield Feature.REFUSAL, CARRIES[Feature.REFUSAL].how
            case ToolCallPart() | ToolResultPart():
                yield Feature.TOOL_ACTIVITY, _NO_FORM
            case AnnotationPart():
                yield Feature.CITATION, _NO_FORM
            case FilePart() if part.inline is None and part.url is not None:
                yield Feature.FILE_URL, CARRIES[Feature.FILE_URL].how
            case _:
                pass
