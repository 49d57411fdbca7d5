"""Tests of the byte strings by which the database preselects rows."""

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from sqlalchemy import Column, LargeBinary, MetaData, Table, create_engine, insert, literal, select

from babelgate.canonical.json import has_members
from babelgate.canonical.state import RunStatus
from babelgate.canonical.thread import Run
from babelgate.gateway.ids import new_id
from babelgate.gateway.storage.items import encode_value
from babelgate.gateway.storage.needles import find_needles, has_needles, run_conditions
from babelgate.gateway.storage.short_form import RUN_WORDS, encode_row
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


def test_every_run_with_the_wanted_metadata_is_selected() -> None:
    """Use also names and values that the compact form of a row replaces."""
    words = [word.decode() for word in RUN_WORDS]
    names = sorted({"a", *(name for word in words for name in word.split('"') if name.isidentifier())})
    values = [*VALUES, *words, *names, 70, 7, 7.0, 0.5, "c1", "c10", 'ends with a quote"', "ends with a comma,"]
    run = Run(
        run_id=new_id(),
        task_id=new_id(),
        thread_id=new_id(),
        status=RunStatus.SUCCESS,
        cause="input",
        created_at=1,
        first_seq=1,
        last_seq=9,
    )
    stored = [{"a": value, "b": value, name: value, "z": value} for value in values for name in names]
    bodies = {encode_row(run.replace(metadata=each)): each for each in stored}
    table = Table("run", MetaData(), Column("body", LargeBinary))
    engine = create_engine("sqlite://")
    needless = 0
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(insert(table), [{"body": body} for body in bodies])
        for wanted in ({name: value, "z": value} for value in values for name in ("a", "agent", "first_seq")):
            conditions = run_conditions(table.c.body, wanted)
            selected = set(connection.execute(select(table.c.body).where(*conditions)).scalars())
            matching = {body for body, metadata in bodies.items() if has_members(metadata, wanted)}
            assert matching <= selected, wanted
            needless += len(selected - matching) if isinstance(wanted.get("a"), str) else 0
    engine.dispose()
    assert needless == 0
