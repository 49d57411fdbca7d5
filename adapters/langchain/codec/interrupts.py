"""Conversion between the interrupts of LangGraph and questions. Questions of agents that are not graphs are shown as
interrupts, too."""

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
"""Prefix of the id of a question that asks for the result of a caller's tool. The id of the tool call follows it."""
BREAKPOINT: Final = "breakpoint-"
"""Prefix of the ids of questions that represent a breakpoint. The graph was configured to stop at a node and asks
nothing, so any answer resumes it."""


_QUESTION_MEMBERS: Final = ("question", "message", "prompt", "text", "description", "action")
"""Members of an interrupt's value that can hold the text of the question, in order of preference."""


def question_text(value: Json) -> str:
    """Return the human-readable text in the value of a graph's interrupt. A value without such a text is returned as
    JSON text, and None as ""."""
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
    """Return the value that resumes a graph with a caller's answer. `extra` has what the question stores about its
    interrupt, such as the form of an approval. A declined question becomes null, a rejection, or a tool result of
    null."""
    value = None if answer.action == "decline" else answer.value
    if isinstance(extra.get("approval"), dict):
        return answer_approval(extra["approval"], value)
    return encode_result(extra["call_id"], value) if isinstance(extra.get("call_id"), str) else value


def encode_interrupts(questions: Sequence[Interrupt]) -> list[JsonObject]:
    """Return questions as objects `{value, id, …}` in the form of LangGraph's interrupts.

    `value` is the call of a caller's tool, or the question's data, or else its text. Text that is not in the data is
    added as `message`. Approvals and login requests in a form that LangGraph does not have get a `kind`. Further
    members of the interrupt from a LangGraph server are added unchanged.
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
    """Return the questions as LangGraph's interrupts, without those that represent breakpoints. LangGraph shows a
    breakpoint only as the state's next node."""
    return encode_interrupts([question for question in questions if not question.interrupt_id.startswith(BREAKPOINT)])


class QuestionOrder:
    """Sort order for questions that parallel tasks ask. Questions arrive in the arbitrary order in which their tasks
    stop, and are sorted by the order in which the tasks began."""

    def __init__(self) -> None:
        self._began: dict[str, int] = {}

    def begin(self, task_id: str) -> None:
        """Record that a task began. Later calls for the same task change nothing."""
        self._began.setdefault(task_id, len(self._began))

    def of(self, ns: Sequence[str], task_id: str) -> tuple[int, ...]:
        """Return the sort key of a question that a task asks in the namespace `ns`, whose segments are `<node>:<task
        id>`, outermost first. A task that was not seen to begin sorts first."""
        ids = (*(segment.partition(":")[2] for segment in ns), task_id)
        return tuple(self._began.get(id_, -1) for id_ in ids)
