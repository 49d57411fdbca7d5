"""Dialect of A2A in protolabs-a2a: tool calls, changes of state and costs in metadata."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework, ToolUse, as_words
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

_EXTENSIONS: Final = "https://proto-labs.ai/a2a/ext"
_WORLD_STATE: Final = f"{_EXTENSIONS}/worldstate-delta-v1"
_END_PHASES: Final = ("complete", "end", "error", "fail")
"""Prefixes of the phases that report the end of a tool call, with or without a result."""


def _read_call(content: DecodedContent, value: Json, _: JsonObject) -> None:
    call = as_object(value)
    call_id, name, phase = as_text(call.get("toolCallId")), as_text(call.get("name")), as_text(call.get("phase"))
    if not call_id or not name:
        return
    if phase.startswith("start"):
        content.tools.append(ToolUse(call_id, name, value=call.get("args")))
    elif "result" in call or call.get("error") or phase.startswith(_END_PHASES):
        error = as_words(call["error"]) if call.get("error") else None
        if error is None and phase.startswith(("error", "fail")):
            error = f"{name} failed"
        content.tools.append(ToolUse(call_id, name, ended=True, value=call.get("result"), error=error))


def _read_world_state(content: DecodedContent, value: Json, _: JsonObject) -> None:
    if value:
        content.states.append((_WORLD_STATE, value))


PROTOLABS: Final = Framework(
    metadata={f"{_EXTENSIONS}/tool-call-v1": _read_call, _WORLD_STATE: _read_world_state},
    task_usage=((f"{_EXTENSIONS}/cost-v1",),),
)
