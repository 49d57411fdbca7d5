"""Validation of answers against the JSON Schemas of their questions, before anything is committed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace
from pydantic_core import from_json

from babelgate.canonical.fault import ANSWER_SCHEMA, FaultCode, FaultError
from babelgate.canonical.hub import Answers
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import Json
from babelgate.gateway.runs.output_schema import find_mismatch

_WORDS: Final[Mapping[str, bool]] = {"true": True, "yes": True, "false": False, "no": False}
"""Words that a text answer may use for a boolean, in lower case, each with its boolean."""


async def fit_answers(questions: Sequence[Interrupt], answers: Answers) -> Answers:
    """Return the answers with one value for each question id, and with texts converted to what the questions' schemas
    require.

    A value without a question id (`bare`) becomes the answer to the oldest question. A caller that declines to answer
    sends no values to check, and a question without a usable schema accepts every value. Raises invalid if a value
    violates its question's schema.
    """
    if answers.action != "answer" or not questions:
        return answers
    named_values = {questions[0].interrupt_id: answers.bare} if answers.values is None else answers.values
    by_id = {question.interrupt_id: question for question in questions}
    values = {
        interrupt_id: await _fit(by_id.get(interrupt_id), value, is_text=answers.is_text)
        for interrupt_id, value in named_values.items()
    }
    return replace(answers, values=values, bare=None)


async def _fit(question: Interrupt | None, value: Json, *, is_text: bool) -> Json:
    """Return an answer's value as its question's schema requires it.

    If the caller's protocol sends answers as text (`is_text`), `"5"` becomes 5 where the schema requires a number. A
    question whose agent reads text itself (`takes_text`) accepts every text. A question that is not open (None) accepts
    everything here: the commit refuses it. Raises invalid for a value that violates the schema.
    """
    if question is None or question.answer_schema is None or (question.takes_text and isinstance(value, str)):
        return value
    schema, where = question.answer_schema, f"answer to question {question.interrupt_id}"
    error = await find_mismatch(schema, value, where)
    if error is None:
        return value
    for reading in _readings(value) if is_text and isinstance(value, str) else ():
        if await find_mismatch(schema, reading, where) is None:
            return reading
    raise FaultError(
        FaultCode.INVALID,
        f"The answer does not fit the schema of its question{error}",
        reason=ANSWER_SCHEMA,
        interrupts=[question.interrupt_id],
    )


def _readings(text: str) -> Iterator[Json]:
    """Yield the values that a text answer may represent: a boolean for `yes`, `no`, `true` and `false`, and the parsed
    JSON."""
    word = text.strip().lower()
    if word in _WORDS:
        yield _WORDS[word]
    with suppress(ValueError):
        yield from_json(text, allow_inf_nan=False)
