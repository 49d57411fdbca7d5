"""Dialect of the traceability extension of a2a-samples."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework, ToolUse, as_count
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

_TRACES: Final = ("/extensions/traceability/v1", "/extensions/traceability/v1/traceability")
"""Suffixes of the metadata key that contains the trace of an answer: the steps of the agent, with their tool calls and
tokens."""


def _read_trace(content: DecodedContent, value: Json, _: JsonObject) -> None:
    """Add the calls of tools and of other agents in a trace to the content. The calls have ended when the trace
    arrives, but the trace does not contain their results."""
    if content.is_marked:
        return
    for step in objects_in(as_object(value).get("steps")):
        action = as_object(step.get("step_action"))
        tool, agent = as_object(action.get("tool_invocation")), as_object(action.get("agent_invocation"))
        name = as_text(tool.get("tool_name")) or as_text(agent.get("agent_name")) or as_text(agent.get("agent_url"))
        call_id = as_text(step.get("step_id"))
        if not name or not call_id:
            continue
        content.tools.append(ToolUse(call_id, name, value=tool.get("parameters") if tool else agent))
        if step.get("end_time") is not None:
            content.tools.append(ToolUse(call_id, name, ended=True))


def tokens_of_trace(metadata: JsonObject | None) -> JsonObject:
    """Return the number of tokens that the steps of a trace used, as `{"total_tokens": …}`. Return an empty object if
    the metadata contain no trace."""
    traces = [as_object(value) for key, value in (metadata or {}).items() if key.endswith(_TRACES)]
    counts = [as_count(step.get("total_tokens")) for trace in traces for step in objects_in(trace.get("steps"))]
    total = sum(count for count in counts if count is not None)
    return {"total_tokens": total} if total else {}


A2A_SAMPLES: Final = Framework(metadata_endings=dict.fromkeys(_TRACES, _read_trace))
