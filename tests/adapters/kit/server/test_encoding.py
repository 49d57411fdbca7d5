from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from babelgate.adapters.kit.server.encoding import (
    LargeJson,
    as_bytes,
    encode,
    encode_in_pieces,
    is_large,
    json_response,
    size_of,
)
from babelgate.adapters.kit.server.listed import Pieces

LONG = 'é"\u2028' * 100_000
LARGE: Any = {
    "": [],
    "é": {},
    "long": LONG,
    LONG: [LONG, {"a": LONG, "b": None}, (), (1, LONG)],
    "many": [[0, 1.5, True], {"a": "b"}] * 10_000,
    "nested": {"a": [{"b": [{"c": [LONG]}]}]},
}


VALUES: list[Any] = [LARGE, [LARGE, LARGE], LONG, {}, [], None, 0, "a", {"a": [1]}, [{}] * 100_000]


@pytest.mark.parametrize("value", VALUES)
async def test_the_pieces_of_a_value_are_its_json(value: Any) -> None:
    pieces = [piece async for piece in encode_in_pieces(value)]
    assert b"".join(pieces) == to_json(value)


class Node(BaseModel):
    model_config = ConfigDict(extra="allow")
    text: str
    about: dict[str, Any] | None = None
    parts: list["Node"] = []


@pytest.mark.parametrize("text", ["é", LONG])
async def test_the_pieces_of_a_model_are_its_json(text: str) -> None:
    parts = [Node(text=text), *(Node.model_validate({"text": "a", "more": [number]}) for number in range(5000))]
    node = Node.model_validate({"text": text, "about": {"a": LARGE}, "parts": parts, "other": [Node(text=LONG)]})
    encoded = encode(node)
    assert isinstance(encoded, LargeJson)
    assert await as_bytes(encoded) == node.model_dump_json().encode()


async def test_one_long_text_is_encoded_in_pieces() -> None:
    pieces = [piece async for piece in encode_in_pieces({"text": LONG * 10})]
    assert max(map(len, pieces)) < len(to_json(LONG)) * 2


async def test_an_encoded_value_has_its_size_and_bytes() -> None:
    for value in ({"a": 1}, LARGE):
        encoded = encode(value)
        assert isinstance(encoded, LargeJson) is (value is LARGE)
        assert await as_bytes(encoded) == to_json(value)
        assert await size_of(encoded) == len(to_json(value))


def test_large_values_are_answered_in_pieces() -> None:
    for small in ({}, None, {"a": "x" * 50_000}, [0] * 1500):
        assert not is_large(small)
        assert not isinstance(json_response(small), Pieces)
    for large in (LARGE, LONG, [0] * 5000, {"a": [{"b": "x" * 300_000}]}, dict.fromkeys(map(str, range(5000)))):
        assert is_large(large)
    for long in (LARGE, LONG, {"a": [{"b": "x" * 300_000}]}):
        assert isinstance(json_response(long), Pieces)
    for many in ([0] * 5000, dict.fromkeys(map(str, range(5000)))):
        assert json_response(many).content == to_json(many)
