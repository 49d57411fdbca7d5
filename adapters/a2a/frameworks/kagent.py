"""Dialect of A2A in kagent 1.0.0a17, in its version 0.x, and in its extension for approvals at commit 5229184."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import Framework, FrameworkQuestion, describe_call, text_parts
from babelgate.adapters.a2a.frameworks.google_adk import read_waiting_call
from babelgate.adapters.kit.client.consent import is_yes
from babelgate.canonical import DataPart
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

APPROVALS: Final = "https://kagent.dev/extensions/hitl/v1"
"""URI of the extension for approvals. A message that answers lists it in its `extensions`, too."""
USAGE: Final = "https://kagent.dev/extensions/usage/v1"
"""Key of the final status's metadata under which the token usage of the task is."""
PART_TYPE: Final = "kagent.dev/a2a/part-type"
_OLD_PART_TYPE: Final = "kagent_type"

_APPROVED: Final[JsonObject] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "rejection_reason": {"type": "string"}},
    "required": ["approved"],
}


def _read_waiting_call(part: DataPart) -> list[FrameworkQuestion]:
    return read_waiting_call(part, PART_TYPE) or read_waiting_call(part, _OLD_PART_TYPE)


def _read_request(key: str, request: JsonObject) -> list[FrameworkQuestion]:
    """Return the questions in a request for an approval or for answers of the user. It comes from the agent or one of
    its subagents. `key` is the key of metadata under which the request is."""
    nested = as_object(request.get("nested"))
    subagent = as_text(nested.get("subagent_name"))
    calls = [describe_call(tool.get("name"), tool.get("args")) for tool in objects_in(nested.get("tools"))]
    match request.get("type"):
        case "tool_approval_request":
            hint = as_text(request.get("hint"))
            return [_approval(key, tool, hint, subagent, calls) for tool in objects_in(request.get("tools"))]
        case "ask_user_request":
            entries = enumerate(objects_in(request.get("questions")))
            return [_user_question(key, request.get("id"), number, entry, subagent) for number, entry in entries]
        case _:
            return []


def _approval(key: str, tool: JsonObject, hint: str, subagent: str, nested_calls: list[str]) -> FrameworkQuestion:
    tool_id, call = as_text(tool.get("id")), describe_call(tool.get("name"), tool.get("args"))
    inner = [f"{subagent}: {nested}" if subagent else nested for nested in nested_calls if nested and nested != call]
    words = "\n".join(filter(None, (hint, call, *inner)))
    form: JsonObject = {"as": "approvals", "uri": key, "id": tool_id}
    return FrameworkQuestion(text_parts(words), tool_id or None, tool, _APPROVED, "approval", form)


def _user_question(key: str, request_id: Json, number: int, entry: JsonObject, subagent: str) -> FrameworkQuestion:
    form: JsonObject = {"as": "answers", "uri": key, "id": request_id, "number": number}
    choices = [choice for choice in as_list(entry.get("choices")) if isinstance(choice, str)]
    schema: JsonObject | None = {"type": "string", "enum": choices} if choices else None
    if schema is not None and entry.get("multiple") is True:
        schema = {"type": "array", "items": schema}
    words = ": ".join(filter(None, (subagent, as_text(entry.get("question")))))
    return FrameworkQuestion(text_parts(words), None, entry, schema, form=form)


def _write_approval(form: JsonObject, value: Json) -> JsonObject:
    is_approved = is_yes(value)
    approval: JsonObject = {"id": form["id"], "approved": is_approved}
    reason = value.get("rejection_reason") if isinstance(value, dict) else value
    if not is_approved and isinstance(reason, str) and reason:
        approval["rejection_reason"] = reason
    return {"type": "tool_approval_response", "approvals": [approval]}


def _write_answer(form: JsonObject, value: Json) -> JsonObject:
    values = [str(choice) for choice in (value if isinstance(value, list) else [value]) if choice is not None]
    return {"type": "ask_user_response", "id": form["id"], "answers": [{"answer": values}]}


KAGENT: Final = Framework(
    thoughts={"kagent_thought": (True,)},
    genai_marks=(PART_TYPE, _OLD_PART_TYPE),
    read_question=_read_waiting_call,
    question_endings={APPROVALS: _read_request},
    answers={"approvals": _write_approval, "answers": _write_answer},
    task_usage=((USAGE,),),
    message_usage=("kagent.dev/a2a/usage", "kagent_usage_metadata"),
)
