"""Interrupts ↔ questions, both LangGraph's own and those of agents that are not graphs."""

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
"""Prefix that turns the id of a tool call into the id of the question that asks for its result."""
BREAKPOINT: Final = "breakpoint-"
"""Prefix of breakpoint ids. The graph was configured to stop there and asks nothing, so any answer resumes
it."""


_QUESTION_MEMBERS: Final = ("question", "message", "prompt", "text", "description", "action")
"""Members of a question's value that can hold its text, in order of preference."""


def question_text(value: Json) -> str:
    """Return the text of a question, for people, from the value of a graph's interrupt."""
    if isinstance(value, str):
        return value
    if (approval := decode_approval(value)) is not None:
        return approval[1]
    if isinstance(value, dict):
        for name in _QUESTION_MEMBERS:
            if isinstance(value.get(name), str):
                return str(value[name])
    return "" if value is None else json_text(value)


def encode_answer(extra: JsonObject, answer: InterruptAnswered) -> Json:
    """Return the value that resumes a graph, or None if the caller declined. `extra` is what the question stores about
    its interrupt, such as the form of an approval."""
    value = None if answer.action == "decline" else answer.value
    if isinstance(extra.get("approval"), dict):
        return answer_approval(extra["approval"], value)
    return encode_result(extra["call_id"], value) if isinstance(extra.get("call_id"), str) else value


def encode_interrupts(questions: Sequence[Interrupt]) -> list[JsonObject]:
    """Return questions as LangGraph's interrupts.

    `value` is the call of a caller's tool, or the data of the question, or else its text. Text that the data does not
    contain is added as `message`. An approval or a login request that has no form of LangGraph's gets a `kind`. Members
    that the graph's own server added are repeated.
    """
    interrupts: list[JsonObject] = []
    for question in questions:
        call = encode_call(question)
        if call is not None:
            interrupts.append({"value": call, "id": question.interrupt_id})
            continue
        text = question.message.text
        value = text if question.value is None else question.value
        interrupt: JsonObject = {"value": value, "id": question.interrupt_id}
        if question.answer_schema is not None:
            interrupt["response_schema"] = question.answer_schema
        if text and text not in (value, question_text(question.value)):
            interrupt["message"] = text
        if question.ask != "input" and decode_approval(value) is None:
            interrupt["kind"] = question.ask
        interrupts.append({**as_object(extra_of(question.extra).get("interrupt")), **interrupt})
    return interrupts


def encode_graph_questions(questions: Sequence[Interrupt]) -> list[JsonObject]:
    """Return as interrupts the questions that a graph asks. Breakpoints are left out: LangGraph shows one only as the
    next node."""
    return encode_interrupts([question for question in questions if not question.interrupt_id.startswith(BREAKPOINT)])


class QuestionOrder:
    """Order of questions that were asked at the same time: the order in which their tasks began, which the graph
    defines. They arrive in the order in which the tasks stop, which is arbitrary."""

    def __init__(self) -> None:
        self._began: dict[str, int] = {}

    def begin(self, task_id: str) -> None:
        """Record that a task began. Later calls for the same task change nothing."""
        self._began.setdefault(task_id, len(self._began))

    def of(self, ns: Sequence[str], task_id: str) -> tuple[int, ...]:
        """Return the sort key of a task in the place `ns`, whose segments are `<node>:<task id>`, outermost first."""
        ids = (*(segment.partition(":")[2] for segment in ns), task_id)
        return tuple(self._began.get(id_, -1) for id_ in ids)
