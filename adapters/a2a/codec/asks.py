"""Questions in the forms of frameworks, and the answers in the form that each framework accepts.

A2A has no form for questions. Each framework has its own (`adapters.a2a.frameworks`), and rejects or ignores answers in
another form. So the form of the answer (`FrameworkQuestion.form`) is stored with the question. Only an explicit yes
approves.
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
    """Content of the message that answers one or more questions."""

    parts: tuple[Part, ...] = ()
    metadata: JsonObject | None = None
    extensions: tuple[str, ...] = ()


# Questions


def decode_asked(parts: Sequence[Part], metadata: JsonObject | None) -> list[FrameworkQuestion]:
    """Return the questions in the parts and the metadata of a status message, if they have the form of a framework.
    Return an empty list otherwise.

    Parts of the message that are no questions become part of the first question.
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
    """Return the questions in an artifact whose parts all have the form of one framework. Return an empty list for any
    other artifact. `name` is the artifact's name, if it has one."""
    return next(filter(None, (reader(name, parts) for reader in _ARTIFACT_READERS)), list[FrameworkQuestion]())


def _read_part(part: Part) -> list[FrameworkQuestion]:
    if not isinstance(part, DataPart) or not isinstance(part.data, dict):
        return []
    return next(filter(None, (reader(part) for reader in _QUESTION_READERS)), list[FrameworkQuestion]())


def is_waiting(part: Part) -> bool:
    """Return True if a part is a tool call that waits for the caller. The call becomes a question when the task stops
    for it."""
    return isinstance(part, DataPart) and any(is_waiting_call(part) for is_waiting_call in _WAITING)


def genai_mark(part: Part) -> str | None:
    """Return the key in a part's metadata under which a framework stores the type of a Google GenAI part, such as
    `adk_type`. Return None if there is no such key."""
    if not isinstance(part, DataPart):
        return None
    return next((key for key in _GENAI_MARKS if key in part.metadata), None)


def _with_words(question: FrameworkQuestion, others: tuple[Part, ...]) -> FrameworkQuestion:
    """Return the question with the other parts of its message, because callers of most protocols see only text.

    If the form has a member `words`, the message contains the words of the question a second time. Then the text of the
    message is used, unless it only announces the question.
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
    """Return one message with several answers. Each answer comes with the `form` that its question declares."""
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
    """Return an object with the members of both objects. Two lists under the same name are joined; otherwise the second
    value counts."""
    merged = {**first, **second}
    for name, value in second.items():
        if isinstance(value, list) and isinstance(first.get(name), list):
            merged[name] = [*first[name], *cast("list[Any]", value)]
    return merged


def is_answer(part: Part) -> bool:
    """Return True if a part of a caller's message already has the form in which a framework expects an answer."""
    if not isinstance(part, DataPart):
        return False
    is_response = any(part.metadata.get(key) == "function_response" for key in _GENAI_MARKS)
    return is_response or any(is_own_answer(part) for is_own_answer in _IS_ANSWER)
