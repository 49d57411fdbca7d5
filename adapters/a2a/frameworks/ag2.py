"""Dialect of ag2 1.2.1: calls of the caller's tools, and the agent's context variables. The tools need A2A 1.0, whose
parts have media types."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework, FrameworkQuestion
from babelgate.canonical import CallerTool, DataPart, Part, ToolCallPart
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

CLIENT_TOOLS: Final = "urn:ag2:client-tools:v1"
"""URI of the extension by which callers offer tools to the agent, and the agent calls them."""
_TOOLS, _CALL, _RESULT = (f"application/vnd.ag2.tool-{kind}+json" for kind in ("schemas", "call", "result"))


def encode_offer(tools: Iterable[CallerTool]) -> DataPart:
    """Return the data part that declares the caller's tools to the agent. Each message to the agent needs one."""
    schemas: list[Json] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
    ]
    return DataPart(data={"tools": schemas}, media_type=_TOOLS)


def encode_results(results: list[Json]) -> DataPart:
    """Return the data part that contains the results of all tool calls of a task."""
    return DataPart(data={"results": results}, media_type=_RESULT)


def _read_calls(_: str | None, parts: Sequence[Part]) -> list[FrameworkQuestion]:
    """Return the calls of the caller's tools in an artifact, as questions. Return an empty list if any part is
    something else."""
    questions: list[FrameworkQuestion] = []
    for part in parts:
        call = as_object(part.data) if isinstance(part, DataPart) and part.media_type == _CALL else {}
        call_id, name, value = as_text(call.get("id")), as_text(call.get("name")), call.get("arguments")
        if not call_id or not name:
            return []
        arguments = value if isinstance(value, str) else json.dumps(value or {}, ensure_ascii=False)
        call_part = ToolCallPart(call_id=call_id, name=name, arguments=arguments, side="caller")
        questions.append(
            FrameworkQuestion((call_part,), call_id, form={"as": "tool_result", "id": call_id, "name": name})
        )
    return questions


def _write_result(form: JsonObject, value: Json) -> JsonObject:
    """Return the result of one tool call, for `encode_results`. `value` is the caller's answer, or None if the caller
    declined."""
    content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result: JsonObject = {"id": form["id"], "name": form["name"], "content": content}
    return {**result, "content": "", "error": "The caller has declined."} if value is None else result


def _read_context(content: DecodedContent, value: Json, _: JsonObject) -> None:
    if value:
        content.states.append(("ag2.context_update", value))


AG2: Final = Framework(
    metadata={"ag2.context_update": _read_context},
    read_artifact_questions=_read_calls,
    answers={"tool_result": _write_result},
    is_answer=lambda part: part.media_type == _RESULT,
)
