"""Interrupts ↔ questions: those of LangGraph, and those that its graphs do not ask."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.langchain.codec.approvals import answer_approval, decode_approval
from babelgate.adapters.langchain.codec.caller_tools import encode_call, encode_result
from babelgate.adapters.langchain.codec.content import extra_of
from babelgate.canonical import Interrupt
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

CALL: Final = "call-"
"""With the id of a call, the id of the question that asks for its result."""
BREAKPOINT: Final = "breakpoint-"
"""Begins the ids of questions that nobody asks: the graph was told to stop there. Any answer lets it go on."""


_QUESTION_MEMBERS: Final = ("question", "message", "prompt", "text", "description", "action")
"""Members of a question's value that hold its words."""


def words_of(value: Json) -> str:
    """The question for people, in what a graph asks."""
    if isinstance(value, str):
        return value
    if (approval := decode_approval(value)) is not None:
        return approval[1]
    if isinstance(value, dict):
        for name in _QUESTION_MEMBERS:
            if isinstance(value.get(name), str):
                return str(value[name])
    return "" if value is None else json_text(value)


def encode_answer(own: JsonObject, answer: InterruptAnswered) -> Json:
    """What a graph is given, None where its question was declined. `own` = what is kept of the question."""
    value = None if answer.action == "decline" else answer.value
    if isinstance(own.get("approval"), dict):
        return answer_approval(own["approval"], value)
    return encode_result(own["call_id"], value) if isinstance(own.get("call_id"), str) else value


def encode_interrupts(questions: Sequence[Interrupt]) -> list[JsonObject]:
    """`value` = the call of a caller's tool, or the data of the question, else its text. Text beside data that does not
    say it is a `message` of its own, and one that asks for an approval or a login in no form of LangGraph's has its
    `kind`. What a graph's own server said beside all that is shown again."""
    made: list[JsonObject] = []
    for question in questions:
        call = encode_call(question)
        if call is not None:
            made.append({"value": call, "id": question.interrupt_id})
            continue
        text = question.message.text
        value = text if question.value is None else question.value
        shown: JsonObject = {"value": value, "id": question.interrupt_id}
        if question.answer_schema is not None:
            shown["response_schema"] = question.answer_schema
        if text and text not in (value, words_of(question.value)):
            shown["message"] = text
        if question.ask != "input" and decode_approval(value) is None:
            shown["kind"] = question.ask
        made.append({**as_object(extra_of(question.extra).get("interrupt")), **shown})
    return made


def encode_asked(questions: Sequence[Interrupt]) -> list[JsonObject]:
    """Those that a graph has asked. That one was told to stop before a node, LangGraph shows by nothing but the node
    that is next."""
    return encode_interrupts([each for each in questions if not each.interrupt_id.startswith(BREAKPOINT)])


class Turns:
    """The order of questions that were asked at the same time: that in which their tasks began, which is the graph's.
    They come in the order in which the tasks stop, which is anybody's."""

    def __init__(self) -> None:
        self._began: dict[str, int] = {}

    def begin(self, task_id: str) -> None:
        self._began.setdefault(task_id, len(self._began))

    def of(self, ns: Sequence[str], task_id: str) -> tuple[int, ...]:
        """Of a task in the place `ns`, whose segments are `<node>:<task id>`, outermost first."""
        ids = (*(segment.partition(":")[2] for segment in ns), task_id)
        return tuple(self._began.get(each, -1) for each in ids)
