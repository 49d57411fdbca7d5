"""Dialect of langgraph-api 0.16.7. Gateways like this one also write its form of questions and answers.

A question is a data part `{"id", "value", "response_schema"?}`; `schema` is the gateway's own name for the schema.
Answers to several questions are a data part `{"resume": [{"id", "value"}, …]}`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework, FrameworkQuestion, ToolUse, as_words
from babelgate.canonical import DataPart, Part
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

_HISTORY_SCOPE: Final = "https://langchain.com/a2a/extensions/history-scope/v1"
"""URI of an extension by which a card of langgraph-api is recognized. Callers activate it by a header."""
INTERRUPT: Final = "Interrupt"
"""Name of the artifact that contains the agent's questions."""
_QUESTION: Final = frozenset({"id", "value", "schema", "response_schema"})


def _read_results(content: DecodedContent, part: DataPart) -> bool:
    """Add the results of tool calls in a data part to the content. The server does not send the calls themselves.
    Return False if the part has no results."""
    data = as_object(part.data)
    uses: list[ToolUse] = []
    for result in objects_in(data["tool_results"]) if set(data) == {"tool_results"} else ():
        output = result.get("content")
        error = as_words(output) if result.get("status") == "error" else None
        name, call_id = as_text(result.get("name")), as_text(result.get("toolCallId"))
        if call_id:
            uses.append(ToolUse(call_id, name, ended=True, value=output, error=error))
    content.tools += uses
    return bool(uses)


def read_question(part: Part) -> FrameworkQuestion | None:
    """Return the question in a data part, without a text for the user. Return None if the part is no question."""
    data = part.data if isinstance(part, DataPart) else None
    if not isinstance(data, dict) or not {"id", "value"} <= set(data) <= _QUESTION:
        return None
    question_id, schema = data["id"], data.get("schema") or data.get("response_schema")
    if not isinstance(question_id, str) or not question_id:
        return None
    return FrameworkQuestion((), question_id, data["value"], schema if isinstance(schema, dict) else None)


def write_question(question_id: str, value: Json, schema: JsonObject | None = None) -> DataPart:
    """Return the data part of one question. The schema of the answer is sent as both `schema` and `response_schema`;
    None omits it."""
    data: JsonObject = {"id": question_id, "value": value}
    if schema is not None:
        data |= {"response_schema": schema, "schema": schema}
    return DataPart(data=data)


def read_answers(parts: Iterable[Part]) -> dict[str, Json] | None:
    """Return the answers in the first data part of the form `{"resume": […]}`, by question id. Return None if there is
    no such part."""
    for part in parts:
        resume = part.data.get("resume") if isinstance(part, DataPart) and isinstance(part.data, dict) else None
        if not isinstance(resume, list) or not resume:
            continue
        entries = [entry for entry in resume if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
        if len(entries) == len(resume):
            return {str(entry["id"]): entry.get("value") for entry in entries}
    return None


def write_answers(values: Iterable[tuple[str, Json]]) -> DataPart:
    """Return the data part that answers several questions. `values` are pairs of a question id and the value of the
    answer."""
    resume: list[Json] = [{"id": question_id, "value": value} for question_id, value in values]
    return DataPart(data={"resume": resume})


def is_resume(part: Part) -> bool:
    """Return True for a data part with a member `resume`: it answers questions by their ids."""
    return isinstance(part, DataPart) and isinstance(part.data, dict) and "resume" in part.data


def last_versions(texts: Iterable[str]) -> Sequence[str]:
    """Return the texts in order, without each text that is the beginning of the one after it.

    Each status message of langgraph-api repeats the whole answer so far, so only the last one of each answer remains.
    """
    lines: list[str] = []
    for text in texts:
        if lines and text.startswith(lines[-1]):
            lines.pop()
        lines.append(text)
    return lines


LANGGRAPH_API: Final = Framework(
    read_data=_read_results,
    is_on_card=lambda uri: uri == _HISTORY_SCOPE,
    repeats_answer=True,
    private_extensions=frozenset({_HISTORY_SCOPE}),
)
