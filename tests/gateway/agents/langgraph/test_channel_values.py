"""Tests of the stored form of channel values: whole first, then differences, with short chains."""

import random
from typing import Any, cast

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from babelgate.gateway.agents.langgraph.channel_values import KeptValue, decode_value, encode_value
from babelgate.gateway.storage.stored_checkpoint import ChannelValue

SERDE = JsonPlusSerializer()


class Kept:
    """Stored values of one channel."""

    def __init__(self) -> None:
        self.rows: dict[str, ChannelValue] = {}
        self.newest: KeptValue | None = None

    def put(self, value: Any, base: KeptValue | None = None) -> ChannelValue:
        name = str(len(self.rows))
        self.newest, row = encode_value(SERDE, "c", name, len(self.rows), value, base or self.newest)
        self.rows[name] = row
        return row

    def chain(self, name: str) -> list[ChannelValue]:
        found: list[ChannelValue] = []
        at: str | None = name
        while at is not None:
            found.append(self.rows[at])
            at = found[-1].base_id
        return found

    def get(self, name: str) -> Any:
        description, value = decode_value(SERDE, 0, self.chain(name))
        assert description.checkpoint_id == name
        return value


def growing_list(count: int) -> Any:
    return [f"item {number} " * 20 for number in range(count)]


def growing_object(count: int) -> Any:
    return {f"{number}": f"{number} " * 50 for number in range(count)}


@pytest.mark.parametrize("make", [growing_list, growing_object])
def test_growing_values_take_linear_space_and_reads(make: Any) -> None:
    channel = Kept()
    for count in range(200):
        channel.put(make(count))
    size = len(SERDE.dumps_typed(make(199))[1])
    assert sum(len(row.body) for row in channel.rows.values()) < 4 * size
    for name in ("0", "1", "17", "120", "199"):
        assert channel.get(name) == make(int(name))
        assert sum(len(row.body) for row in channel.chain(name)) <= 3 * len(SERDE.dumps_typed(make(int(name)))[1]) + 100


def test_any_value_is_read_back_after_any_other_value() -> None:
    chance = random.Random(7)
    channel = Kept()
    values: list[Any] = []
    for _ in range(300):
        names = [str(chance.randrange(9)) for _ in range(chance.randrange(6))]
        value: Any = chance.choice([names, dict.fromkeys(names, chance.randrange(3)), {1: 2}, None, "text", {"a", "b"}])
        values.append(value)
        channel.put(value)
    for number, value in enumerate(values):
        decoded = channel.get(str(number))
        assert decoded == value
        assert type(decoded) is type(value)
        assert not isinstance(value, dict) or list(decoded) == list(cast("dict[str, Any]", value))


def test_two_branches_of_one_value_are_independent() -> None:
    channel = Kept()
    channel.put(["begun " * 9, "more " * 9])
    base = channel.newest
    channel.put(["begun " * 9, "more " * 9, "one"], base)
    channel.put(["begun " * 9, "more " * 9, "two"], base)
    assert [channel.get("1")[-1], channel.get("2")[-1]] == ["one", "two"]
    assert [row.base_id for row in channel.rows.values()] == [None, "0", "0"]
