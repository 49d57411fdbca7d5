"""Dialect of langgraph-api 0.16.7, whose form of questions and answers gateways like this one share.

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
"""Extension on the card. It is activated by a header, and says nothing about the agent."""
INTERRUPT: Final = "Interrupt"
"""Name of the artifact that contains the questions."""
_QUESTION: Final = frozenset({"id", "value", "schema", "response_schema"})


def _read_results(content: DecodedContent, part: DataPart) -> bool:
    """Add the results of tools to the content. Their calls are not sent. Return False if the part has no results."""
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
    """Return the question in a data part, without words; None if the part is something else."""
    data = part.data if isinstance(part, DataPart) else None
    if not isinstance(data, dict) or not {"id", "value"} <= set(data) <= _QUESTION:
        return None
    question_id, schema = data["id"], data.get("schema") or data.get("response_schema")
    if not isinstance(question_id, str) or not question_id:
        return None
    return FrameworkQuestion((), question_id, data["value"], schema if isinstance(schema, dict) else None)


def write_question(question_id: str, value: Json, schema: JsonObject | None = None) -> DataPart:
    """Return the data part of one question. A `schema` is sent under both of its names; None omits it."""
    data: JsonObject = {"id": question_id, "value": value}
    if schema is not None:
        data |= {"response_schema": schema, "schema": schema}
    return DataPart(data=data)


def read_answers(parts: Iterable[Part]) -> dict[str, Json] | None:
    """Return the answers in the first data part of the form `{"resume": […]}`, by question; None if there is none."""
    for part in parts:
        resume = part.data.get("resume") if isinstance(part, DataPart) and isinstance(part.data, dict) else None
        if not isinstance(resume, list) or not resume:
            continue
        entries = [entry for entry in resume if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
        if len(entries) == len(resume):
            return {str(entry["id"]): entry.get("value") for entry in entries}
    return None


def write_answers(values: Iterable[tuple[str, Json]]) -> DataPart:
    """Return the data part that answers several questions, given by id and value."""
    resume: list[Json] = [{"id": question_id, "value": value} for question_id, value in values]
    return DataPart(data={"resume": resume})


def is_resume(part: Part) -> bool:
    """Return True for a data part that claims to answer questions by their ids."""
    return isinstance(part, DataPart) and isinstance(part.data, dict) and "resume" in part.data


def last_versions(texts: Iterable[str]) -> Sequence[str]:
    """Return the texts without those that the next one repeats and continues.

    Each status message of langgraph-api contains the whole answer so far.
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
