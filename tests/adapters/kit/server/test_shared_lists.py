"""Values with a shared list are encoded as if they had a separate one."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from babelgate.adapters.kit.server import shared_lists
from babelgate.adapters.kit.server.shared_lists import MARK, SharedList, ValueWithList, with_list

LONG = "long" * 100_000


async def encode_with_list(shared: SharedList[Any], items: Sequence[Any]) -> bytes:
    value = with_list({"a": [1], "list": MARK, "b": None}, await shared.encode(items))
    assert isinstance(value, ValueWithList)
    return b"".join([piece async for piece in value.pieces()])


async def test_each_item_is_converted_once() -> None:
    converted: list[object] = []

    def convert(item: Any) -> Any:
        converted.append(item)
        return {"item": item}

    shared, items = SharedList[Any](convert), [{"number": number} for number in range(300)]
    for length in (300, 200, 0, 300):
        whole = {"a": [1], "list": [{"item": each} for each in items[:length]], "b": None}
        assert await encode_with_list(shared, items[:length]) == to_json(whole)
    assert converted == items
    others = [*items[:10], {"number": -1}, *items[11:]]
    assert json.loads(await encode_with_list(shared, others))["list"][9:12] == [{"item": each} for each in others[9:12]]
    assert len(converted) == 300 + 290


@given(st.lists(st.lists(st.sampled_from(["a", "é", LONG, 1.5, None, True]), max_size=6), max_size=4))
async def test_items_of_any_size_are_encoded(lists: list[list[object]]) -> None:
    shared = SharedList[Any](lambda item: [item])
    for items in lists:
        assert await encode_with_list(shared, items) == to_json(
            {"a": [1], "list": [[item] for item in items], "b": None}
        )


async def test_a_long_list_is_encoded_in_pieces(monkeypatch: Any) -> None:
    monkeypatch.setattr(shared_lists, "_PIECE", 1000)
    value = with_list([MARK], await SharedList[Any](str).encode(range(5000)))
    assert isinstance(value, ValueWithList)
    pieces = [piece async for piece in value.pieces()]
    assert b"".join(pieces) == to_json([list(map(str, range(5000)))])
    assert max(map(len, pieces)) < 3000


async def test_a_value_without_a_mark_is_not_split() -> None:
    assert with_list({"a": 1}, [b"1"]) == b'{"a":1}'
    assert with_list({"a": LONG, "list": MARK}, [b"1"]) is None
