"""Dialect of A2A in agno 3.1.10: metadata that name the kind of a message, tool calls, steps and failures."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework, ToolUse, error_words, parse_json
from babelgate.canonical.json import as_text
from babelgate.canonical.value import Json, JsonObject

_CATEGORY: Final = "agno_content_category"
_EVENT: Final = "agno_event_type"


def _read_category(content: DecodedContent, value: Json, _: JsonObject) -> None:
    if value == "reasoning":
        content.is_all_thought = True
    elif value == "content":
        content.says = "answer"


def _read_event(content: DecodedContent, value: Json, metadata: JsonObject) -> None:
    kind = as_text(value)
    if kind in ("tool_call_started", "tool_call_completed", "tool_call_error"):
        name, call_id = as_text(metadata.get("tool_name")), as_text(metadata.get("tool_call_id"))
        # An end has no result.
        ended = kind != "tool_call_started"
        arguments = None if ended else parse_json(as_text(metadata.get("tool_args")))
        error = (error_words(metadata.get("error")) or f"{name} failed") if kind == "tool_call_error" else None
        if name:
            content.tools.append(ToolUse(call_id or None, name, ended=ended, value=arguments, error=error))
    elif "_" in kind and as_text(metadata.get("step_name")):
        _name, _, phase = kind.rpartition("_")
        if phase in ("started", "completed", "error"):
            content.steps.append((as_text(metadata["step_name"]), phase))


def _read_error(value: Json, metadata: JsonObject) -> tuple[str, JsonObject]:
    return (error_words(value) if _EVENT in metadata else ""), {}


AGNO: Final = Framework(
    metadata={_CATEGORY: _read_category, _EVENT: _read_event},
    errors={"error": _read_error},
    # The metrics are in the message of the task that answers a send.
    task_usage=(("metrics",),),
    # Usage and files come in a task after the final status.
    late_task=(_CATEGORY, _EVENT),
)
