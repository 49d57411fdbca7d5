"""What an agent is called with → the bodies and files that another AIEF server takes."""

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

_NO_FORM: Final = "an input has no form for it"
_DECLINED: Final = "a refusal to answer has no form, and is told as an empty answer"


def task_body(call: Invocation) -> JsonObject:
    """Return the body of a new task. Its input begins with the history: the protocol has no other place for it."""
    first = _first_inputs(call)
    body = turn_body(call) if first is None else first[0]
    past = [f"{message.role}: {message.text}" for message in call.history if message.text]
    if past:
        lines = ["Said before in this conversation:", *past, "", body.get("input") or ""]
        body["input"] = "\n".join(lines).rstrip()
    return body


def turn_body(call: Invocation) -> JsonObject:
    """The text, and one object beside it."""
    parts = [part for message in call.messages for part in message.parts]
    values = [call.data, *(part.data for part in parts if isinstance(part, DataPart))]
    values = [value for value in values if value not in (None, {}, [])]
    given = next((value for value in values if isinstance(value, dict)), None)
    lines = [*_message_texts(call), *(_in_words(value) for value in values if value is not given)]
    body: JsonObject = {}
    if lines or given is None:
        body["input"] = "\n".join(lines)
    elif (words := prompt_of(given)) is not None:
        body["input"] = words
    beside: Any = call.config.get("additional_input")
    more: JsonObject = {**(beside if isinstance(beside, dict) else {}), **(given or {})}
    if more:  # null is refused by the JavaScript SDK, although its document has it
        body["additional_input"] = more
    return body


def _message_texts(call: Invocation) -> list[str]:
    said = [message for message in call.messages if message.text]
    if all(message.role == "user" for message in said):
        return [message.text for message in said]
    return [f"{message.role}: {message.text}" for message in said]


def _in_words(value: Json) -> str:
    return value if isinstance(value, str) else json_text(value)


def _first_inputs(call: Invocation) -> tuple[JsonObject, JsonObject] | None:
    """Return the bodies of the task and of its first step if an AIEF caller of the gateway gave both an input of its
    own. Else None."""
    own = cast("JsonObject", call.input.extra.get("aief") or {})
    if "first" not in own:
        return None
    first = cast("dict[str, JsonObject]", own["first"])
    beside: Any = call.config.get("additional_input")
    task, step = ({name: value for name, value in first[body].items() if value} for body in ("task", "step"))
    if isinstance(beside, dict) and beside:
        task["additional_input"] = {**beside, **task.get("additional_input", {})}
    return task, step


def first_step_body(call: Invocation, body: JsonObject, kept: object) -> JsonObject:
    """Return the body of a new task's first step: the input that the caller gave this step, or nothing.

    A server may not keep the object that came with the task (the Python SDK 1.0.2 does not). Then the step says it in
    words, and the task's text with it: an agent reads the one or the other.
    """
    first = _first_inputs(call)
    step = {} if first is None else first[1]
    given: Any = body.get("additional_input")
    if given is None or kept == given:
        return step
    objects = [given, *([step["additional_input"]] if "additional_input" in step else [])]
    texts = [each["input"] for each in (body, step) if each.get("input")]
    return {"input": "\n".join([*texts, *map(json_text, objects)])}


def answer_body(call: Invocation, past: Sequence[Record]) -> JsonObject:
    """`past` = the task's records, where the questions stand."""
    asked = {r.event.interrupt_id: r.event for r in past if isinstance(r.event, InterruptRaised)}
    if len(call.answers) == 1 and _is_object(call.answers[0], asked.get(call.answers[0].interrupt_id)):
        # Only where the far gateway says the question's id: the Python SDK 1.0.2 drops the member (it was mended in
        # da31fb5, and never released).
        return {"additional_input": call.answers[0].value}
    words = [_in_words(answer.value) if answer.action == "answer" else "" for answer in call.answers]
    return {"input": "\n".join(words)}


def _is_object(answer: InterruptAnswered, question: InterruptRaised | None) -> bool:
    """Whether it is best told as an object. Gateways like this one take text for one only where they gave a schema;
    others may lose the object on the way."""
    if question is None or question.answer_schema is not None or answer.action != "answer":
        return False
    own: Mapping[str, Any] = question.extra.get("aief") or {}
    return "id" in own and isinstance(answer.value, dict) and bool(answer.value)


def files_of(call: Invocation) -> list[tuple[str, bytes, str]]:
    """Names, contents and media types. Servers keep files under the names that they are given, so no two are alike."""
    taken: set[str] = set()
    found: list[tuple[str, bytes, str]] = []
    for part in call.files:
        content = part.inline
        name, media_type = clean_name(part.name), _media_type(part.media_type)
        if content is None and part.url is not None:  # nothing is fetched: the agent is told where it is
            content = b"".join(piece for piece in contents(Artifact(parts=(part,))) if isinstance(piece, bytes))
            name, media_type = f"{name}.uri", _BYTES
        if content is not None:
            name = _free(name, taken)
            taken.add(name)
            found.append((name, content, media_type))
    return found


_BYTES: Final = "application/octet-stream"


def _media_type(given: str | None) -> str:
    """It stands in a header of the form."""
    return given if given and len(given) <= 200 and given.isascii() and given.isprintable() else _BYTES


def _free(name: str, taken: set[str]) -> str:
    stem, dot, suffix = name.rpartition(".")
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{stem}-{number}{dot}{suffix}" if stem else f"{name}-{number}"
    return found


def input_losses(call: Invocation, told: Container[str] = ()) -> Iterator[tuple[Feature, str]]:
    """What of the input the protocol has no form for; `told` = the names of what is said by the extension."""
    messages = () if "messages" in told else call.messages
    parts = [part for message in messages for part in message.parts]
    about = (each.metadata for each in (*messages, *parts))
    if (call.metadata and not call.answers and "metadata" not in told) or any(about):
        yield Feature.METADATA, CARRIES[Feature.METADATA].how
    yield from _unsaid(parts)
    if declared_tools(call.config) and "tools" not in told:
        yield Feature.CALLER_TOOLS, CARRIES[Feature.CALLER_TOOLS].how
    if any(answer.action == "decline" for answer in call.answers) and "answers" not in told:
        yield Feature.QUESTION, _DECLINED


def _unsaid(parts: Sequence[Part]) -> Iterator[tuple[Feature, str]]:
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
