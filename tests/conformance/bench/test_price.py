"""Token usage in many spellings, and its cost."""

from pathlib import Path
from typing import Any

import pytest

from babelgate.conformance.bench.price import Price, PriceError, Prices, parse_price, read_prices
from babelgate.usage import add_usages, normal

PRICE = Price(input=3, output=15)


@pytest.mark.parametrize(
    ("reported", "normalized"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}),
        ({"inputTokens": 3, "totalTokens": 9}, {"input_tokens": 3, "total_tokens": 9}),
        ({"input_tokens": 1, "prompt_tokens": 100}, {"input_tokens": 1, "total_tokens": 1}),
        ({"total_cost_usd": 0.5}, {"cost": 0.5}),
        (
            {"gpt-x": {"input_tokens": 1, "output_tokens": 2}, "gpt-y": {"input_tokens": 10}},
            {"input_tokens": 11, "output_tokens": 2, "total_tokens": 13},
        ),
        ({"input_tokens": True, "output_tokens": "7", "total_tokens": -1}, {}),
        ({"input_tokens": float("nan"), "output_tokens": float("inf")}, {}),
        ({}, {}),
    ],
)
def test_usage_is_read_in_many_spellings(reported: dict[str, Any], normalized: dict[str, float]) -> None:
    assert normal(reported) == normalized


def test_usages_are_added_by_name() -> None:
    assert add_usages([{"a": 1, "b": 2}, {}, {"b": 3}]) == {"a": 1, "b": 5}


def test_reported_cost_takes_precedence_over_the_price() -> None:
    prices = Prices({"one": PRICE, "*": Price(input=1, output=1)})
    used = {"input_tokens": 1_000_000.0, "output_tokens": 2_000_000.0}
    assert prices.cost("one", {**used, "cost": 0.5}) == 0.5
    assert prices.cost("one", used) == 33
    assert prices.cost("another", used) == 3
    assert prices.cost("one", {"input_tokens": 1_000_000.0}) == 3


def test_unknown_cost_is_none() -> None:
    assert Prices({}).cost("one", {"input_tokens": 1}) is None
    assert Prices({"one": PRICE}).cost("one", {"total_tokens": 9}) is None, "the two have different prices"
    assert Prices({"one": PRICE}).cost("one", {}) is None


def test_price_of_the_command_line_is_parsed() -> None:
    assert parse_price("one=3/15") == ("one", PRICE)
    assert parse_price("a=b=0/0.5") == ("a=b", Price(input=0, output=0.5))


@pytest.mark.parametrize(
    "text", ["one", "one=3", "=3/15", "one=3/15/1", "one=x/1", "one=-1/1", "one=nan/1", "one=inf/1"]
)
def test_invalid_price_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PriceError, match=r"as in planner=3/15"):
        parse_price(text)


def test_file_of_prices_is_read(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text('currency: EUR\nagents:\n  one: {input: 3, output: 15}\n  "*": {input: 1, output: 2}\n')
    assert read_prices(file) == Prices({"one": PRICE, "*": Price(input=1, output=2)}, "EUR")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents:\n  one: {input: 3}\n", r"prices.yaml:2: agents.one.output: field required"),
        ("agents: {}\nmoney: EUR\n", r"prices.yaml:2: money: extra inputs"),
        ("agents: [", r"prices.yaml:1: it is not YAML"),
    ],
)
def test_error_for_a_mistake_in_prices_names_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(PriceError, match=words):
        read_prices(file)


def test_missing_file_of_prices_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match="cannot be read"):
        read_prices(tmp_path / "gone.yaml")
