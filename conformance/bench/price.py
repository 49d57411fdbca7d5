"""Cost of an attempt.

A cost that the agent reports is used as it is. Otherwise the cost follows from the tokens and a price table. Without
either, the cost is unknown and not zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from babelgate.conformance.bench.document import Unreadable, read_document
from babelgate.usage import cost_of


class PriceError(Exception):
    """Error for an invalid price or an invalid price file. The message is one line."""


class Price(BaseModel):
    """Price of a million input tokens, and of a million output tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Prices:
    agents: Mapping[str, Price]
    """Prices by agent name. `*` applies to all other agents."""
    currency: str = "USD"

    def cost(self, agent: str, usage: Mapping[str, float]) -> float | None:
        """Return the cost of an agent's usage: the cost that the agent reported, or else that of its tokens at the
        agent's price. Return None if neither is known."""
        price = self.agents.get(agent) or self.agents.get("*")
        if price is None:
            return usage.get("cost")
        return cost_of(usage, price.input, price.output)


def parse_price(text: str) -> tuple[str, Price]:
    """Parse a price such as `agent=3/15`: a million tokens of input cost 3, of output 15. Raises PriceError for any
    other form."""
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
    """Read prices from YAML: `currency: EUR` and `agents: {planner: {input: 3, output: 15}}`. Raises PriceError if the
    file cannot be read or has another form."""
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
