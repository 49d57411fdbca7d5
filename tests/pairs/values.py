"""What stands in everything that a caller was told, wherever its protocol has it: not words, but what they are."""

import json
from collections.abc import Iterator
from typing import Any, Final

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


def messages_in(told: bytes | bytearray) -> Iterator[Any]:
    """Each JSON object of bodies and of streams."""
    text, decoder, at = told.decode(errors="replace"), json.JSONDecoder(), 0
    while (start := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, start)
        except ValueError:  # of a file
            at = start + 1
        else:
            yield value


def objects_in(value: Any) -> Iterator[Wire]:
    """All but those that say what got lost."""
    if isinstance(value, dict):
        yield value  # pyright: ignore[reportUnknownVariableType]
        value = [member for name, member in value.items() if name != "loss"]  # pyright: ignore[reportUnknownVariableType]
    for member in value if isinstance(value, list) else ():  # pyright: ignore[reportUnknownVariableType]
        yield from objects_in(member)


def values_in(told: bytes | bytearray) -> dict[Feature, list[Any]]:
    """By feature, each value once, in the order in which they were told first."""
    found: dict[Feature, list[Any]] = {}
    for message in messages_in(told):
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
    refused = _refusal_of(part)
    if refused:
        yield Feature.REFUSAL, refused
    step = _step_of(part)
    if step is not None:
        yield Feature.STEP, step
    for piece in _pieces_of(part):
        yield Feature.ARTIFACT_APPEND, piece
    for names in _COUNTS:
        if names[0] in part:
            yield Feature.USAGE, tuple(part.get(name) for name in names)


def _own(part: Wire) -> Wire:
    """What stands in a member of the gateway's own, beside or in the metadata."""
    about = part.get("metadata")
    found = part.get("babelgate") or (about.get("babelgate") if isinstance(about, dict) else None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _refusal_of(part: Wire) -> str | None:
    """A text is one where it is marked."""
    if part.get("kind") == "refusal" and "text" in part:
        return part["text"]
    if _own(part).get("kind") == "refusal":
        return part.get("text", part.get("content"))
    told = part.get("refusal")
    return told if isinstance(told, str) else None


def _step_of(part: Wire) -> str | None:
    """The name of one that begins."""
    if part.get("event_type") == "step_started":
        return part["payload"]["name"]
    if part.get("kind") == "step_started":
        return part["name"]
    return part["metadata"]["message"] if _own(part).get("kind") == "step" else None


def _pieces_of(part: Wire) -> Iterator[str]:
    """Of an artifact, as they came."""
    if "pieces" in _own(part):
        start = 0
        for size in _own(part)["pieces"]:
            yield part["content"][start : start + size]
            start += size
        return
    told: Wire = part.get("payload", {}) if part.get("event_type") == "artifact_added" else part.get("artifact", {})  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(told, dict) or told.get("name") != "pieces.txt":  # pyright: ignore[reportUnnecessaryIsInstance]
        return
    pieces: list[Wire] = [told["part"]] if "part" in told else told.get("parts", told.get("content", []))
    texts = [piece["text"] for piece in pieces if "text" in piece]
    if texts:
        yield "".join(texts)
