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
async def test_the_pieces_are_the_json_of_the_whole(value: Any) -> None:
    pieces = [piece async for piece in encode_in_pieces(value)]
    assert b"".join(pieces) == to_json(value)


class Said(BaseModel):
    model_config = ConfigDict(extra="allow")
    text: str
    about: dict[str, Any] | None = None
    parts: list["Said"] = []


@pytest.mark.parametrize("text", ["é", LONG])
async def test_the_pieces_of_a_model_are_its_json(text: str) -> None:
    parts = [Said(text=text), *(Said.model_validate({"text": "a", "more": [number]}) for number in range(5000))]
    said = Said.model_validate({"text": text, "about": {"a": LARGE}, "parts": parts, "other": [Said(text=LONG)]})
    made = encode(said)
    assert isinstance(made, LargeJson)
    assert await as_bytes(made) == said.model_dump_json().encode()


async def test_one_long_text_is_encoded_in_pieces_too() -> None:
    pieces = [piece async for piece in encode_in_pieces({"text": LONG * 10})]
    assert max(map(len, pieces)) < len(to_json(LONG)) * 2


async def test_what_is_encoded_is_counted_and_joined() -> None:
    for value in ({"a": 1}, LARGE):
        made = encode(value)
        assert isinstance(made, LargeJson) is (value is LARGE)
        assert await as_bytes(made) == to_json(value)
        assert await size_of(made) == len(to_json(value))


def test_what_is_large_is_answered_in_pieces() -> None:
    for small in ({}, None, {"a": "x" * 50_000}, [0] * 1500):
        assert not is_large(small)
        assert not isinstance(json_response(small), Pieces)
    for large in (LARGE, LONG, [0] * 5000, {"a": [{"b": "x" * 300_000}]}, dict.fromkeys(map(str, range(5000)))):
        assert is_large(large)
    for long in (LARGE, LONG, {"a": [{"b": "x" * 300_000}]}):
        assert isinstance(json_response(long), Pieces)
    for many in ([0] * 5000, dict.fromkeys(map(str, range(5000)))):
        assert json_response(many).content == to_json(many)
