"""What A2A has no form for → the forms that clients of it understand: thoughts, tools, citations and usage in the
metadata that other frameworks write. Who does not know them sees a task at work.

Each is what `codec.marks` reads; which client shows what of it is in docs/dialects.md.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Fault,
    FaultCode,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import ToolEnded, ToolStarted
from babelgate.canonical.value import Json, JsonObject

_EXTENSIONS: Final = "https://a2a-extensions.agentstack.beeai.dev/ui"
TRAJECTORY: Final = f"{_EXTENSIONS}/trajectory/v1"
CITATION: Final = f"{_EXTENSIONS}/citation/v1"
_CITED: Final = "/ui/citation/v1"
USAGE: Final = "https://kagent.dev/extensions/usage/v1"


def encode_thought(part: ReasoningPart) -> tuple[TextPart, JsonObject]:
    """The part of a message, and the message's metadata; so the others."""
    shown = TextPart(text=part.text, media_type=part.media_type, metadata={**part.metadata, "adk_thought": True})
    return shown, {TRAJECTORY: {"title": "thought", "content": part.text}}


def encode_call(event: ToolStarted) -> tuple[DataPart, JsonObject]:
    data: JsonObject = {"id": event.call_id or "", "name": event.name}
    return _tool("function_call", data, "args", event.input), _trajectory(f"{event.name} (request)", event.input)


def as_call(part: ToolCallPart) -> ToolStarted:
    """A call that an agent makes in a message, as the event that others have of it."""
    try:
        given: Json = json.loads(part.arguments) if part.arguments else None
    except (ValueError, RecursionError):
        given = part.arguments
    return ToolStarted(call_id=part.call_id, name=part.name, input=given)


def as_result(part: ToolResultPart, name: str) -> ToolEnded:
    if not part.error:
        return ToolEnded(call_id=part.call_id, name=name, output=part.output)
    words = part.output if isinstance(part.output, str) else json.dumps(part.output, ensure_ascii=False)
    return ToolEnded(call_id=part.call_id, name=name, fault=Fault(code=FaultCode.AGENT_FAILED, message=words))


def encode_result(event: ToolEnded) -> tuple[DataPart, JsonObject]:
    data: JsonObject = {"id": event.call_id or "", "name": event.name}
    if event.fault is None:
        part = _tool("function_response", data, "response", event.output)
        return part, _trajectory(f"{event.name} (response)", event.output)
    failed: JsonObject = {"error": event.fault.message}
    if event.output is not None:
        failed["result"] = event.output
    part = _tool("function_response", data, "response", failed, within="result")
    return part, _trajectory(f"{event.name} (error)", event.fault.message)


def _tool(kind: str, data: JsonObject, name: str, value: Json, *, within: str | None = None) -> DataPart:
    """genai's calls and responses are objects, and google-adk 2.13.0 takes nothing else. `within` = the member that is
    the value, where it is not all."""
    metadata: JsonObject = {"adk_type": kind, "kagent.dev/a2a/part-type": kind}
    if not isinstance(value, dict):
        value, within = ({} if value is None else {"result": value}), "result"
    if within is not None:
        metadata["babelgate"] = {"value": within}
    return DataPart(data={**data, name: value}, metadata=metadata)


def _trajectory(title: str, content: Json) -> JsonObject:
    words = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {TRAJECTORY: {"title": title, "content": words}}


def encode_citations(cited: Sequence[AnnotationPart]) -> JsonObject:
    """Of an artifact or a message."""
    told: list[JsonObject] = [
        {
            name: value
            for name, value in (
                ("start_index", part.start),
                ("end_index", part.end),
                ("url", part.url),
                ("title", part.title),
                ("description", part.description),
            )
            if value is not None
        }
        for part in cited
    ]
    return {CITATION: {"citations": told}}


def is_cited(metadata: JsonObject) -> bool:
    """Whether it cites in one of the forms that are read."""
    return any(key in ("adk_citation_metadata", "adk_grounding_metadata") or key.endswith(_CITED) for key in metadata)


_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "input_tokens": ("promptTokenCount", "inputTokens"),
    "output_tokens": ("candidatesTokenCount", "outputTokens"),
    "total_tokens": ("totalTokenCount", "totalTokens"),
    "input_tokens_details.cached_tokens": ("cachedContentTokenCount", "cachedInputTokens"),
    "output_tokens_details.reasoning_tokens": ("thoughtsTokenCount", "reasoningTokens"),
}
"""The Responses API's word → that of google-adk 2.13.0, and of kagent 1.0.0a17."""


def encode_usage(told: JsonObject) -> JsonObject:
    """Of the status that ends a task; empty where there are no figures."""
    adk: JsonObject = {}
    kagent: JsonObject = {}
    for path, (first, second) in _NAMES.items():
        name, _, detail = path.partition(".")
        count: Json = told.get(name)
        if detail:
            count = cast("JsonObject", count).get(detail) if isinstance(count, dict) else None
        if isinstance(count, int):
            adk[first], kagent[second] = count, count
    return {"adk_usage_metadata": adk, USAGE: kagent} if adk else {}
