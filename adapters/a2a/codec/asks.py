"""Questions in the forms of frameworks, and the answers in the form that each framework accepts.

A2A has no form for questions. Each framework has its own (`adapters.a2a.frameworks`), and rejects or ignores answers in
another one. So the form of the answer (`Question.form`) is stored with the question. Only an explicit yes approves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from babelgate.adapters.a2a.frameworks import FRAMEWORKS, ag2, kagent
from babelgate.adapters.a2a.frameworks.framework import AnswerWriter, FrameworkQuestion, QuestionReader
from babelgate.canonical import DataPart, Part, TextPart
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.json import as_object
from babelgate.canonical.message import text_of
from babelgate.canonical.value import Json, JsonObject

_GENAI_MARKS: Final = [key for framework in FRAMEWORKS for key in framework.genai_marks]
_WAITING: Final = [framework.is_waiting for framework in FRAMEWORKS if framework.is_waiting is not None]
_QUESTION_READERS: Final = [framework.read_question for framework in FRAMEWORKS if framework.read_question is not None]
_ARTIFACT_READERS: Final = [
    framework.read_artifact_questions for framework in FRAMEWORKS if framework.read_artifact_questions is not None
]
_METADATA_READERS: Final[Mapping[str, QuestionReader]] = {
    ending: reader for framework in FRAMEWORKS for ending, reader in framework.question_endings.items()
}
_ANNOUNCEMENTS: Final = frozenset(text for framework in FRAMEWORKS for text in framework.announcements)
_ANSWERS: Final[Mapping[str, AnswerWriter]] = {
    name: writer for framework in FRAMEWORKS for name, writer in framework.answers.items()
}
_IS_ANSWER: Final = [framework.is_answer for framework in FRAMEWORKS if framework.is_answer is not None]


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """Answer to one or more questions: what its message contains."""

    parts: tuple[Part, ...] = ()
    metadata: JsonObject | None = None
    extensions: tuple[str, ...] = ()


# Questions


def decode_asked(parts: Sequence[Part], metadata: JsonObject | None) -> list[FrameworkQuestion]:
    """Return the questions of a status message in a framework's form; none if it has no such form. They are in its
    parts and its metadata.

    The other parts of the message go to the first question.
    """
    questions: list[FrameworkQuestion] = []
    others: list[Part] = []
    for part in parts:
        in_part = _read_part(part)
        questions += in_part
        if not in_part and genai_mark(part) is None:
            others.append(part)
    for key, value in (metadata or {}).items():
        for ending, reader in _METADATA_READERS.items():
            if key.endswith(ending) and isinstance(value, dict):
                questions += reader(key, cast("JsonObject", value))
    return [_with_words(question, tuple(others) if index == 0 else ()) for index, question in enumerate(questions)]


def decode_calls(name: str | None, parts: Sequence[Part]) -> list[FrameworkQuestion]:
    """Return the questions in an artifact with this name (None: without one) that has a framework's form. Return none
    if any part is something else."""
    return next(filter(None, (reader(name, parts) for reader in _ARTIFACT_READERS)), list[FrameworkQuestion]())


def _read_part(part: Part) -> list[FrameworkQuestion]:
    if not isinstance(part, DataPart) or not isinstance(part.data, dict):
        return []
    return next(filter(None, (reader(part) for reader in _QUESTION_READERS)), list[FrameworkQuestion]())


def is_waiting(part: Part) -> bool:
    """Return True for a tool call that waits for the caller. It becomes a question when the task stops for it."""
    return isinstance(part, DataPart) and any(is_waiting_call(part) for is_waiting_call in _WAITING)


def genai_mark(part: Part) -> str | None:
    """Return the key of a part's metadata that names its genai type; None if it represents no genai part."""
    if not isinstance(part, DataPart):
        return None
    return next((key for key in _GENAI_MARKS if key in part.metadata), None)


def _with_words(question: FrameworkQuestion, others: tuple[Part, ...]) -> FrameworkQuestion:
    """Return the question with the other parts of its message: callers of most protocols see only text.

    A form with `words` means that its framework words the question twice. The message's own text is used, unless it
    only announces the question.
    """
    own_parts, text = question.parts, text_of(others).strip()
    form = question.form or {}
    if text and "words" in form:
        if text in _ANNOUNCEMENTS or text_of(own_parts).startswith(text):
            others = tuple(part for part in others if not isinstance(part, TextPart))
        else:
            own_parts = ()
    elif text and own_parts:
        own_parts = (TextPart(text="\n"), *own_parts)
    form = {name: value for name, value in form.items() if name != "words"}
    return replace(question, parts=(*others, *own_parts), form=form or None)


# Answers


def encode_answers(answers: Iterable[tuple[JsonObject, InterruptAnswered]]) -> AnswerMessage:
    """Return one message with the answers to questions that all have a `form`."""
    parts: list[Part] = []
    results: list[Json] = []
    metadata: JsonObject = {}
    extensions: dict[str, None] = {}
    for form, answer in answers:
        value = None if answer.action == "decline" else answer.value
        encoded = _ANSWERS[form["as"]](form, value)
        uri = form.get("uri")
        if isinstance(encoded, DataPart):
            parts.append(encoded)
        elif form["as"] == "tool_result":
            results.append(encoded)
        elif isinstance(uri, str):
            metadata[uri] = _merge(as_object(metadata.get(uri)), encoded)
            if uri == kagent.APPROVALS:
                extensions[uri] = None
    if results:
        parts.append(ag2.encode_results(results))
        extensions[ag2.CLIENT_TOOLS] = None
    return AnswerMessage(tuple(parts), metadata, tuple(extensions))


def _merge(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return both objects as one. Lists under the same name are joined."""
    merged = {**first, **second}
    for name, value in second.items():
        if isinstance(value, list) and isinstance(first.get(name), list):
            merged[name] = [*first[name], *cast("list[Any]", value)]
    return merged


def is_answer(part: Part) -> bool:
    """Return True if a caller's part already has the form of a framework's answer."""
    if not isinstance(part, DataPart):
        return False
    is_response = any(part.metadata.get(key) == "function_response" for key in _GENAI_MARKS)
    return is_response or any(is_own_answer(part) for is_own_answer in _IS_ANSWER)
