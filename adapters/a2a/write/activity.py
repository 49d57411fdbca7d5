"""Encoding of thoughts, tool calls, citations and usage in the forms of frameworks, because A2A has no form for them.

Each is written into metadata in the form of google-adk, of agentstack-sdk, or of both; usage also in that of kagent. A
client that does not know these forms sees a running task. `codec.marks` reads the same forms; docs/dialects.md shows
how clients interpret them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from babelgate.adapters.a2a.frameworks import agentstack, google_adk, kagent
from babelgate.adapters.a2a.frameworks.framework import as_words
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

TRAJECTORY: Final = agentstack.EXTENSIONS + agentstack.TRAJECTORY.removeprefix("/ui")
CITATION: Final = agentstack.EXTENSIONS + agentstack.CITATION.removeprefix("/ui")


def encode_thought(part: ReasoningPart) -> tuple[TextPart, JsonObject]:
    """Return the text part that shows a thought of the model, and the metadata for the message that contains the
    part."""
    metadata = {**part.metadata, google_adk.THOUGHT: True}
    text_part = TextPart(text=part.text, media_type=part.media_type, metadata=metadata)
    return text_part, {TRAJECTORY: {"title": "thought", "content": part.text}}


def encode_call(event: ToolStarted) -> tuple[DataPart, JsonObject]:
    """Return the data part that shows a tool call, and the metadata for the message that contains the part."""
    data: JsonObject = {"id": event.call_id or "", "name": event.name}
    return _genai_part("function_call", data, "args", event.input), _trajectory(f"{event.name} (request)", event.input)


def as_call(part: ToolCallPart) -> ToolStarted:
    """Return a tool call that is a part of a canonical message as the event of a started tool."""
    try:
        arguments: Json = json.loads(part.arguments) if part.arguments else None
    except (ValueError, RecursionError):
        arguments = part.arguments
    return ToolStarted(call_id=part.call_id, name=part.name, input=arguments)


def as_result(part: ToolResultPart, name: str) -> ToolEnded:
    """Return the result of a tool that is a part of a canonical message as the event of an ended tool. `name` is that
    of the tool."""
    if not part.error:
        return ToolEnded(call_id=part.call_id, name=name, output=part.output)
    fault = Fault(code=FaultCode.AGENT_FAILED, message=as_words(part.output))
    return ToolEnded(call_id=part.call_id, name=name, fault=fault)


def encode_result(event: ToolEnded) -> tuple[DataPart, JsonObject]:
    """Return the data part that shows the result of a tool call, and the metadata for the message that contains the
    part."""
    data: JsonObject = {"id": event.call_id or "", "name": event.name}
    if event.fault is None:
        part = _genai_part("function_response", data, "response", event.output)
        return part, _trajectory(f"{event.name} (response)", event.output)
    response: JsonObject = {"error": event.fault.message}
    if event.output is not None:
        response["result"] = event.output
    part = _genai_part("function_response", data, "response", response, member="result")
    return part, _trajectory(f"{event.name} (error)", event.fault.message)


def _genai_part(kind: str, data: JsonObject, name: str, value: Json, *, member: str | None = None) -> DataPart:
    """Return the data part for a call or a result in the form of Google GenAI. `kind` is its type, `data` its other
    members, and `value` the arguments or the result, under `name`.

    google-adk 2.13.0 requires that the arguments or the result are an object. If the object is only a wrapper, `member`
    is the name of the member with the original value.
    """
    metadata: JsonObject = {google_adk.PART_TYPE: kind, kagent.PART_TYPE: kind}
    if not isinstance(value, dict):
        value, member = ({} if value is None else {"result": value}), "result"
    if member is not None:
        metadata["babelgate"] = {"value": member}
    return DataPart(data={**data, name: value}, metadata=metadata)


def _trajectory(title: str, content: Json) -> JsonObject:
    return {TRAJECTORY: {"title": title, "content": as_words(content)}}


def encode_citations(citations: Sequence[AnnotationPart]) -> JsonObject:
    """Return the metadata with these citations for an artifact or a message, in the form of agentstack-sdk."""
    encoded: list[JsonObject] = [
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
        for part in citations
    ]
    return {CITATION: {"citations": encoded}}


def is_cited(metadata: JsonObject) -> bool:
    """Return True if the metadata of an artifact already contain citations in the form of google-adk or
    agentstack-sdk."""
    return any(
        key in (google_adk.CITATIONS, google_adk.GROUNDING) or key.endswith(agentstack.CITATION) for key in metadata
    )


_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "input_tokens": ("promptTokenCount", "inputTokens"),
    "output_tokens": ("candidatesTokenCount", "outputTokens"),
    "total_tokens": ("totalTokenCount", "totalTokens"),
    "input_tokens_details.cached_tokens": ("cachedContentTokenCount", "cachedInputTokens"),
    "output_tokens_details.reasoning_tokens": ("thoughtsTokenCount", "reasoningTokens"),
}
"""Names of token counts in google-adk 2.13.0 and in kagent 1.0.0a17, by their names in the Responses API."""


def encode_usage(usage: JsonObject) -> JsonObject:
    """Return the metadata with the token usage for the status that ends a task. Return an empty object if the usage has
    no counts."""
    adk: JsonObject = {}
    kagents: JsonObject = {}
    for path, (adk_name, kagent_name) in _NAMES.items():
        name, _, detail = path.partition(".")
        count: Json = usage.get(name)
        if detail:
            count = cast("JsonObject", count).get(detail) if isinstance(count, dict) else None
        if isinstance(count, int):
            adk[adk_name], kagents[kagent_name] = count, count
    return {google_adk.USAGE: adk, kagent.USAGE: kagents} if adk else {}
