"""Token counts: canonical usage ↔ `usage`."""

from typing import Any, Final

from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

_READ: Final = "cache_read_input_tokens"
_WRITTEN: Final = "cache_creation_input_tokens"


def encode_usage(usage: JsonObject) -> JsonObject:
    """Return token counts as the API has them, with every member that its schema requires. Counts that are not known
    are 0. Cached tokens are not included in `input_tokens`, but counted separately."""
    details = as_object(usage.get("input_tokens_details"))
    read, written = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    return {
        "input_tokens": max(_count(usage.get("input_tokens")) - read - written, 0),
        "output_tokens": _count(usage.get("output_tokens")),
        _WRITTEN: written,
        _READ: read,
        "cache_creation": None,
        "server_tool_use": None,
        "service_tier": None,
        "inference_geo": None,
        "output_tokens_details": None,
    }


def decode_usage(usage: JsonObject) -> JsonObject:
    """Return the counts of another server as canonical usage. Counts that it did not report are left out."""
    if not usage:
        return {}
    read, written = _count(usage.get(_READ)), _count(usage.get(_WRITTEN))
    counts: JsonObject = {}
    if is_count(usage.get("input_tokens")):
        counts["input_tokens"] = usage["input_tokens"] + read + written
    if is_count(usage.get("output_tokens")):
        counts["output_tokens"] = usage["output_tokens"]
    if len(counts) == 2:
        counts["total_tokens"] = counts["input_tokens"] + counts["output_tokens"]
    if read or written:
        counts["input_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    return counts


def is_whole(usage: JsonObject) -> bool:
    """Return True if a canonical usage is equal after it is encoded by `encode_usage` and decoded by `decode_usage`.
    Also True for an empty usage."""
    return not usage or decode_usage(encode_usage(usage)) == usage


def is_count(value: Any) -> bool:
    """Return True for an integer of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(value: Any) -> int:
    return value if is_count(value) else 0
