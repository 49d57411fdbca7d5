"""Tests of the byte strings by which the database preselects rows."""

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from sqlalchemy import LargeBinary, literal, select

from babelgate.canonical.json import has_members
from babelgate.gateway.storage.items import encode_value
from babelgate.gateway.storage.needles import find_needles, has_needles
from tests.gateway.hubs import HubFactory

EACH_DATABASE: Final = True
VALUES: Final[list[Any]] = [
    *(1, 1.0, -7, 1.5, 1e-7, 2**50, 2**53, 1e15, 1e300, 0, -0.0, True, False, None),
    *(
        "",
        "1",
        "é 🎈",
        'quote " and \\',
        "line\n\x01\x7f",
        "a/b",
        [1, {"b": 2}],
        [],
        {},
        {"b": 1},
        {"b": {"c": "x"}, "d": 2},
    ),
]
"""Values of each kind, with notations that differ between encoders."""


@pytest.mark.parametrize("encode", [msgspec.json.encode, encode_value], ids=["msgspec", "items"])
def test_every_matching_object_contains_the_needles(encode: Callable[[Any], bytes]) -> None:
    matches = 0
    for stored in VALUES:
        body = encode({"before": 1, "a": stored, "é\n": stored})
        for wanted in VALUES:
            if has_members({"a": stored}, {"a": wanted}):
                needles = find_needles({"a": wanted, "é\n": wanted}, encode)
                assert all(needle in body for needle in needles), (stored, wanted)
                matches += 1
    assert matches > len(VALUES)


def test_a_text_that_cannot_be_stored_has_no_needle() -> None:
    assert find_needles({"a": "\ud800", "\ud800": 1, "b": 2}) == [b'"b":2']
    assert len(find_needles({f"{number}": number for number in range(100)})) < 10


async def test_the_database_selects_rows_with_all_needles(hubs: HubFactory) -> None:
    hub = await hubs.start()
    body = literal(json.dumps({"a": 1, "b": "x"}, separators=(",", ":")).encode(), LargeBinary)

    async def is_selected(members: dict[str, Any]) -> bool:
        wanted = select(literal(1)).where(*has_needles(body, find_needles(members)))
        return await hub.journal.query(lambda connection: connection.execute(wanted).first()) is not None

    assert await is_selected({"a": 1, "b": "x"})
    assert await is_selected({})
    assert not await is_selected({"a": 1, "b": "y"})
    assert not await is_selected({"a": 2})
