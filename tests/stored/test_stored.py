"""Tests that stored data stays readable: databases of earlier commits have the same views in every protocol."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from babelgate.canonical.event import Event
from babelgate.canonical.stored import UNKNOWN, decode_event
from tests.stored.stage import HERE, Fixture

COMMITS = sorted(path.parent.name for path in HERE.glob("*/gateway.db.gz"))
KINDS = {kind.kind for kind in get_args(Event)}
LATER = {"states_pruned", "run_changed"}
"""Kinds of events that the newest of these commits did not have."""


@pytest.mark.parametrize("commit", COMMITS)
def test_every_view_is_what_it_was(commit: str, tmp_path: Path, accept: bool) -> None:
    fixture = Fixture(HERE / commit)
    before = fixture.read()
    now = fixture.look(tmp_path / "copy", langgraph="langgraph" in before, aief="aief" in before)
    if accept:
        fixture.write(now)
        return
    assert now.keys() == before.keys()
    for protocol, views in before.items():
        assert now[protocol].keys() == views.keys()
        for request, view in views.items():
            assert now[protocol][request] == view, f"{request}: {_where(now[protocol][request], view)}"


def _where(one: Any, other: Any) -> str:
    """Return the first member in which two values differ, with both of its values."""
    now, before = dict(_members(one)), dict(_members(other))
    path = next(path for path in {**before, **now} if now.get(path, ...) != before.get(path, ...))
    return f"{path}: {now.get(path)!r:.300}, was {before.get(path)!r:.300}"


def _members(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every member that has no members itself."""
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        members = list(enumerate(cast("list[Any]", value)))
    if not members:
        yield path, value
    for name, member in members:
        yield from _members(member, f"{path}.{name}")


def test_the_newest_database_holds_every_kind_of_event(tmp_path: Path) -> None:
    Fixture(HERE / "9962417").unpack(tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy" / "gateway.db")) as connection:
        stored = {json.loads(body)["kind"] for (body,) in connection.execute("SELECT body FROM event")}
    assert stored == KINDS - LATER


def test_what_the_newest_database_holds_is_read_without_a_change(tmp_path: Path) -> None:
    """Find renamed members: in stored events they are unknown, so they are kept but have no effect."""
    Fixture(HERE / "9962417").unpack(tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy" / "gateway.db")) as connection:
        for (body,) in connection.execute("SELECT body FROM event"):
            assert UNKNOWN not in decode_event(body).extra
