"""Extraction of the values of each feature from all that a caller received, at any place in its protocol. Tests compare
these values instead of texts."""

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from babelgate.canonical import Feature

Wire = dict[str, Any]

_URLS: Final = ("content_url", "url", "uri", "fileWithUri")
_TYPES: Final = ("content_type", "mediaType", "mimeType", "mime_type", "media_type")
_COUNTS: Final = (
    ("input_tokens", "output_tokens", "total_tokens"),
    ("prompt_tokens", "completion_tokens", "total_tokens"),
    ("inputTokens", "outputTokens", "totalTokens"),
    ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
)


def messages_in(body: bytes | bytearray) -> Iterator[Any]:
    """Yield each JSON object in bodies and streams."""
    text, decoder, at = body.decode(errors="replace"), json.JSONDecoder(), 0
    while (start := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, start)
        except ValueError:  # inside a file
            at = start + 1
        else:
            yield value


def objects_in(value: Any) -> Iterator[Wire]:
    """Yield all nested objects except those that describe losses."""
    if isinstance(value, dict):
        yield value  # pyright: ignore[reportUnknownVariableType]
        value = [member for name, member in value.items() if name != "loss"]  # pyright: ignore[reportUnknownVariableType]
    for member in value if isinstance(value, list) else ():  # pyright: ignore[reportUnknownVariableType]
        yield from objects_in(member)


def values_in(body: bytes | bytearray) -> dict[Feature, list[Any]]:
    """Return the values of each feature, each value once, in the order of their first appearance."""
    found: dict[Feature, list[Any]] = {}
    for message in messages_in(body):
        for part in objects_in(message):
            for feature, value in _values_of(part):
                if value not in found.setdefault(feature, []):
                    found[feature].append(value)
    return found


def _values_of(part: Wire) -> Iterator[tuple[Feature, Any]]:
    for url in (part[name] for name in _URLS if isinstance(part.get(name), str)):
        if "example.com" in url:
            media_types = [part[name] for name in _TYPES if name in part]
            yield Feature.FILE_URL, (url, media_types[0] if media_types else None)
    if part.get("type") == "url" and "example.com" in str(part.get("value")):  # AG-UI
        yield Feature.FILE_URL, (part["value"], part.get("mimeType"))
    refused = _refusal_of(part)
    if refused:
        yield Feature.REFUSAL, refused
    step = _step_of(part)
    if step is not None:
        yield Feature.STEP, step
    for piece in _pieces_of(part):
        yield Feature.ARTIFACT_APPEND, piece
    if "cache_read_input_tokens" in part:  # Anthropic, which counts nothing before the end
        counts = part["input_tokens"], part["output_tokens"]
        yield from ((Feature.USAGE, (*counts, sum(counts))),) if any(counts) else ()
        return
    for names in _COUNTS:
        if names[0] in part:
            yield Feature.USAGE, tuple(part.get(name) for name in names)


def _gateway_member(part: Wire) -> Wire:
    """Return the gateway's own member of a part, which is in the part or in its metadata."""
    about = part.get("metadata")
    found = part.get("babelgate") or (about.get("babelgate") if isinstance(about, dict) else None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _marks(part: Wire) -> Wire:
    """Return the gateway's members in the `_meta` of an update of the Agent Client Protocol."""
    return part.get("_meta", {}).get("babelgate", {}) if "sessionUpdate" in part else {}


def _refusal_of(part: Wire) -> str | None:
    """Return the text of a refusal that is marked as one."""
    if part.get("kind") == "refusal" and "text" in part:
        return part["text"]
    if _marks(part).get("kind") == "refusal":
        return part["content"]["text"]
    if isinstance(part.get("_meta"), dict) and part["_meta"].get("babelgate", {}).get("refusal"):  # MCP
        return part["text"]
    if part.get("providerMetadata", {}).get("babelgate", {}).get("refusal") and "text" in part:
        return part["text"]
    if part.get("type") == "text" and _gateway_member(part).get("event", {}).get("part", {}).get("kind") == "refusal":
        return part["text"]
    if _gateway_member(part).get("kind") == "refusal":
        return part.get("text", part.get("content", part.get("delta")))
    refusal = part.get("refusal")
    return refusal if isinstance(refusal, str) else None


def _step_of(part: Wire) -> str | None:
    """Return the name of a step that starts."""
    if part.get("event_type") == "step_started":
        return part["payload"]["name"]
    if part.get("type") == "step_started" and "name" in part:  # MCP
        return part["name"]
    if part.get("type") == "STEP_STARTED":
        return part["stepName"]
    if part.get("kind") == "step_started":
        return part["name"]
    if "step" in _marks(part) and _marks(part)["state"] == "started":
        return _marks(part)["name"]
    if part.get("type") == "data-step" and part["data"]["state"] == "started":
        return part["data"]["name"]
    return part["metadata"]["message"] if _gateway_member(part).get("kind") == "step" else None


def _mcp_artifact(part: Wire) -> Wire:
    """Return the mark of an artifact in a text block of MCP."""
    meta: Any = part.get("_meta")
    is_text = part.get("type") == "text" and isinstance(meta, dict)
    return cast("Wire", meta).get("babelgate", {}).get("artifact", {}) if is_text else {}


def _pieces_of(part: Wire) -> Iterator[str]:
    """Yield the pieces of an artifact as they arrived."""
    sizes: list[int] = _mcp_artifact(part).get("pieces", [])
    if sizes:
        start = 0
        for size in sizes:
            yield part["text"][start : start + size]
            start += size
        return
    if "pieces" in _gateway_member(part):
        start = 0
        for size in _gateway_member(part)["pieces"]:
            yield part["content"][start : start + size]
            start += size
        return
    if _marks(part).get("artifact", {}).get("name") == "pieces.txt":
        if "text" in part["content"]:
            yield part["content"]["text"]
        return
    if part.get("kind") == "artifact_added":  # Anthropic
        part = {"artifact": part}
    if part.get("type") == "data-artifact":
        part = {"artifact": part["data"]}
    if part.get("activityType") == "babelgate.artifact":
        yield from (each["value"]["text"] for each in part.get("patch", ()) if isinstance(each["value"], dict))
        yield from (each["text"] for each in part.get("content", {}).get("parts", ()) if "text" in each)
        return
    artifact: Wire = part.get("payload", {}) if part.get("event_type") == "artifact_added" else part.get("artifact", {})  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(artifact, dict) or artifact.get("name") != "pieces.txt":  # pyright: ignore[reportUnnecessaryIsInstance]
        return
    pieces: list[Wire] = (
        [artifact["part"]] if "part" in artifact else artifact.get("parts", artifact.get("content", []))
    )
    texts = [piece["text"] for piece in pieces if "text" in piece]
    if texts:
        yield "".join(texts)
