"""Dialect of A2A in strands-agents 1.62: questions (interrupts) and their answers in data parts."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import Framework, FrameworkQuestion, text_parts
from babelgate.canonical import DataPart
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject


def _read_interrupts(part: DataPart) -> list[FrameworkQuestion]:
    """Return the questions in a data part with a list `interrupts`. The text of its message contains all of them, too,
    so their form has `words`. Return an empty list for any other part."""
    data = as_object(part.data)
    questions: list[FrameworkQuestion] = []
    for interrupt in objects_in(data.get("interrupts")) if set(data) == {"interrupts"} else ():
        interrupt_id, reason = as_text(interrupt.get("interruptId")), interrupt.get("reason")
        if interrupt_id:
            words = text_parts(reason if isinstance(reason, str) else as_text(interrupt.get("name")))
            form: JsonObject = {"as": "interruptResponse", "id": interrupt_id, "words": True}
            questions.append(FrameworkQuestion(words, interrupt_id, reason, form=form))
    return questions


def _write_response(form: JsonObject, value: Json) -> DataPart:
    return DataPart(data={"interruptResponse": {"interruptId": form["id"], "response": value}})


STRANDS: Final = Framework(
    read_question=_read_interrupts,
    answers={"interruptResponse": _write_response},
    is_answer=lambda part: "interruptResponse" in as_object(part.data),
)
