"""Usage of an attempt, and its cost.

Agents report usage under various names: those of OpenAI's two APIs, LangChain and Anthropic are supported. A cost that
the agent reports is used as it is. Otherwise the cost follows from the tokens and a price table. Without either, the
cost is unknown and not zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from babelgate.conformance.bench.document import Unreadable, read_document

_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "input_tokens": ("input_tokens", "prompt_tokens", "inputTokens", "promptTokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "outputTokens", "completionTokens"),
    "total_tokens": ("total_tokens", "totalTokens"),
    "cost": ("cost", "total_cost", "cost_usd", "total_cost_usd"),
}
_MILLION: Final = 1_000_000


class PriceError(Exception):
    """Raised for an invalid price or an invalid price file. The message is one line."""


class Price(BaseModel):
    """Price of a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Prices:
    agents: Mapping[str, Price]
    """Prices by agent name. `*` applies to all other agents."""
    currency: str = "USD"

    def cost(self, agent: str, usage: Mapping[str, float]) -> float | None:
        """Return the cost of the usage, or None if it is unknown."""
        if "cost" in usage:
            return usage["cost"]
        price = self.agents.get(agent) or self.agents.get("*")
        if price is None or not ("input_tokens" in usage or "output_tokens" in usage):
            return None
        used = usage.get("input_tokens", 0) * price.input + usage.get("output_tokens", 0) * price.output
        return used / _MILLION


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def add_usages(usages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for usage in usages:
        for name, number in usage.items():
            total[name] = total.get(name, 0) + number
    return total


def parse_price(text: str) -> tuple[str, Price]:
    """Parse a price such as `agent=3/15`: a million tokens of input cost 3, of output 15. Raises PriceError."""
    name, equals, numbers = text.rpartition("=")
    bounds = numbers.split("/")
    try:
        if not (name and equals) or len(bounds) != 2:
            raise ValueError
        return name, Price(input=float(bounds[0]), output=float(bounds[1]))
    except ValueError:
        raise PriceError(
            f"{text}: a price is AGENT=INPUT/OUTPUT, each of a million tokens, as in planner=3/15"
        ) from None


class _PriceFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = "USD"
    agents: dict[str, Price]


def read_prices(path: Path) -> Prices:
    """Read prices from YAML: `currency: EUR` and `agents: {planner: {input: 3, output: 15}}`. Raises PriceError."""
    try:
        document = read_document(path)
    except Unreadable as error:
        raise PriceError(str(error)) from None
    try:
        read = _PriceFile.model_validate(document.value)
    except ValidationError as error:
        each = error.errors(include_url=False, include_input=False)[0]
        dotted = ".".join(map(str, each["loc"]))
        raise PriceError(f"{document.where(each['loc'])}: {dotted}: {each['msg'].lower()}") from None
    return Prices(read.agents, read.currency)
