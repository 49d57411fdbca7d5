"""Usage that agents report: the numbers of tokens under standard names, and what they cost.

Agents report usage under various names: those of OpenAI's two APIs, LangChain and Anthropic are supported. The gateway
and the conformance checks share this module, so that both count the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "input_tokens": ("input_tokens", "prompt_tokens", "inputTokens", "promptTokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "outputTokens", "completionTokens"),
    "total_tokens": ("total_tokens", "totalTokens"),
    "cost": ("cost", "total_cost", "cost_usd", "total_cost_usd"),
}
MILLION: Final = 1_000_000


def normal(usage: Mapping[str, Any]) -> dict[str, float]:
    """Return the usage under standard names. Usage that is reported by model is summed."""
    found: dict[str, float] = {}
    for name, words in _WORDS.items():
        number = next((usage[word] for word in words if _is_number(usage.get(word))), None)
        if number is not None:
            found[name] = float(number)
    if not found:
        parts = [cast("dict[str, Any]", each) for each in usage.values() if isinstance(each, dict)]
        found = add_usages(map(normal, parts))
    if "total_tokens" not in found and ("input_tokens" in found or "output_tokens" in found):
        found["total_tokens"] = found.get("input_tokens", 0) + found.get("output_tokens", 0)
    return found


def cost_of(usage: Mapping[str, float], input_price: float, output_price: float) -> float | None:
    """Return the cost of usage under standard names: the reported one, or that of the tokens at these prices of a
    million. Return None if it is unknown."""
    if "cost" in usage:
        return usage["cost"]
    if not ("input_tokens" in usage or "output_tokens" in usage):
        return None
    return (usage.get("input_tokens", 0) * input_price + usage.get("output_tokens", 0) * output_price) / MILLION


def add_usages(usages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of usages under standard names."""
    total: dict[str, float] = {}
    for usage in usages:
        for name, number in usage.items():
            total[name] = total.get(name, 0) + number
    return total


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
