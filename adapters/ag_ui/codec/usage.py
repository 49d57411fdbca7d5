"""Token counts: canonical usage ↔ `TokenUsage`."""

from collections.abc import Sequence
from typing import Any, Final

from babelgate.canonical.json import as_object, objects_in
from babelgate.canonical.value import Json, JsonObject

_NAMES: Final = {
    "provider": "provider",
    "model": "model",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
}
"""Members that canonical usage and `TokenUsage` both have: the wire name by the canonical name."""
_DETAILS: Final = (
    ("input_tokens_details", "cached_tokens", "cachedInputTokens"),
    ("input_tokens_details", "cache_write_tokens", "cacheWriteInputTokens"),
    ("output_tokens_details", "reasoning_tokens", "reasoningTokens"),
    # Names of LangChain.
    ("input_token_details", "cache_read", "cachedInputTokens"),
    ("input_token_details", "cache_creation", "cacheWriteInputTokens"),
    ("output_token_details", "reasoning", "reasoningTokens"),
)
"""Counts in a nested object of canonical usage: the name of the object, the name of the count in it, and the wire name.
If two have the same wire name, the first one is sent."""
_READ: Final = _DETAILS[:3]


def encode_usage(usage: JsonObject) -> list[JsonObject]:
    """Return token counts as the member `usage` of an event: a list with one `TokenUsage`, or an empty list if no count
    is known."""
    encoded = {wire: usage[name] for name, wire in _NAMES.items() if _is_count(usage.get(name), name)}
    for name, member, wire in _DETAILS:
        count = as_object(usage.get(name)).get(member)
        if _is_count(count) and wire not in encoded:
            encoded[wire] = count
    return [encoded] if encoded else []


def decode_usage(value: Json) -> JsonObject:
    """Return the member `usage` of an event as one canonical usage. The counts of several models are added."""
    usages = objects_in(value)
    total: dict[str, Any] = {}
    for name, wire in _NAMES.items():
        _put(total, name, [each.get(wire) for each in usages])
    for name, member, wire in _READ:
        details = as_object(total.get(name))
        _put(details, member, [each.get(wire) for each in usages])
        if details:
            total[name] = details
    return total


def add_usage(one: JsonObject, other: JsonObject) -> JsonObject:
    """Return the sum of two canonical usages, also of their nested counts. A value that is not a count is taken from
    `other`."""
    total = dict(one)
    for name, value in other.items():
        before = total.get(name)
        if isinstance(value, dict):
            total[name] = add_usage(as_object(before), as_object(value))
        elif _is_count(before) and _is_count(value):
            total[name] = before + value
        else:
            total[name] = value
    return total


def _put(total: dict[str, Any], name: str, values: Sequence[Any]) -> None:
    """Set a member of `total` to the sum of the counts in `values`, or to the only text for `provider` and `model`.
    Without any count the member stays absent, because an unknown count is not 0."""
    counts = [value for value in values if _is_count(value)]
    texts = {value for value in values if isinstance(value, str)}
    if counts:
        total[name] = sum(counts)
    elif len(texts) == 1 and name in ("provider", "model"):
        total[name] = texts.pop()


def _is_count(value: Any, name: str = "") -> bool:
    if name in ("provider", "model"):
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool)
