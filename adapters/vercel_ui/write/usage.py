"""Token counts of a run, under their names in the AI SDK."""

from collections.abc import Sequence
from typing import Final

from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

_NAMES: Final = {
    "inputTokens": ("input_tokens", "prompt_tokens"),
    "outputTokens": ("output_tokens", "completion_tokens"),
    "totalTokens": ("total_tokens",),
}
_DETAILS: Final = {
    "reasoningTokens": (("output_tokens_details", "completion_tokens_details"), "reasoning_tokens"),
    "cachedInputTokens": (("input_tokens_details", "prompt_tokens_details"), "cached_tokens"),
}


def encode_usage(usage: JsonObject) -> JsonObject:
    """Return token counts in the form `LanguageModelUsage` of ai 5 to 7, for example `{"inputTokens": 12}`. Counts that
    the agent did not report are left out."""
    encoded: JsonObject = {}
    for name, sources in _NAMES.items():
        _add_first(encoded, name, [usage.get(source) for source in sources])
    for name, (places, member) in _DETAILS.items():
        _add_first(encoded, name, [as_object(usage.get(place)).get(member) for place in places])
    return encoded


def _add_first(encoded: JsonObject, name: str, counts: Sequence[object]) -> None:
    """Set `encoded[name]` to the first of `counts` that is an integer, if there is one."""
    for count in counts:
        if isinstance(count, int):
            encoded[name] = count
            return
